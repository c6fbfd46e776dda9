"""Looks at groups once: state, members, committed offsets, ends. A shell."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import (
    SHARE_TYPE,
    GroupDescription,
    GroupOffset,
    ListedOffset,
    OffsetSpec,
    ShareGroupOffset,
)
from moldau.diagnosis.rules.survey import GroupLook
from moldau.errors import KafkaError
from moldau.model import TopicPartition


async def look_at_groups(admin: AsyncAdmin, names: Sequence[str]) -> Mapping[str, GroupLook]:
    """Those that can be described."""
    described = await admin.describe_groups(names)
    committed: dict[str, Mapping[TopicPartition, int]] = {}
    unfinished: dict[str, Mapping[TopicPartition, int]] = {}  # of share groups
    for name in names:
        group = described.get(name)
        with contextlib.suppress(KafkaError):
            if isinstance(group, GroupDescription) and group.type == SHARE_TYPE:
                found = (await admin.list_share_group_offsets(name)).items()
                known = {one: at for one, at in found if isinstance(at, ShareGroupOffset)}
                committed[name] = _starts_of(known)
                unfinished[name] = {one: at.lag for one, at in known.items() if at.lag is not None}
                continue
            offsets = await admin.list_group_offsets(name)
            committed[name] = {
                one: at.offset for one, at in offsets.items() if isinstance(at, GroupOffset)
            }
    wanted = {one for offsets in committed.values() for one in offsets}
    listed = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST.value))
    ends = {one: end.offset for one, end in listed.items() if isinstance(end, ListedOffset)}
    return {
        name: _group_look(group, committed.get(name, {}), ends, unfinished.get(name))
        for name, group in described.items()
        if not isinstance(group, KafkaError)
    }


def _starts_of(known: Mapping[TopicPartition, ShareGroupOffset]) -> Mapping[TopicPartition, int]:
    """Of a share group: what is before them is done with."""
    return {one: at.start_offset for one, at in known.items() if at.start_offset is not None}


def _group_look(
    group: GroupDescription,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    unfinished: Mapping[TopicPartition, int] | None,
) -> GroupLook:
    return GroupLook(
        state=group.state,
        members=frozenset(member.member_id for member in group.members),
        idle_members=sum(not member.assignment for member in group.members),
        committed=committed,
        ends={one: ends[one] for one in committed if one in ends},
        unfinished=unfinished,
    )
