"""The classic protocol in a classic group: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and
members that are lost. A rule: functions over a group, which answer at once or park the request in
the member.

Who may join:

    member id   instance id   known       what happens
    -           -             -           a newcomer: told its id first (JoinGroup 4), or added
    -           given         no          a static newcomer: added
    -           given         yes         a static member after a restart: takes its old place
    given       -             pending     a newcomer with the id that it was told: added
    given       any           a member    joins again
    given       any           no          UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.coordinators.groups.rules.classic_group import ClassicGroup as Group
from moldau.coordinators.groups.rules.classic_group import ClassicGroupState, Member
from moldau.coordinators.groups.rules.events import (
    UNKNOWN_MEMBER,
    Abandon,
    CodeAnswer,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    LeaveAnswer,
    LeavingMember,
    LeftMember,
    Sync,
    SyncAnswer,
)
from moldau.coordinators.groups.rules.outcome import GroupTurn, Outcome
from moldau.errors import ErrorCode


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


class Joining:
    """One JoinGroup request on its way through a group."""

    __slots__ = ("_event", "_group", "_outcome", "_turn")

    def __init__(self, group: Group, event: Join, turn: GroupTurn) -> None:
        self._group = group
        self._event = event
        self._turn = turn
        self._outcome = turn.outcome

    def run(self) -> None:
        group, event = self._group, self._event
        if not self._has_room():
            self._turn_away()
        elif not self._speaks_our_language():
            self._refuse(ErrorCode.inconsistent_group_protocol, event.member_id)
        elif event.member_id == UNKNOWN_MEMBER:
            self._join_as_newcomer()
        elif event.member_id in group.pending:
            self._join_as_pending()
        else:
            fault = group.find_member_fault(event.member_id, event.instance_id)
            member = group.members.find(event.member_id)
            if fault is not None or member is None:
                self._refuse(fault or ErrorCode.unknown_member_id, event.member_id)
            else:
                self._join_again(member)

    # May it?

    def _has_room(self) -> bool:
        group, member_id, max_size = self._group, self._event.member_id, self._turn.limits.max_size
        member = group.members.find(member_id)
        match group.state:
            case ClassicGroupState.EMPTY | ClassicGroupState.DEAD:
                return True
            case ClassicGroupState.PREPARING_REBALANCE:
                # By those who have joined: so the last ones to come are turned away, also when
                # the limit was lowered while the group was larger.
                if member is not None and member.has_joined:
                    return True
                return group.members.joined_count < max_size
            case ClassicGroupState.COMPLETING_REBALANCE | ClassicGroupState.STABLE:
                return member is not None or len(group.members) < max_size

    def _turn_away(self) -> None:
        group, member_id = self._group, self._event.member_id
        member = group.members.find(member_id)
        if member is not None:
            group.remove_member(member, self._outcome)
        if member_id in group.pending:
            group.pending.discard(member_id)
            self._outcome.disarm(group.session_timer(member_id))
        self._refuse(ErrorCode.group_max_size_reached, UNKNOWN_MEMBER)
        if group.state is ClassicGroupState.PREPARING_REBALANCE:
            self._rebalance("")  # perhaps it was the last one that was awaited

    def _speaks_our_language(self) -> bool:
        group, event = self._group, self._event
        if group.state is ClassicGroupState.EMPTY:
            return bool(event.protocol_type and event.protocols)
        return event.protocol_type == group.protocol_type and group.members.supports_any(
            one.name for one in event.protocols
        )

    # As whom?

    def _join_as_newcomer(self) -> None:
        group, event = self._group, self._event
        if event.instance_id is not None:
            former = group.members.find_static(event.instance_id)
            if former is not None:
                self._take_old_place(former)
            else:
                self._add(event.new_member_id)
        elif event.needs_member_id:
            group.pending.add(event.new_member_id)
            self._outcome.arm(group.session_timer(event.new_member_id), event.session_timeout_ms)
            self._refuse(ErrorCode.member_id_required, event.new_member_id)
        else:
            self._add(event.new_member_id)

    def _join_as_pending(self) -> None:
        if self._event.instance_id is not None:  # no static member was ever told to wait
            self._refuse(ErrorCode.unknown_member_id, self._event.member_id)
            return
        self._group.pending.discard(self._event.member_id)
        self._add(self._event.member_id)

    def _add(self, member_id: str) -> None:
        group, event = self._group, self._event
        member = Member(
            member_id=member_id,
            instance_id=event.instance_id,
            client_id=event.client_id,
            client_host=event.client_host,
            session_timeout_ms=event.session_timeout_ms,
            rebalance_timeout_ms=event.rebalance_timeout_ms,
            protocols=event.protocols,
        )
        member.join_request = self._turn.request
        if not group.members:
            group.protocol_type = event.protocol_type
        group.members.add(member)
        if group.leader is None:
            group.leader = member_id
        group.has_grown = True
        group.await_sign_of_life(member, self._outcome)
        self._rebalance(f"{member_id} joins")

    def _join_again(self, member: Member) -> None:
        group = self._group
        is_changed = member.protocols != self._event.protocols
        is_leader = member.member_id == group.leader
        match group.state:
            case ClassicGroupState.PREPARING_REBALANCE:
                self._park(member)
                self._rebalance("")
            case ClassicGroupState.COMPLETING_REBALANCE if not is_changed:
                self._repeat_generation(member)  # the answer to its first join was lost
            case ClassicGroupState.STABLE if not is_changed and not is_leader:
                self._repeat_generation(member)
            case _:
                # A leader joins again because something changed that only it has noticed, such as
                # the number of partitions of a topic.
                self._park(member)
                what = "with new metadata" if is_changed else "as the leader"
                self._rebalance(f"{member.member_id} joins again {what}")

    def _repeat_generation(self, member: Member) -> None:
        group = self._group
        answer = group.describe_generation(member)
        self._turn.answer(answer)
        group.await_sign_of_life(member, self._outcome)

    # Static members

    def _take_old_place(self, member: Member) -> None:
        """The instance is back under a new id: whoever still uses the old one is fenced."""
        group, outcome = self._group, self._outcome
        former_id, former_leader = member.member_id, group.leader
        fenced = ErrorCode.fenced_instance_id
        group.answer_join(member, JoinAnswer(error=fenced, member_id=former_id), outcome)
        group.answer_sync(member, SyncAnswer(error=fenced), outcome)
        outcome.disarm(group.session_timer(former_id))
        self._rename(member)
        self._park(member)
        group.await_sign_of_life(member, outcome)
        if group.state is not ClassicGroupState.STABLE:
            self._rebalance(f"static member {member.instance_id} is back")
        elif group.protocol != group.members.select_protocol():
            self._rebalance(f"static member {member.instance_id} is back with other protocols")
        else:
            self._go_on_as_before(member, former_leader)

    def _rename(self, member: Member) -> None:
        group, former_id, new_id = self._group, member.member_id, self._event.new_member_id
        group.members.rename(member, new_id)
        if group.leader == former_id:
            group.leader = new_id
        if former_id in group.unsynced:
            group.unsynced.discard(former_id)
            group.unsynced.add(new_id)

    def _go_on_as_before(self, member: Member, former_leader: str | None) -> None:
        """No rebalance: the new id is logged, and the member asks for the assignment it had."""
        group = self._group
        assignments = {one.member_id: one.assignment for one in group.members}
        self._outcome.records.append(group.generation_record(assignments, self._turn.now_ms))
        is_leader = member.member_id == group.leader
        can_skip = self._event.can_skip_assignment
        group.answer_join(
            member,
            JoinAnswer(
                generation=group.generation,
                protocol_type=group.protocol_type,
                protocol=group.protocol,
                # An older client that finds itself the leader would assign anew; told of its own
                # former id, it takes itself for a follower (KIP-814).
                leader=(group.leader if can_skip else former_leader) or "",
                member_id=member.member_id,
                skip_assignment=is_leader and can_skip,
                members=group.joined_members() if is_leader and can_skip else (),
            ),
            self._outcome,
        )

    # What comes of it

    def _park(self, member: Member) -> None:
        """It waits with what it said now; a request of it that waits already is let go."""
        event = self._event
        self._group.answer_join(
            member,
            JoinAnswer(error=ErrorCode.rebalance_in_progress, member_id=member.member_id),
            self._outcome,
        )
        member.protocols = event.protocols
        member.session_timeout_ms = event.session_timeout_ms
        member.rebalance_timeout_ms = event.rebalance_timeout_ms
        member.join_request = self._turn.request

    def _rebalance(self, reason: str) -> None:
        if reason and self._event.reason:
            reason = f"{reason} ({self._event.reason})"
        self._group.rebalance(reason, self._turn)

    def _refuse(self, error: ErrorCode, member_id: str) -> None:
        self._turn.answer(JoinAnswer(error=error, member_id=member_id))
