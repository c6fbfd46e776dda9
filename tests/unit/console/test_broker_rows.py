"""Brokers as they are shown."""

from __future__ import annotations

from moldau.client.admin.values import Broker, ClusterDescription, LogDirDescription, ReplicaOnDisk
from moldau.client.rules.cluster_metadata import Address, PartitionMetadata, TopicMetadata
from moldau.console.cluster import broker_rows, coordination_text, log_dir_rows
from moldau.errors import StorageError
from moldau.model import TopicPartition

CLUSTER = ClusterDescription(
    cluster_id="c", controller_id=1, brokers=(Broker(id=1, address=Address("here", 9092)),)
)
TOPIC = TopicMetadata(
    name="t",
    partitions=(
        PartitionMetadata(index=0, leader_id=1, replicas=(1, 2), in_sync_replicas=(1,)),
        PartitionMetadata(index=1, leader_id=1, replicas=(2, 1), in_sync_replicas=(1,)),
    ),
)


def folder(path: str, size: int, total: int, usable: int) -> LogDirDescription:
    replica = ReplicaOnDisk(
        partition=TopicPartition("t", 0), size_bytes=size, offset_lag=0, is_future=False
    )
    return LogDirDescription(path=path, total_bytes=total, usable_bytes=usable, replicas=(replica,))


def test_a_broker_that_is_away_is_still_a_row() -> None:
    here, away = broker_rows(CLUSTER, (TOPIC,), {})
    assert (here.id, here.address, here.is_controller) == (1, "here:9092", True)
    assert (here.leads, here.replicas, here.in_sync) == (2, 2, 2)
    assert (away.id, away.address, away.replicas, away.in_sync) == (2, None, 2, 0)
    assert here.size_bytes is None


def test_of_several_disks_the_fullest_is_shown() -> None:
    disks = {1: (folder("/a", 5, 100, 60), folder("/b", 7, 1000, 10), StorageError("/c is gone"))}
    row = broker_rows(CLUSTER, (), disks)[0]
    assert (row.size_bytes, row.free_bytes, row.total_bytes) == (12, 10, 1000)
    assert row.failed_dirs == ("/c is gone",)


def test_folders_of_a_broker_say_what_is_in_them() -> None:
    rows = log_dir_rows((folder("/b", 7, 1000, 10), StorageError("gone"), folder("/a", 5, -1, -1)))
    assert [(row.path, row.size_bytes, row.free_bytes, row.failure) for row in rows] == [
        ("/a", 5, None, ""),
        ("/b", 7, 10, ""),
        ("a folder that is offline", None, None, "gone"),
    ]


def test_where_the_state_is_kept_is_read_from_settings() -> None:
    assert coordination_text({"zookeeper.connect": "z:2181"}) == "ZooKeeper at z:2181"
    assert coordination_text({"process.roles": "broker,controller"}) == "KRaft quorum"
    assert "1@k:9093" in coordination_text(
        {"process.roles": "broker", "controller.quorum.voters": "1@k:9093"}
    )
    assert "shared" in coordination_text({"coordination.socket": "/x"})
    assert coordination_text({"zookeeper.connect": None}) == "a store inside the broker"
