"""Fixtures of the tests with whole processes: a folder of their own, and brokers in it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker_process import BrokerProcess, broker_process


@pytest.fixture
def folder() -> Iterator[Path]:
    """Removed with the test, unlike `tmp_path`: some of these fill a good deal of disk."""
    with tempfile.TemporaryDirectory(prefix="moldau-test-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def broker(folder: Path) -> Iterator[BrokerProcess]:
    """A broker with the defaults, not started."""
    with broker_process(folder / "broker") as process:
        yield process
