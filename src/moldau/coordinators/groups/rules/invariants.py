"""What holds of every group between two events (GRP in docs/invariants.md). A rule.

The shell does not call it; tests do, after every event.
"""

from __future__ import annotations

from collections.abc import Collection

from moldau.coordinators.groups.rules.classic_group import ClassicGroup, ClassicGroupState
from moldau.coordinators.groups.rules.events import GroupTimer, GroupTimerKind
from moldau.errors import InvariantViolation


def check_group(group: ClassicGroup) -> None:
    """Raise `InvariantViolation` for the first one that does not hold."""
    fault = _find_fault(group)
    if fault is not None:
        raise InvariantViolation(f"{group!r}: {fault}")


def check_timers(group: ClassicGroup, armed: Collection[GroupTimer]) -> None:
    """Raise `InvariantViolation` when something is waited for without an end, or for no reason."""
    timers = {timer for timer in armed if timer.group_id == group.group_id}
    wanted = {GroupTimer(GroupTimerKind.SESSION, group.group_id, one) for one in group.pending}
    optional: set[GroupTimer] = set()
    for member in group.members:
        timer = GroupTimer(GroupTimerKind.SESSION, group.group_id, member.member_id)
        (optional if member.is_waiting else wanted).add(timer)
    if group.state is _PREPARING:
        wanted.add(GroupTimer(GroupTimerKind.JOIN, group.group_id))
    if group.unsynced:
        wanted.add(GroupTimer(GroupTimerKind.SYNC, group.group_id))
    if not wanted <= timers <= wanted | optional:
        raise InvariantViolation(f"GRP-7: {group!r} has {sorted(map(str, timers ^ wanted))}")


def _find_fault(group: ClassicGroup) -> str | None:
    ids = {member.member_id for member in group.members}
    if (group.leader in ids) != bool(ids):
        return f"GRP-1: the leader {group.leader!r} is not one of {sorted(ids)}"
    if group.state is ClassicGroupState.STABLE:
        stored = group.stored
        if stored is None or stored.generation != group.generation:
            return "GRP-2: it is stable in a generation that is not logged"
        if {one.member_id: one.assignment for one in stored.members} != {
            one.member_id: one.assignment for one in group.members
        }:
            return "GRP-2: its members or assignments are not those that were logged"
    if (group.state is ClassicGroupState.EMPTY) == bool(ids) and group.state is not _PREPARING:
        return f"GRP-3: it is {group.state.value} with members {sorted(ids)}"
    return _find_parking_fault(group, ids)


_PREPARING = ClassicGroupState.PREPARING_REBALANCE


def _find_parking_fault(group: ClassicGroup, ids: set[str]) -> str | None:
    for member in group.members:
        if member.join_request is not None and group.state is not _PREPARING:
            return f"GRP-4: {member!r} waits to join outside of a rebalance"
        if (
            member.sync_request is not None
            and group.state is not ClassicGroupState.COMPLETING_REBALANCE
        ):
            return f"GRP-4: {member!r} waits for an assignment that nobody makes"
    if group.pending & ids:
        return f"GRP-5: {sorted(group.pending & ids)} are expected, and in"
    if group.unsynced and group.state in (_PREPARING, ClassicGroupState.EMPTY):
        return f"GRP-5: {sorted(group.unsynced)} are to sync with nothing"
    if not group.unsynced <= ids:
        return f"GRP-5: {sorted(group.unsynced - ids)} are to sync, and not in"
    if group.stored is not None and group.generation < group.stored.generation:
        return f"GRP-6: its generation is behind the logged {group.stored.generation}"
    return None
