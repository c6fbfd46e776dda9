"""The pytest fixtures: `moldau_broker`. pytest finds this module by its entry point.

Imports are inside the fixtures, so that a test session that uses none pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.running_broker import RunningBroker


@pytest.fixture
def moldau_broker() -> Iterator[RunningBroker]:
    """A real Kafka-compatible broker, for one test: `moldau_broker.bootstrap`."""
    from moldau.testing.running_broker import broker

    with broker() as running:
        yield running
