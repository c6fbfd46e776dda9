"""What a client knows of the cluster: brokers, topics, partitions and their leaders. Values.

May be stale at any moment: whoever hears NOT_LEADER from a broker has it asked for again
(`client.metadata`) and tries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from uuid import UUID

from moldau.client.rules.addresses import Address
from moldau.errors import KafkaError, LeaderNotAvailableError, UnknownTopicError
from moldau.model import NO_BROKER, NO_LEADER_EPOCH, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker as the cluster knows it."""

    id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionMetadata:
    """One partition. `leader_id` is -1 while there is none."""

    index: int
    leader_id: int
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    in_sync_replicas: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicMetadata:
    """One topic; its partitions in order. `topic_id` is None where the broker is too old."""

    name: str
    topic_id: UUID | None = None
    is_internal: bool = False
    partitions: tuple[PartitionMetadata, ...] = ()
    error: KafkaError | None = None

    def partitions_with_leader(self) -> tuple[int, ...]:
        return tuple(row.index for row in self.partitions if row.leader_id != NO_BROKER)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterMetadata:
    """One answer, or what several of them add up to."""

    cluster_id: str | None = None
    controller_id: int = NO_BROKER
    brokers: Mapping[int, Broker] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))

    def with_older(self, older: ClusterMetadata) -> ClusterMetadata:
        """This answer, and of an older one the topics that this one was not asked about."""
        return ClusterMetadata(
            cluster_id=self.cluster_id,
            controller_id=self.controller_id,
            brokers=self.brokers,
            topics={**older.topics, **self.topics},
        )

    def require_topic(self, name: str) -> TopicMetadata:
        """The topic, usable; raises its error, or UnknownTopicError."""
        topic = self.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        if topic.error is not None:
            raise topic.error
        return topic

    def require_partition(self, partition: TopicPartition) -> PartitionMetadata:
        rows = self.require_topic(partition.topic).partitions
        if not 0 <= partition.partition < len(rows):
            raise UnknownTopicError(
                f"topic {partition.topic!r} has no partition {partition.partition}; "
                f"it has {len(rows)}, counted from 0"
            )
        return rows[partition.partition]

    def find_leader(self, partition: TopicPartition) -> int | None:
        """Broker id of the leader, as far as it is known; None while there is none."""
        topic = self.topics.get(partition.topic)
        if topic is None or partition.partition >= len(topic.partitions):
            return None
        leader_id = topic.partitions[partition.partition].leader_id
        return leader_id if leader_id in self.brokers else None

    def require_leader(self, partition: TopicPartition) -> int:
        """Broker id of the leader; raises LeaderNotAvailableError while there is none."""
        leader_id = self.require_partition(partition).leader_id
        if leader_id not in self.brokers:
            raise LeaderNotAvailableError(f"{partition} has no leader at the moment")
        return leader_id
