"""Reads groups with members, positions and lag. A shell; `rules.group_lag` counts."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import SHARE_TYPE, GroupDescription, OffsetSpec, PartitionLag
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.ops.cluster_view import read_offsets
from moldau.ops.rules.group_lag import GroupView, Positions, committed_offsets, group_partitions


async def read_positions(admin: AsyncAdmin, group_id: str, *, is_shared: bool) -> Positions:
    """Committed offsets; of a share group, start offsets and lags."""
    if is_shared:
        return await admin.list_share_group_offsets(group_id)
    return await admin.list_group_offsets(group_id)


async def read_ends(
    admin: AsyncAdmin, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, int]:
    """High watermarks of partitions that have a leader.

    Groups remember topics that are gone: those must not spoil the answer about the others.
    """
    if not partitions:
        return {}
    topics = await admin.describe_topics({one.topic for one in partitions})
    led = [
        one
        for one in partitions
        if not isinstance(topic := topics[one.topic], KafkaError)
        and one.partition in topic.partitions_with_leader()
    ]
    return await read_offsets(admin, led, OffsetSpec.LATEST)


async def read_groups(admin: AsyncAdmin, names: Sequence[str]) -> Mapping[str, GroupView]:
    """Those that can be described, without ages of records. All ends are read in one request."""
    described = await admin.describe_groups(names)
    groups = {name: one for name, one in described.items() if isinstance(one, GroupDescription)}
    positions: dict[str, Positions] = {}
    for name, group in groups.items():
        with contextlib.suppress(KafkaError):
            is_shared = group.type == SHARE_TYPE
            positions[name] = await read_positions(admin, name, is_shared=is_shared)
    ends = await read_ends(admin, {one for some in positions.values() for one in some})
    return {
        name: GroupView(
            description=group,
            partitions=group_partitions(group.members, positions.get(name, {}), ends),
        )
        for name, group in groups.items()
    }


async def describe_groups(
    admin: AsyncAdmin, names: Sequence[str] | None, *, with_offsets: bool
) -> Sequence[GroupView | KafkaError]:
    """These groups, or all, with ages of records; the errors of those that cannot be described."""
    if names is None:
        names = sorted(await admin.list_groups())
    answers = await admin.describe_groups(dict.fromkeys(names))
    return [
        answer
        if isinstance(answer, KafkaError)
        else await _describe(admin, answer, with_offsets=with_offsets)
        for answer in (answers[name] for name in dict.fromkeys(names))
    ]


async def _describe(
    admin: AsyncAdmin, group: GroupDescription, *, with_offsets: bool
) -> GroupView | KafkaError:
    if not with_offsets:
        return GroupView(description=group, partitions=None)
    try:
        positions = await read_positions(admin, group.group_id, is_shared=group.type == SHARE_TYPE)
    except KafkaError as error:
        return error
    known = {one for one, at in positions.items() if not isinstance(at, KafkaError)}
    assigned = {one for member in group.members for one in member.assignment}
    committed = committed_offsets(positions)
    answers = await admin.measure_lag({one: committed.get(one) for one in known | assigned})
    lags = {one: lag for one, lag in answers.items() if isinstance(lag, PartitionLag)}
    return GroupView(
        description=group,
        partitions=group_partitions(
            group.members,
            positions,
            {one: lag.log_end_offset for one, lag in lags.items()},
            {one: lag.seconds for one, lag in lags.items()},
        ),
    )
