"""Clusters and topics: counts, offsets, settings and leaders, as they are shown.

The command line and the console count in the same way: a partition is offline without a leader, and
under-replicated when a replica is not in sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    EligibleLeaders,
    ListedOffset,
    OffsetSpec,
    SpokenVersions,
)
from moldau.client.rules.cluster_metadata import Broker, PartitionMetadata, TopicMetadata
from moldau.errors import ClientError, KafkaError, UnsupportedByBrokerError
from moldau.model import NO_BROKER, TopicPartition, format_uuid
from moldau.ops.formatting import UNKNOWN


def is_offline(partition: PartitionMetadata) -> bool:
    return partition.leader_id == NO_BROKER


def is_under_replicated(partition: PartitionMetadata) -> bool:
    return len(partition.in_sync_replicas) < len(partition.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """What an operator looks at first."""

    topics: int
    partitions: int
    replicas: int
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
        replicas=sum(len(one.replicas) for one in partitions),
        under_replicated=sum(map(is_under_replicated, partitions)),
        offline=sum(map(is_offline, partitions)),
    )


class ReplicaCounts(NamedTuple):
    """By broker."""

    leads: Counter[int]
    replicas: Counter[int]
    in_sync: Counter[int]


def count_replicas(topics: Collection[TopicMetadata]) -> ReplicaCounts:
    counts = ReplicaCounts(Counter(), Counter(), Counter())
    for topic in topics:
        for partition in topic.partitions:
            counts.leads[partition.leader_id] += 1
            counts.replicas.update(partition.replicas)
            counts.in_sync.update(partition.in_sync_replicas)
    return counts


# A cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """A cluster at one moment, as `moldau cluster info` shows it."""

    cluster: ClusterDescription
    topics: Mapping[str, TopicMetadata]
    versions: Mapping[int, SpokenVersions | ClientError]

    @property
    def answering(self) -> Mapping[int, SpokenVersions]:
        return {
            broker_id: answer
            for broker_id, answer in self.versions.items()
            if isinstance(answer, SpokenVersions)
        }

    @property
    def features(self) -> Mapping[str, int]:
        """Finalized in the cluster: every broker says the same."""
        return next((one.features for one in self.answering.values()), {})

    @property
    def has_racks(self) -> bool:
        return any(broker.rack is not None for broker in self.cluster.brokers)

    def summary(self) -> Iterator[tuple[str, str]]:
        health = cluster_health(self.topics.values())
        internal = sum(topic.is_internal for topic in self.topics.values())
        controller = self.cluster.controller_id
        yield "controller", "none" if controller == NO_BROKER else f"broker {controller}"
        yield "brokers", str(len(self.cluster.brokers))
        yield "topics", f"{len(self.topics)} ({internal} internal)"
        yield "partitions", f"{health.partitions} with {health.replicas} replicas"
        yield "state", f"{health.under_replicated} under-replicated, {health.offline} offline"
        if self.features:
            told = [f"{name}={level}" for name, level in sorted(self.features.items())]
            yield "features", told[0]
            yield from (("", one) for one in told[1:])

    def broker_rows(self) -> list[tuple[str, ...]]:
        load = count_replicas(self.topics.values())
        return [
            (
                f"{broker.id}{'*' if broker.id == self.cluster.controller_id else ''}",
                str(broker.address),
                *((broker.rack or "-",) if self.has_racks else ()),
                str(load.leads[broker.id]),
                str(load.replicas[broker.id]),
                self._show_spoken(broker),
            )
            for broker in self.cluster.brokers
        ]

    def api_rows(self) -> list[tuple[str, ...]]:
        answers = self.answering
        names = dict.fromkeys(name for one in answers.values() for name in one.apis)
        return [
            (
                name,
                *(
                    f"{one.apis[name].first}-{one.apis[name].last}" if name in one.apis else "-"
                    for one in answers.values()
                ),
            )
            for name in names
        ]

    def to_document(self) -> dict[str, object]:
        health, load = cluster_health(self.topics.values()), count_replicas(self.topics.values())
        controller = self.cluster.controller_id
        return {
            "cluster_id": self.cluster.cluster_id,
            "controller": None if controller == NO_BROKER else controller,
            "features": dict(self.features),
            "topics": len(self.topics),
            "internal_topics": sum(topic.is_internal for topic in self.topics.values()),
            "partitions": health.partitions,
            "replicas": health.replicas,
            "under_replicated": health.under_replicated,
            "offline": health.offline,
            "brokers": [
                {
                    "id": broker.id,
                    "host": broker.address.host,
                    "port": broker.address.port,
                    "rack": broker.rack,
                    "leads": load.leads[broker.id],
                    "replicas": load.replicas[broker.id],
                    **self._spoken_document(broker),
                }
                for broker in self.cluster.brokers
            ],
        }

    def _show_spoken(self, broker: Broker) -> str:
        answer = self.versions[broker.id]
        if isinstance(answer, ClientError):
            return f"no answer: {answer}"
        level = "before Kafka 2.7" if answer.release is None else f"Kafka {answer.release} or later"
        return f"{level}, {len(answer.apis)} APIs"

    def _spoken_document(self, broker: Broker) -> dict[str, object]:
        answer = self.versions[broker.id]
        if isinstance(answer, ClientError):
            return {"error": str(answer)}
        return {
            "release": answer.release,
            "apis": {
                name: {"first": served.first, "last": served.last}
                for name, served in answer.apis.items()
            },
        }


async def describe_info(admin: AsyncAdmin) -> ClusterInfo:
    cluster = await admin.describe_cluster()
    return ClusterInfo(
        cluster=cluster,
        topics=await admin.list_topics(),
        versions=await admin.describe_versions([broker.id for broker in cluster.brokers]),
    )


# Topics


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """A partition; the offsets are None while it has no leader."""

    metadata: PartitionMetadata
    earliest: int | None
    latest: int | None
    leaders: EligibleLeaders = field(default_factory=EligibleLeaders)

    def to_row(self, *, with_eligible: bool) -> tuple[str, ...]:
        row, leaders = self.metadata, self.leaders
        eligible = (_join(leaders.eligible), _join(leaders.last_known)) if with_eligible else ()
        return (
            str(row.index),
            UNKNOWN if is_offline(row) else str(row.leader_id),
            _join(row.replicas),
            _join(row.in_sync_replicas),
            *eligible,
            UNKNOWN if self.earliest is None else str(self.earliest),
            UNKNOWN if self.latest is None else str(self.latest),
        )

    def to_document(self) -> dict[str, object]:
        row = self.metadata
        return {
            "partition": row.index,
            "leader": None if is_offline(row) else row.leader_id,
            "leader_epoch": row.leader_epoch,
            "replicas": row.replicas,
            "in_sync_replicas": row.in_sync_replicas,
            "eligible_leader_replicas": self.leaders.eligible,
            "last_known_eligible_replicas": self.leaders.last_known,
            "offline_replicas": row.offline_replicas,
            "earliest_offset": self.earliest,
            "latest_offset": self.latest,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic; `configs` are the settings that were made for it."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    configs: Mapping[str, str]
    partitions: tuple[PartitionDescription, ...]

    @property
    def has_eligible(self) -> bool:
        """Whether somebody may lead that is not in sync, or had everything last: rare."""
        return any(each.leaders.eligible or each.leaders.last_known for each in self.partitions)

    def to_document(self) -> dict[str, object]:
        return {
            "topic": self.name,
            "topic_id": None if self.topic_id is None else format_uuid(self.topic_id),
            "internal": self.is_internal,
            "configs": dict(self.configs),
            "partitions": [partition.to_document() for partition in self.partitions],
        }


async def read_offsets(
    admin: AsyncAdmin, partitions: Collection[TopicPartition], spec: int
) -> dict[TopicPartition, int]:
    """Offsets by partition; those that no broker answers for are missing."""
    if not partitions:
        return {}
    found = await admin.list_offsets(dict.fromkeys(partitions, int(spec)))
    return {one: row.offset for one, row in found.items() if isinstance(row, ListedOffset)}


async def describe_topics(
    admin: AsyncAdmin, names: Sequence[str] | None
) -> Sequence[TopicDescription | KafkaError]:
    """These topics, or all that are not internal; the errors of those that cannot be described."""
    if names is None:
        listed = await admin.list_topics()
        names = sorted(name for name, topic in listed.items() if not topic.is_internal)
    if not names:
        return ()
    topics = await admin.describe_topics(names)
    sound = [topic for topic in topics.values() if isinstance(topic, TopicMetadata)]
    led = [
        TopicPartition(topic.name, index)
        for topic in sound
        for index in topic.partitions_with_leader()
    ]
    starts = await read_offsets(admin, led, OffsetSpec.EARLIEST)
    ends = await read_offsets(admin, led, OffsetSpec.LATEST)
    configs = await _describe_configs(admin, sound)
    leaders = await _describe_leaders(admin, sound)
    return [
        topic
        if isinstance(topic, KafkaError)
        else _describe(topic, starts, ends, leaders, configs.get(topic.name, {}))
        for topic in topics.values()
    ]


_Leaders = Mapping[TopicPartition, EligibleLeaders]


async def _describe_leaders(admin: AsyncAdmin, topics: Sequence[TopicMetadata]) -> _Leaders:
    if not topics:
        return {}
    try:
        return await admin.describe_eligible_leaders([topic.name for topic in topics])
    except UnsupportedByBrokerError:
        return {}


async def _describe_configs(
    admin: AsyncAdmin, topics: Sequence[TopicMetadata]
) -> Mapping[str, Mapping[str, str]]:
    if not topics:
        return {}
    resources = [ConfigResource.topic(topic.name) for topic in topics]
    try:
        answers = await admin.describe_configs(resources)
    except UnsupportedByBrokerError:
        return {}
    return {
        resource.name: {one.name: one.value or "" for one in answer if _is_own(one)}
        for resource, answer in answers.items()
        if not isinstance(answer, KafkaError)
    }


def _is_own(entry: ConfigEntry) -> bool:
    return entry.source is ConfigSource.DYNAMIC_TOPIC


def _describe(
    topic: TopicMetadata,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    leaders: _Leaders,
    configs: Mapping[str, str],
) -> TopicDescription:
    rows = [(TopicPartition(topic.name, row.index), row) for row in topic.partitions]
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        configs=dict(sorted(configs.items())),
        partitions=tuple(
            PartitionDescription(
                metadata=row,
                earliest=starts.get(partition),
                latest=ends.get(partition),
                leaders=leaders.get(partition, EligibleLeaders()),
            )
            for partition, row in rows
        ),
    )


def _join(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or UNKNOWN
