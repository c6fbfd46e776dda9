"""Topics with offsets, settings and leaders, as `moldau topics describe` shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    EligibleLeaders,
    OffsetSpec,
)
from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.errors import KafkaError, UnsupportedByBrokerError
from moldau.model import NO_BROKER, TopicPartition, format_uuid

_UNKNOWN = "-"


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
            _UNKNOWN if row.leader_id == NO_BROKER else str(row.leader_id),
            _join(row.replicas),
            _join(row.in_sync_replicas),
            *eligible,
            _UNKNOWN if self.earliest is None else str(self.earliest),
            _UNKNOWN if self.latest is None else str(self.latest),
        )

    def to_document(self) -> dict[str, object]:
        row = self.metadata
        return {
            "partition": row.index,
            "leader": None if row.leader_id == NO_BROKER else row.leader_id,
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
    offsets = await _list_offsets(admin, sound)
    configs = await _describe_configs(admin, sound)
    leaders = await _describe_leaders(admin, sound)
    return [
        topic
        if isinstance(topic, KafkaError)
        else _describe(topic, offsets, leaders, configs.get(topic.name, {}))
        for topic in topics.values()
    ]


_Offsets = Mapping[tuple[TopicPartition, OffsetSpec], int]


async def _list_offsets(admin: AsyncAdmin, topics: Sequence[TopicMetadata]) -> _Offsets:
    led = [
        TopicPartition(topic.name, index)
        for topic in topics
        for index in topic.partitions_with_leader()
    ]
    offsets: dict[tuple[TopicPartition, OffsetSpec], int] = {}
    for spec in (OffsetSpec.EARLIEST, OffsetSpec.LATEST):
        answers = await admin.list_offsets(dict.fromkeys(led, spec.value))
        for partition, answer in answers.items():
            if not isinstance(answer, KafkaError):
                offsets[partition, spec] = answer.offset
    return offsets


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
    topic: TopicMetadata, offsets: _Offsets, leaders: _Leaders, configs: Mapping[str, str]
) -> TopicDescription:
    return TopicDescription(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        configs=dict(sorted(configs.items())),
        partitions=tuple(
            PartitionDescription(
                metadata=row,
                earliest=offsets.get((TopicPartition(topic.name, row.index), OffsetSpec.EARLIEST)),
                latest=offsets.get((TopicPartition(topic.name, row.index), OffsetSpec.LATEST)),
                leaders=leaders.get(TopicPartition(topic.name, row.index), EligibleLeaders()),
            )
            for row in topic.partitions
        ),
    )


def _join(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers)) or _UNKNOWN
