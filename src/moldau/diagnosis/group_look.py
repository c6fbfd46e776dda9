"""Looks at groups once: state, members, committed offsets, ends. A shell."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import ListedOffset, OffsetSpec
from moldau.client.group_values import (
    SHARE_TYPE,
    GroupDescription,
    GroupOffset,
    ShareGroupOffset,
)
from moldau.diagnosis.rules.survey import GroupLook
from moldau.errors import KafkaError
from moldau.model import TopicPartition


async def look_at_groups(admin: AsyncAdmin, names: Sequence[str]) -> Mapping[str, GroupLook]:
    """Those that can be described."""
    described = await admin.describe_groups(names)
    committed: dict[str, Mapping[TopicPartition, int]] = {}
    for name in names:
        group = described.get(name)
        with contextlib.suppress(KafkaError):
            if isinstance(group, GroupDescription) and group.type == SHARE_TYPE:
                committed[name] = await _find_starts(admin, name)
                continue
            offsets = await admin.list_group_offsets(name)
            committed[name] = {
                one: found.offset
                for one, found in offsets.items()
                if isinstance(found, GroupOffset)
            }
    wanted = {one for offsets in committed.values() for one in offsets}
    listed = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST.value))
    ends = {one: end.offset for one, end in listed.items() if isinstance(end, ListedOffset)}
    return {
        name: _group_look(found, committed.get(name, {}), ends)
        for name, found in described.items()
        if not isinstance(found, KafkaError)
    }


async def _find_starts(admin: AsyncAdmin, name: str) -> Mapping[TopicPartition, int]:
    """Of a share group: what is before them is done with."""
    starts = await admin.list_share_group_offsets(name)
    return {
        one: found.start_offset
        for one, found in starts.items()
        if isinstance(found, ShareGroupOffset) and found.start_offset is not None
    }


def _group_look(
    group: GroupDescription,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> GroupLook:
    return GroupLook(
        state=group.state,
        members=frozenset(member.member_id for member in group.members),
        idle_members=sum(not member.assignment for member in group.members),
        committed=committed,
        ends={one: ends[one] for one in committed if one in ends},
    )
