"""SyncGroup, Heartbeat, LeaveGroup, and members that are lost. A rule: functions over a group."""

from __future__ import annotations

from collections.abc import Iterator

from moldau.errors import ErrorCode
from moldau.groups.rules.answers import CodeAnswer, LeaveAnswer, LeftMember, SyncAnswer
from moldau.groups.rules.events import (
    UNKNOWN_MEMBER,
    Abandon,
    Heartbeat,
    Leave,
    LeavingMember,
    Sync,
)
from moldau.groups.rules.group import ClassicGroupState, Group
from moldau.groups.rules.members import Member
from moldau.groups.rules.outcome import GroupTurn, Outcome


def refuse_stranger(event: Sync | Heartbeat | Leave, turn: GroupTurn) -> None:
    """Somebody takes itself for a member of a group that has no such members."""
    unknown = ErrorCode.unknown_member_id
    match event:
        case Sync():
            turn.answer(SyncAnswer(error=unknown))
        case Heartbeat():
            turn.answer(CodeAnswer(error=unknown))
        case Leave(members=members):
            left = tuple(LeftMember(one.member_id, one.instance_id, unknown) for one in members)
            turn.answer(LeaveAnswer(members=left))


# Assignments


def sync(group: Group, event: Sync, turn: GroupTurn) -> None:
    fault = _find_sync_fault(group, event)
    member = group.members.find(event.member_id)
    if fault is not None or member is None:
        turn.answer(SyncAnswer(error=fault or ErrorCode.unknown_member_id))
    elif group.state is ClassicGroupState.PREPARING_REBALANCE:
        turn.answer(SyncAnswer(error=ErrorCode.rebalance_in_progress))
    elif group.state is ClassicGroupState.COMPLETING_REBALANCE:
        _note_sync(group, member, turn.outcome)
        # A request of it that waits already is let go.
        group.answer_sync(member, SyncAnswer(error=ErrorCode.rebalance_in_progress), turn.outcome)
        member.sync_request = turn.request
        if member.member_id == group.leader:
            group.assign(dict(event.assignments), turn)
    else:
        _note_sync(group, member, turn.outcome)
        turn.answer(group.describe_assignment(member.assignment))


def _find_sync_fault(group: Group, event: Sync) -> ErrorCode | None:
    fault = group.find_member_fault(event.member_id, event.instance_id)
    if fault is not None:
        return fault
    if event.generation != group.generation:
        return ErrorCode.illegal_generation
    if event.protocol_type not in (None, group.protocol_type):
        return ErrorCode.inconsistent_group_protocol
    if None not in (event.protocol, group.protocol) and event.protocol != group.protocol:
        return ErrorCode.inconsistent_group_protocol
    return None


def _note_sync(group: Group, member: Member, outcome: Outcome) -> None:
    group.unsynced.discard(member.member_id)
    if not group.unsynced:
        group.sync_is_over(outcome)


def sync_time_is_over(group: Group, turn: GroupTurn) -> None:
    """Whoever joined and never asked for its assignment is not working: go on without it."""
    if group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
        return
    late = [member for member in group.members if member.member_id in group.unsynced]
    for member in late:
        turn.outcome.log(group.group_id, f"{member.member_id} has not synced in time")
        group.remove_member(member, turn.outcome)
    if late:
        group.rebalance("members have not synced in time", turn)


# Signs of life


def heartbeat(group: Group, event: Heartbeat, turn: GroupTurn) -> None:
    error = group.find_member_fault(event.member_id, event.instance_id)
    member = group.members.find(event.member_id)
    if error is None and member is not None:
        if event.generation != group.generation:
            error = ErrorCode.illegal_generation
        else:
            group.await_sign_of_life(member, turn.outcome)
            if group.state is ClassicGroupState.PREPARING_REBALANCE:
                error = ErrorCode.rebalance_in_progress
    turn.answer(CodeAnswer(error=error or ErrorCode.none))


def session_is_over(group: Group, member_id: str, turn: GroupTurn) -> None:
    if member_id in group.pending:
        group.pending.discard(member_id)
        _go_on_without(group, "a newcomer has not come back", turn)
        return
    member = group.members.find(member_id)
    if member is None or member.is_waiting:
        return
    group.remove_member(member, turn.outcome)
    _lose(group, f"the session of {member_id} is over", turn)


def abandon(group: Group, event: Abandon, outcome: Outcome) -> None:
    """Nobody waits for a parked request any more: give the member its session time to come back.

    It counts as joined meanwhile, as with Kafka, which does not notice; so the others need not
    wait for it.
    """
    for member in group.members:
        if event.request in (member.join_request, member.sync_request):
            member.is_abandoned = True
            group.await_sign_of_life(member, outcome)
            return


# Leaving


def leave(group: Group, event: Leave, turn: GroupTurn) -> None:
    pending, members = len(group.pending), len(group.members)
    answers = tuple(_leave_one(group, leaving, turn.outcome) for leaving in event.members)
    turn.answer(LeaveAnswer(members=answers))
    if len(group.members) < members:
        _lose(group, f"{', '.join(_names_of(answers))} left", turn)
    elif len(group.pending) < pending:
        _go_on_without(group, "a newcomer left", turn)


def _leave_one(group: Group, leaving: LeavingMember, outcome: Outcome) -> LeftMember:
    member_id, instance_id, _ = leaving
    error = ErrorCode.none
    if member_id in group.pending:
        group.pending.discard(member_id)
        outcome.disarm(group.session_timer(member_id))
    else:
        found = _find_leaving(group, leaving)
        if isinstance(found, Member):
            group.remove_member(found, outcome)
        else:
            error = found
    return LeftMember(member_id, instance_id, error)


def _find_leaving(group: Group, leaving: LeavingMember) -> Member | ErrorCode:
    if leaving.member_id == UNKNOWN_MEMBER and leaving.instance_id is not None:
        return group.members.find_static(leaving.instance_id) or ErrorCode.unknown_member_id
    fault = group.find_member_fault(leaving.member_id, leaving.instance_id)
    if fault is not None:
        return fault
    return group.members.find(leaving.member_id) or ErrorCode.unknown_member_id


def _names_of(answers: tuple[LeftMember, ...]) -> Iterator[str]:
    for answer in answers:
        if answer.error is ErrorCode.none:
            yield answer.member_id or answer.instance_id or ""


def _lose(group: Group, reason: str, turn: GroupTurn) -> None:
    """A member is gone."""
    if group.state is not ClassicGroupState.EMPTY:
        group.rebalance(reason, turn)


def _go_on_without(group: Group, reason: str, turn: GroupTurn) -> None:
    """Somebody is gone who was not a member yet: that may end a wait, but begins nothing."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        group.rebalance(reason, turn)
