"""Where `moldau groups reset-offsets` puts a group: asks the cluster and plans, no more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from moldau.cli.consume_start import AtBeginning, AtOffset, AtTime, BeforeEnd
from moldau.cli.groups.reset_target import ShiftBy, Target, TopicChoice
from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import OffsetSpec
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import ConfigurationError, KafkaError, UnknownTopicError
from moldau.model import TopicPartition

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedReset:
    """One partition: where the group is, where it was to go, and where it will be.

    `after` differs from `wanted` where the log does not reach that far.
    """

    partition: TopicPartition
    before: int | None
    wanted: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a plan is made from. `at_time` is empty unless the target is a time."""

    committed: Offsets
    earliest: Offsets
    latest: Offsets
    at_time: Offsets


def plan_reset(
    target: Target, partitions: Sequence[TopicPartition], ground: Ground
) -> Sequence[PlannedReset]:
    """Where each partition goes; never outside its log, as in Kafka's own tool."""
    planned: list[PlannedReset] = []
    for one in partitions:
        wanted = _find_wanted(target, one, ground)
        planned.append(
            PlannedReset(
                partition=one,
                before=ground.committed.get(one),
                wanted=wanted,
                after=min(max(wanted, ground.earliest[one]), ground.latest[one]),
            )
        )
    return planned


def _find_wanted(target: Target, partition: TopicPartition, ground: Ground) -> int:
    match target:
        case AtBeginning():
            return ground.earliest[partition]
        case BeforeEnd(count):
            return ground.latest[partition] - count
        case AtOffset(offset):
            return offset
        case AtTime():
            found = ground.at_time[partition]
            return ground.latest[partition] if found < 0 else found  # nothing is as late as that
        case ShiftBy(count):
            if partition not in ground.committed:
                raise ConfigurationError(
                    f"the group has no offset in {partition} that could be shifted; "
                    "say where to go with another option"
                )
            return ground.committed[partition] + count


async def make_plan(
    admin: AsyncAdmin,
    group_id: str,
    choices: Sequence[TopicChoice] | None,
    target: Target,
) -> Sequence[PlannedReset]:
    """Ask where things are, and plan."""
    committed = {
        partition: row.offset
        for partition, row in (await admin.list_group_offsets(group_id)).items()
        if not isinstance(row, KafkaError)
    }
    partitions = await _find_partitions(admin, choices, committed)
    at_time: Offsets = {}
    if isinstance(target, AtTime):
        at_time = await _list(admin, partitions, target.timestamp_ms)
    ground = Ground(
        committed=committed,
        earliest=await _list(admin, partitions, OffsetSpec.EARLIEST),
        latest=await _list(admin, partitions, OffsetSpec.LATEST),
        at_time=at_time,
    )
    return plan_reset(target, partitions, ground)


async def _find_partitions(
    admin: AsyncAdmin, choices: Sequence[TopicChoice] | None, committed: Offsets
) -> Sequence[TopicPartition]:
    if choices is None:
        return sorted(committed)
    topics = await admin.describe_topics({choice.topic for choice in choices})
    found: set[TopicPartition] = set()
    for choice in choices:
        topic = topics[choice.topic]
        if isinstance(topic, KafkaError):
            raise topic
        found.update(_partitions_of(topic, choice))
    return sorted(found)


def _partitions_of(topic: TopicMetadata, choice: TopicChoice) -> Collection[TopicPartition]:
    count = len(topic.partitions)
    for index in choice.partitions:
        if index >= count:
            raise UnknownTopicError(
                f"topic {topic.name!r} has no partition {index}; it has {count}, counted from 0"
            )
    return [TopicPartition(topic.name, index) for index in choice.partitions or range(count)]


async def _list(admin: AsyncAdmin, partitions: Sequence[TopicPartition], question: int) -> Offsets:
    answers = await admin.list_offsets(dict.fromkeys(partitions, int(question)))
    offsets: dict[TopicPartition, int] = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        offsets[partition] = answer.offset
    return offsets
