"""The pytest fixtures, which pytest finds by an entry point.

For one test: `moldau_broker`, `moldau_cluster`. For a whole session, which is quicker still:
`moldau_broker_session`, `moldau_cluster_session`, with a `moldau_topic` of its own for each test.

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


@pytest.fixture(scope="session")
def moldau_broker_session() -> Iterator[RunningBroker]:
    """One broker for all tests of a session (of a process, with pytest-xdist)."""
    from moldau.testing.running_broker import broker

    with broker() as running:
        yield running


@pytest.fixture(scope="session")
def moldau_cluster_session() -> Iterator[RunningCluster]:
    """Three brokers for all tests of a session. What a test breaks it has to mend."""
    from moldau.testing.running_cluster import cluster

    with cluster() as running:
        yield running


@pytest.fixture
def moldau_topic(moldau_broker_session: RunningBroker) -> Iterator[str]:
    """The name of an empty topic of the session's broker, for one test."""
    with moldau_broker_session.fresh_topic() as name:
        yield name
