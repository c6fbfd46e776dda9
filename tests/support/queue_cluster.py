"""A cluster of real brokers whose share groups are quick to notice things; a fixture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.cluster_processes import ClusterProcesses, cluster_processes
from support.zookeeper import Zookeeper

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "group.share.min.heartbeat.interval.ms": "300",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.record.lock.duration.ms": "1000",
}


@pytest.fixture
def cluster(folder: Path, zookeeper_ensemble: Zookeeper) -> Iterator[ClusterProcesses]:
    connect = zookeeper_ensemble.fresh_connect()
    with cluster_processes(folder, connect, settings=SETTINGS) as running:
        yield running
