"""Topics and partitions as they are shown."""

from __future__ import annotations

from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.console.paging import PageRequest
from moldau.console.topics import (
    HEALTHY,
    OFFLINE,
    UNDER_REPLICATED,
    TopicRow,
    choose_topics,
    leader_sizes,
    partition_row,
    topic_row,
)
from moldau.model import TopicPartition
from moldau.ops.cluster_view import cluster_health

WELL = PartitionMetadata(index=0, leader_id=1, replicas=(1, 2), in_sync_replicas=(1, 2))
BEHIND = PartitionMetadata(index=1, leader_id=2, replicas=(2, 1), in_sync_replicas=(2,))
AWAY = PartitionMetadata(index=2, leader_id=-1, replicas=(3,), in_sync_replicas=(3,))
CLICKS = TopicMetadata(name="clicks", partitions=(WELL, BEHIND, AWAY))


def row_of(name: str, *, is_internal: bool = False, size: int | None = 0) -> TopicRow:
    topic = TopicMetadata(name=name, is_internal=is_internal, partitions=(WELL,))
    return topic_row(topic, None if size is None else {name: size}, {})


def test_a_topic_says_what_is_worst() -> None:
    row = topic_row(CLICKS, {"clicks": 10}, {"clicks": 2.0})
    assert (row.partitions, row.replication_factor, row.size_bytes, row.rate) == (3, 2, 10, 2.0)
    assert (row.state, row.severity) == ("1 offline", 2)
    behind = topic_row(TopicMetadata(name="t", partitions=(WELL, BEHIND)), None, {})
    assert (behind.state, behind.severity) == ("1 under-replicated", 1)
    assert (behind.size_bytes, behind.rate) == (None, None)
    assert row_of("t").state == HEALTHY


def test_topics_are_found_and_sorted() -> None:
    rows = [row_of("t-10", size=5), row_of("t-2", size=9), row_of("__offsets", is_internal=True)]
    by_name = choose_topics(rows, PageRequest(), with_internal=False)
    assert [row.name for row in by_name] == ["t-2", "t-10"]
    wanted = PageRequest(sort_by="size", descending=True, search="t")
    assert [row.name for row in choose_topics(rows, wanted, with_internal=True)] == [
        "t-2",
        "t-10",
        "__offsets",
    ]
    assert choose_topics(rows, PageRequest(search="nothing"), with_internal=True) == []


def test_the_cluster_is_counted() -> None:
    health = cluster_health((CLICKS, TopicMetadata(name="t", partitions=(WELL,))))
    assert (health.topics, health.partitions) == (2, 4)
    assert (health.under_replicated, health.offline) == (1, 1)
    assert not health.is_healthy


def test_a_partition_names_who_is_missing() -> None:
    row = partition_row(BEHIND, 5, 12, 100)
    assert (row.state, row.leader, row.missing, row.records) == (UNDER_REPLICATED, 2, (1,), 7)
    gone = partition_row(AWAY, None, None, None)
    assert (gone.state, gone.leader, gone.records) == (OFFLINE, None, None)


def test_the_size_of_a_partition_is_its_leaders() -> None:
    sizes = {
        (1, TopicPartition("clicks", 0)): 10,
        (2, TopicPartition("clicks", 0)): 99,
        (3, TopicPartition("clicks", 2)): 7,  # nobody leads it
    }
    assert leader_sizes(sizes, (CLICKS,)) == {
        TopicPartition("clicks", 0): 10,
        TopicPartition("clicks", 2): 7,
    }
