"""The groups of one partition of the offsets topic: the machine behind a coordinator's shard.

`handle` takes an event and tells what is to be done; `apply` takes a record that was logged and is
the only way to hard state. Loading a shard is `apply` in a loop, then `begin`. The shell around it
owns the log, the timers and the connections.

Other kinds of groups (KIP-848, share groups) will find their place here: a group id leads to one
group, and what kind it is decides who handles the event. A rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from moldau.errors import ErrorCode
from moldau.groups.rules import commits, membership
from moldau.groups.rules.answers import (
    CodeAnswer,
    DescribedGroup,
    JoinAnswer,
    LeaveAnswer,
    LeftMember,
    ListedGroup,
    SyncAnswer,
)
from moldau.groups.rules.events import (
    UNKNOWN_MEMBER,
    Abandon,
    AppendFailed,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteTopics,
    ExpireOffsets,
    GroupEvent,
    GroupTimer,
    GroupTimerKind,
    Heartbeat,
    Join,
    Leave,
    Sync,
    TimerFired,
)
from moldau.groups.rules.expiry import find_expired
from moldau.groups.rules.group import Group
from moldau.groups.rules.group_states import ClassicGroupState
from moldau.groups.rules.joining import Joining
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.outcome import GroupTurn, Outcome
from moldau.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
)

NO_REQUEST = -1
"""For events that nobody waits for."""


class Groups:
    """All groups of a shard, by their ids."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits  # replaced when the broker's options change
        self._groups: dict[str, Group] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        return iter(tuple(self._groups.values()))

    def find(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    # Hard state

    def apply(self, record: CoordinatorRecord) -> None:
        """Take a record that is in the log; live and at loading."""
        match record:
            case OffsetRecord(group_id, topic, partition, committed):
                self._apply_offset(group_id, topic, partition, committed)
            case GroupRecord(group_id, metadata):
                if metadata is None:
                    self._apply_end(group_id)
                else:
                    self._find_or_make(group_id).apply(metadata)

    def _apply_offset(
        self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None
    ) -> None:
        group = self._groups.get(group_id)
        if group is None:
            if committed is None:
                return
            group = self._find_or_make(group_id)
        group.offsets.apply(topic, partition, committed)
        self._drop_if_vacant(group)

    def _apply_end(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is None:
            return
        if group.offsets:
            # Compaction has kept them and not the tombstones that belong to them, or somebody
            # committed without being a member: they stand for themselves.
            ended, group = group, Group(group_id)
            group.offsets = ended.offsets
            self._groups[group_id] = group
            ended.state = ClassicGroupState.DEAD
            return
        group.state = ClassicGroupState.DEAD
        del self._groups[group_id]

    def _find_or_make(self, group_id: str) -> Group:
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id)
        return group

    def _drop_if_vacant(self, group: Group) -> None:
        if group.is_vacant:
            group.state = ClassicGroupState.DEAD
            self._groups.pop(group.group_id, None)

    def begin(self) -> Outcome:
        """The log has been applied: from now on members have to give signs of life."""
        outcome = Outcome()
        for group in self._groups.values():
            for member in group.members:
                group.await_sign_of_life(member, outcome)
        return outcome

    # Events

    def handle(self, event: GroupEvent, now_ms: int, request: int = NO_REQUEST) -> Outcome:
        """What an event leads to. A request gets one reply, here or in a later outcome."""
        turn = GroupTurn(request, now_ms, self.limits)
        group = self._groups.get(event.group_id)
        match event:
            case Join():
                self._join(event, turn)
            case CommitOffsets():
                commits.commit(group, event, turn)
            case DeleteOffsets():
                commits.delete_offsets(group, event, turn)
            case _ if group is None:
                _answer_without_group(event, turn)
            case Sync() | Heartbeat() | Leave() | Abandon():
                _handle_of_member(group, event, turn)
            case _:
                self._handle_of_group(group, event, turn)
        if group is not None and not turn.outcome.records:
            self._drop_if_vacant(group)
        return turn.outcome

    def _join(self, event: Join, turn: GroupTurn) -> None:
        limits = self.limits
        error = None
        if not event.group_id:
            error = ErrorCode.invalid_group_id
        elif not (
            limits.min_session_timeout_ms
            <= event.session_timeout_ms
            <= limits.max_session_timeout_ms
        ):
            error = ErrorCode.invalid_session_timeout
        elif sum(len(one.metadata) for one in event.protocols) > limits.member_metadata_max_bytes:
            error = ErrorCode.unknown_server_error  # as when the record turns out to be too large
        elif event.group_id not in self._groups and event.member_id != UNKNOWN_MEMBER:
            error = ErrorCode.unknown_member_id
        if error is not None:
            turn.answer(JoinAnswer(error=error, member_id=event.member_id))
            return
        group = self._find_or_make(event.group_id)
        Joining(group, event, turn).run()
        if not turn.outcome.records:
            self._drop_if_vacant(group)

    def _handle_of_group(
        self,
        group: Group,
        event: TimerFired | AppendFailed | DeleteGroup | ExpireOffsets | DeleteTopics,
        turn: GroupTurn,
    ) -> None:
        match event:
            case TimerFired():
                _time_is_over(group, event.timer, turn)
            case AppendFailed():
                if group.state is not ClassicGroupState.EMPTY:
                    group.start_over(turn)
            case DeleteGroup():
                _delete(group, turn)
            case ExpireOffsets():
                _expire(group, turn)
            case DeleteTopics(topics=topics):
                _forget(group, [(t, p) for t, p, _ in group.offsets if t in topics], turn.outcome)

    # Questions

    def describe(self, group_id: str) -> DescribedGroup | None:
        group = self._groups.get(group_id)
        return None if group is None else group.describe()

    def listed(self) -> list[ListedGroup]:
        return [group.listed() for group in self._groups.values()]


def _handle_of_member(
    group: Group, event: Sync | Heartbeat | Leave | Abandon, turn: GroupTurn
) -> None:
    match event:
        case Sync():
            membership.sync(group, event, turn)
        case Heartbeat():
            membership.heartbeat(group, event, turn)
        case Leave():
            membership.leave(group, event, turn)
        case Abandon():
            membership.abandon(group, event, turn.outcome)


def _answer_without_group(event: GroupEvent, turn: GroupTurn) -> None:
    """Nobody is a member of a group that is not there."""
    unknown = ErrorCode.unknown_member_id
    match event:
        case Sync():
            turn.answer(SyncAnswer(error=unknown))
        case Heartbeat():
            turn.answer(CodeAnswer(error=unknown))
        case Leave(members=members):
            left = tuple(LeftMember(one.member_id, one.instance_id, unknown) for one in members)
            turn.answer(LeaveAnswer(members=left))
        case DeleteGroup():
            turn.answer(CodeAnswer(error=ErrorCode.group_id_not_found))
        case _:
            pass  # what came too late for a group that has gone


def _time_is_over(group: Group, timer: GroupTimer, turn: GroupTurn) -> None:
    match timer.kind:
        case GroupTimerKind.JOIN:
            group.join_time_is_over(turn)
        case GroupTimerKind.SYNC:
            membership.sync_time_is_over(group, turn)
        case GroupTimerKind.SESSION:
            membership.session_is_over(group, timer.member_id, turn)


def _delete(group: Group, turn: GroupTurn) -> None:
    if group.state is not ClassicGroupState.EMPTY:
        turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        return
    for member_id in sorted(group.pending):
        turn.outcome.disarm(group.session_timer(member_id))
    _forget(group, [(topic, partition) for topic, partition, _ in group.offsets], turn.outcome)
    turn.outcome.records.append(GroupRecord(group.group_id, None))
    turn.answer(CodeAnswer())


def _expire(group: Group, turn: GroupTurn) -> None:
    expired = find_expired(group, turn.limits.offsets_retention_ms, turn.now_ms)
    _forget(group, expired, turn.outcome)
    is_unused = group.state is ClassicGroupState.EMPTY and not group.pending
    if is_unused and len(expired) == sum(1 for _ in group.offsets):
        turn.outcome.records.append(GroupRecord(group.group_id, None))


def _forget(group: Group, partitions: list[tuple[str, int]], outcome: Outcome) -> None:
    for topic, partition in partitions:
        outcome.records.append(OffsetRecord(group.group_id, topic, partition, None))
