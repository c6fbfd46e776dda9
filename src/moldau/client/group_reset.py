"""Where a reset puts a group, or a trim the beginning of a log: asks the cluster and plans, no
more. A shell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from moldau.client.offset_values import OffsetSpec
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.offset_targets import (
    AtTime,
    Ground,
    Offsets,
    PlannedReset,
    Start,
    Target,
    TopicChoice,
    plan_reset,
)
from moldau.errors import KafkaError, UnknownTopicError
from moldau.model import TopicPartition

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin


async def make_plan(
    admin: AsyncAdmin,
    group_id: str,
    choices: Sequence[TopicChoice] | None,
    target: Target,
    *,
    is_shared: bool = False,
) -> Sequence[PlannedReset]:
    """Ask where things are, and plan."""
    committed = await _find_committed(admin, group_id, is_shared=is_shared)
    partitions = await _find_partitions(admin, choices, committed)
    return await _plan(admin, partitions, target, committed)


async def plan_trim(
    admin: AsyncAdmin, choices: Sequence[TopicChoice], target: Start
) -> Sequence[PlannedReset]:
    """Where logs would begin after the records before a place are deleted; `before` is where they
    begin now."""
    partitions = await _find_partitions(admin, choices, {})
    return await _plan(admin, partitions, target, None)


async def _plan(
    admin: AsyncAdmin,
    partitions: Sequence[TopicPartition],
    target: Target,
    committed: Offsets | None,
) -> Sequence[PlannedReset]:
    at_time: Offsets = {}
    if isinstance(target, AtTime):
        at_time = await _list(admin, partitions, target.timestamp_ms)
    earliest = await _list(admin, partitions, OffsetSpec.EARLIEST)
    ground = Ground(
        committed=earliest if committed is None else committed,
        earliest=earliest,
        latest=await _list(admin, partitions, OffsetSpec.LATEST),
        at_time=at_time,
    )
    return plan_reset(target, partitions, ground)


async def _find_committed(admin: AsyncAdmin, group_id: str, *, is_shared: bool) -> Offsets:
    """Where the group is; of a share group, where what is not done with begins."""
    if is_shared:
        shared = await admin.list_share_group_offsets(group_id)
        return {
            partition: row.start_offset
            for partition, row in shared.items()
            if not isinstance(row, KafkaError) and row.start_offset is not None
        }
    found = await admin.list_group_offsets(group_id)
    return {
        partition: row.offset for partition, row in found.items() if not isinstance(row, KafkaError)
    }


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
