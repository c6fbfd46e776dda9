"""Topics and their partitions as rows. Rules: what the cluster says in, what is shown out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.console.rules.paging import PageRequest, matches, natural_key, sort_rows
from moldau.model import TopicPartition
from moldau.model.protocol_numbers import NO_BROKER

HEALTHY, UNDER_REPLICATED, OFFLINE = "in sync", "under-replicated", "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic in the list. What is not known yet is None."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    under_replicated: int
    offline: int
    size_bytes: int | None
    rate: float | None

    @property
    def state(self) -> str:
        if self.offline:
            return f"{self.offline:,} {OFFLINE}"
        if self.under_replicated:
            return f"{self.under_replicated:,} {UNDER_REPLICATED}"
        return HEALTHY

    @property
    def severity(self) -> int:
        """0 healthy, 1 under-replicated, 2 offline."""
        return 2 if self.offline else 1 if self.under_replicated else 0


_SORT_KEYS = {
    "name": lambda row: natural_key(row.name),
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replication_factor,
    "state": lambda row: (row.severity, row.offline, row.under_replicated),
    "size": lambda row: row.size_bytes,
    "rate": lambda row: row.rate,
}


def is_offline(partition: PartitionMetadata) -> bool:
    return partition.leader_id == NO_BROKER


def is_under_replicated(partition: PartitionMetadata) -> bool:
    return len(partition.in_sync_replicas) < len(partition.replicas)


def partition_state(partition: PartitionMetadata) -> str:
    if is_offline(partition):
        return OFFLINE
    return UNDER_REPLICATED if is_under_replicated(partition) else HEALTHY


def topic_row(
    topic: TopicMetadata, sizes: Mapping[str, int] | None, rates: Mapping[str, float]
) -> TopicRow:
    return TopicRow(
        name=topic.name,
        is_internal=topic.is_internal,
        partitions=len(topic.partitions),
        replication_factor=max((len(one.replicas) for one in topic.partitions), default=0),
        under_replicated=sum(map(is_under_replicated, topic.partitions)),
        offline=sum(map(is_offline, topic.partitions)),
        size_bytes=None if sizes is None else sizes.get(topic.name, 0),
        rate=rates.get(topic.name),
    )


def choose_topics(
    rows: Sequence[TopicRow], request: PageRequest, *, with_internal: bool
) -> Sequence[TopicRow]:
    """Those that match the search, in the order asked for; by name otherwise."""
    found = [
        row
        for row in rows
        if (with_internal or not row.is_internal) and matches(row.name, request.search)
    ]
    found.sort(key=lambda row: natural_key(row.name))
    return sort_rows(found, _SORT_KEYS, request)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    """A partition; its offsets and size are None until they are known."""

    index: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    missing: tuple[int, ...]
    state: str
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None

    @property
    def records(self) -> int | None:
        """Offsets between start and end: transactions and compaction leave some without a record"""
        if self.start_offset is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.start_offset)


def partition_row(
    partition: PartitionMetadata, start: int | None, end: int | None, size_bytes: int | None
) -> PartitionRow:
    return PartitionRow(
        index=partition.index,
        leader=None if is_offline(partition) else partition.leader_id,
        replicas=partition.replicas,
        in_sync=partition.in_sync_replicas,
        missing=tuple(one for one in partition.replicas if one not in partition.in_sync_replicas),
        state=partition_state(partition),
        start_offset=start,
        end_offset=end,
        size_bytes=size_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """What an operator looks at first."""

    topics: int
    partitions: int
    under_replicated: int
    offline: int

    @property
    def is_healthy(self) -> bool:
        return not self.under_replicated and not self.offline


def cluster_health(topics: Collection[TopicMetadata]) -> ClusterHealth:
    partitions = [one for topic in topics for one in topic.partitions]
    return ClusterHealth(
        topics=len(topics),
        partitions=len(partitions),
        under_replicated=sum(map(is_under_replicated, partitions)),
        offline=sum(map(is_offline, partitions)),
    )


def leader_sizes(
    replica_sizes: Mapping[tuple[int, TopicPartition], int], topics: Collection[TopicMetadata]
) -> Mapping[TopicPartition, int]:
    """Of the replicas of each partition, the leader's counts; of an offline one the largest."""
    largest: defaultdict[TopicPartition, int] = defaultdict(int)
    for (_, partition), size in replica_sizes.items():
        largest[partition] = max(largest[partition], size)
    found: dict[TopicPartition, int] = {}
    for topic in topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.index)
            size_of_leader = replica_sizes.get((one.leader_id, partition))
            if size_of_leader is not None:
                found[partition] = size_of_leader
            elif partition in largest:
                found[partition] = largest[partition]
    return found
