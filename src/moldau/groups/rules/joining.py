"""JoinGroup: who may join, and what that does to the group.

    member id   instance id   known       what happens
    -           -             -           a newcomer: told its id first (JoinGroup 4), or added
    -           given         no          a static newcomer: added
    -           given         yes         a static member after a restart: takes its old place
    given       -             pending     a newcomer with the id that it was told: added
    given       any           a member    joins again
    given       any           no          UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID

A rule: functions over a group. They answer at once or park the request in the member.
"""

from __future__ import annotations

from moldau.errors import ErrorCode
from moldau.groups.rules.answers import JoinAnswer, SyncAnswer
from moldau.groups.rules.events import UNKNOWN_MEMBER, Join
from moldau.groups.rules.group import ClassicGroupState, Group
from moldau.groups.rules.members import Member
from moldau.groups.rules.outcome import GroupTurn


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
