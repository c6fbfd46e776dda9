"""What a client knows of the cluster: brokers, topics, partitions and their leaders. Values.

May be stale at any moment: a client that gets NOT_LEADER from a broker asks for it again
(`client.cluster`) and tries again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from moldau.errors import KafkaError, LeaderNotAvailableError, UnknownTopicError, UsageError
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


# Addresses of brokers: `host:port,host:port`


DEFAULT_PORT = 9092


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """At least one address; a missing port is 9092; IPv6 hosts stand in brackets."""
    if not isinstance(text, str):  # other clients take lists, and callers are not all typed
        raise UsageError(
            f"bootstrap is one text, like '127.0.0.1:9092,127.0.0.1:9093', and not {text!r}"
        )
    addresses = tuple(parse_address(part.strip()) for part in text.split(",") if part.strip())
    if not addresses:
        raise UsageError("the bootstrap list is empty; it looks like 127.0.0.1:9092")
    return addresses


def parse_address(text: str) -> Address:
    """One `host`, `host:port` or `[host]:port`."""
    if any(map(str.isspace, text)):
        raise _bad_address(text)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _bad_address(text)
        return Address(host, _parse_port(rest[1:], text))
    host, _, port = text.partition(":")
    if not host or ":" in port:
        raise _bad_address(text)
    return Address(host, _parse_port(port, text))


def _parse_port(port: str, text: str) -> int:
    if not port:
        return DEFAULT_PORT
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise _bad_address(text)
    return int(port)


def _bad_address(text: str) -> UsageError:
    return UsageError(f"{text!r} is not an address; one looks like 127.0.0.1:9092")
