"""The pytest fixtures: `moldau_broker`, `moldau_cluster`. pytest finds this by its entry point.

Imports are inside the fixtures, so that a test session that uses none pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from moldau.testing.running_broker import RunningBroker
    from moldau.testing.running_cluster import RunningCluster


@pytest.fixture
def moldau_broker() -> Iterator[RunningBroker]:
    """A real Kafka-compatible broker, for one test: `moldau_broker.bootstrap`."""
    from moldau.testing.running_broker import broker

    with broker() as running:
        yield running


@pytest.fixture
def moldau_cluster() -> Iterator[RunningCluster]:
    """Three brokers with replication, for one test: `moldau_cluster.bootstrap`, `.kill(1)`."""
    from moldau.testing.running_cluster import cluster

    with cluster() as running:
        yield running
