"""Does what `moldau groups reset-offsets` was asked for, or says why it cannot be done."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import GroupDescription
from moldau.client.group_reset import make_plan
from moldau.client.rules.offset_targets import PlannedReset, Target, TopicChoice
from moldau.errors import (
    ConfigurationError,
    GroupNotEmptyError,
    GroupNotFoundError,
    KafkaError,
)
from moldau.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """What to do to a group. No choices: all partitions that it has read."""

    group_id: str
    choices: Sequence[TopicChoice] | None
    target: Target
    is_dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetOutcome:
    """What was done, or would be. `errors` has the partitions that the broker refused."""

    reset: Reset
    planned: Sequence[PlannedReset]
    errors: Mapping[TopicPartition, KafkaError]
    member_count: int

    @property
    def done(self) -> Sequence[PlannedReset]:
        return [row for row in self.planned if row.partition not in self.errors]

    def remarks(self) -> Iterable[str]:
        if self.reset.is_dry_run:
            yield "nothing was changed; without --dry-run it is"
            if self.member_count:
                now = _with_members(self.reset.group_id, self.member_count)
                yield f"{now} now; it must have none when this is done"


async def perform_reset(admin: AsyncAdmin, reset: Reset) -> ResetOutcome:
    """Plan, and unless it is a dry run, commit."""
    group = await _find_group(admin, reset.group_id)
    member_count = 0 if group is None else len(group.members)
    if member_count and not reset.is_dry_run:
        raise GroupNotEmptyError(_with_members(reset.group_id, member_count))
    is_shared = group is not None and group.type == "share"
    planned = await make_plan(
        admin, reset.group_id, reset.choices, reset.target, is_shared=is_shared
    )
    if not planned:
        raise _nothing_read(reset.group_id, group)
    errors: dict[TopicPartition, KafkaError] = {}
    if not reset.is_dry_run:
        offsets = {row.partition: row.after for row in planned}
        alter = admin.alter_share_group_offsets if is_shared else admin.alter_group_offsets
        answers = await alter(reset.group_id, offsets)
        errors = {one: error for one, error in answers.items() if error is not None}
    return ResetOutcome(reset=reset, planned=planned, errors=errors, member_count=member_count)


async def _find_group(admin: AsyncAdmin, group_id: str) -> GroupDescription | None:
    found = (await admin.describe_groups((group_id,)))[group_id]
    if isinstance(found, GroupNotFoundError):
        return None
    if isinstance(found, KafkaError):
        raise found
    return found


def _with_members(group_id: str, count: int) -> str:
    return f"group {group_id!r} has {'1 member' if count == 1 else f'{count} members'}"


def _nothing_read(group_id: str, group: GroupDescription | None) -> Exception:
    if group is None:
        return GroupNotFoundError(f"there is no group {group_id!r}")
    return ConfigurationError(f"group {group_id!r} has no offsets; name topics with --topic")
