"""The groups of one partition of the offsets topic: the machine behind a coordinator's shard.

`handle` takes an event and tells what is to be done; `apply` takes a record that was logged and is
the only way to hard state. Loading a shard is `apply` in a loop, then `begin`. The shell around it
owns the log, the timers and the connections.

A group id leads to one group, classic, a consumer group (KIP-848) or a share group (KIP-932), and
what kind it is decides who handles the event. A classic or consumer group without members becomes
one of the other kind when somebody comes who speaks that; its committed offsets stay. A share group
stays one until it is deleted. A rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode
from moldau.groups.rules import (
    classic_consumers,
    commits,
    consumer_membership,
    membership,
    share_group_events,
    share_membership,
)
from moldau.groups.rules.answers import (
    CodeAnswer,
    ConsumerHeartbeatAnswer,
    DescribedConsumerGroup,
    DescribedGroup,
    JoinAnswer,
    LeaveAnswer,
    LeftMember,
    ListedGroup,
    SyncAnswer,
)
from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.consumer_group_records import ConsumerGroupRecord, GroupEpochRecord
from moldau.groups.rules.consumer_group_views import (
    describe_consumer_group,
    list_consumer_group,
)
from moldau.groups.rules.events import (
    JOINING_EPOCH,
    UNKNOWN_MEMBER,
    Abandon,
    AppendFailed,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
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
    ShareHeartbeat,
    Sync,
    TimerFired,
)
from moldau.groups.rules.expiry import find_expired
from moldau.groups.rules.group import Group
from moldau.groups.rules.group_states import ClassicGroupState
from moldau.groups.rules.joining import Joining
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.outcome import GroupTurn, Outcome
from moldau.groups.rules.protocol_change import become_consumer_group, find_upgrade_fault
from moldau.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    TransactionEnd,
)
from moldau.groups.rules.share_group import ShareGroup
from moldau.groups.rules.share_group_records import (
    SHARE_RECORDS,
    ShareEpochRecord,
    ShareGroupRecord,
    StateTopics,
)
from moldau.groups.rules.share_group_views import describe_share_group, list_share_group

NO_REQUEST = -1
"""For events that nobody waits for."""

OffsetGroup: TypeAlias = Group | ConsumerGroup
AnyGroup: TypeAlias = OffsetGroup | ShareGroup

_NO_TOPICS = MetadataImage(cluster_id="")


class Groups:
    """All groups of a shard, by their ids."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits  # replaced when the broker's options change
        self._groups: dict[str, AnyGroup] = {}
        # Whose offsets are pending in the transaction of each producer; some may have none left.
        self._in_transactions: dict[int, set[str]] = {}
        # The share group that the last event has begun; it is there when its records are applied.
        self._newcomer: ShareGroup | None = None

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(tuple(self._groups.values()))

    def find(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    # Hard state

    def apply(self, record: CoordinatorRecord) -> None:
        """Take a record that is in the log; live and at loading."""
        match record:
            case OffsetRecord(group_id, topic, partition, committed):
                self._apply_offset(group_id, topic, partition, committed)
            case PendingOffsetRecord(producer_id, group_id, topic, partition, committed):
                group = self._find_with_offsets(group_id) or self._find_or_make_classic(group_id)
                group.pending_offsets.add(producer_id, topic, partition, committed)
                self._in_transactions.setdefault(producer_id, set()).add(group_id)
            case TransactionEnd(producer_id, is_commit):
                self._end_transaction(producer_id, is_commit)
            case GroupRecord(group_id, metadata):
                if metadata is None:
                    self._apply_end(group_id, Group)
                else:
                    self._find_or_make_classic(group_id).apply(metadata)
            case _ if isinstance(record, SHARE_RECORDS):
                self._apply_to_takers(record)
            case GroupEpochRecord(group_id, None):
                self._apply_end(group_id, ConsumerGroup)
            case _:
                self._apply_to_consumers(record)

    def _apply_to_takers(self, record: ShareGroupRecord) -> None:
        group = self._groups.get(record.group_id)
        if isinstance(record, ShareEpochRecord) and record.value is None:
            if isinstance(group, ShareGroup):
                del self._groups[record.group_id]
                group.end()
            return
        if not isinstance(group, ShareGroup):
            if record[-1] is None:
                return  # compaction has kept it, and nothing that it is about
            newcomer, self._newcomer = self._newcomer, None
            if newcomer is None or newcomer.group_id != record.group_id:
                newcomer = ShareGroup(record.group_id)
            group = self._groups[record.group_id] = newcomer
        group.apply(record)

    def _find_with_offsets(self, group_id: str) -> OffsetGroup | None:
        group = self._groups.get(group_id)
        return None if isinstance(group, ShareGroup) else group

    def _apply_to_consumers(self, record: ConsumerGroupRecord) -> None:
        group = self._find_with_offsets(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record[-1] is None:
                return  # compaction has kept it, and nothing that it is about
            made = ConsumerGroup(record.group_id)
            if group is not None:
                made.take_offsets(group)
                group.state = ClassicGroupState.DEAD
            group = self._groups[record.group_id] = made
        group.apply(record)

    def _apply_offset(
        self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None
    ) -> None:
        group = self._find_with_offsets(group_id)
        if group is None:
            if committed is None:
                return
            group = self._find_or_make_classic(group_id)
        group.offsets.apply(topic, partition, committed)
        if group.pending_offsets:
            if committed is None:
                group.pending_offsets.discard(topic, partition)
            else:
                group.pending_offsets.supersede(topic, partition)
        self._drop_if_vacant(group)

    def _end_transaction(self, producer_id: int, is_commit: bool) -> None:
        for group_id in sorted(self._in_transactions.pop(producer_id, ())):
            group = self._find_with_offsets(group_id)
            if group is None:
                continue  # deleted meanwhile
            for decided in group.pending_offsets.end(producer_id, is_commit=is_commit):
                group.offsets.apply(*decided)
            self._drop_if_vacant(group)

    def _apply_end(self, group_id: str, kind: type[OffsetGroup]) -> None:
        group = self._groups.get(group_id)
        if not isinstance(group, kind):
            return  # it has become one of the other kind since, or is gone
        if group.offsets or group.pending_offsets:
            # Compaction has kept them and not the tombstones that belong to them, or somebody
            # committed without being a member: they stand for themselves.
            rest = self._groups[group_id] = Group(group_id)
            rest.take_offsets(group)
        else:
            del self._groups[group_id]
        group.end()

    def _find_or_make_classic(self, group_id: str) -> Group:
        """A consumer group was ended in the log before a classic one has its records there."""
        group = self._groups.get(group_id)
        if not isinstance(group, Group):
            former = self._find_with_offsets(group_id)
            group = self._groups[group_id] = Group(group_id)
            if former is not None:
                group.take_offsets(former)
        return group

    def _drop_if_vacant(self, group: AnyGroup) -> None:
        if group.is_vacant:
            group.end()
            self._groups.pop(group.group_id, None)

    def begin(self, image: MetadataImage = _NO_TOPICS) -> Outcome:
        """The log has been applied: from now on members have to give signs of life."""
        outcome = Outcome()
        for group in self._groups.values():
            limits = self.limits.of_group(image.group_config(group.group_id))
            if isinstance(group, ConsumerGroup):
                consumer_membership.await_signs_of_life(group, limits, outcome)
                continue
            if isinstance(group, ShareGroup):
                share_membership.await_signs_of_life(group, limits, outcome)
                continue
            for member in group.members:
                group.await_sign_of_life(member, outcome)
        return outcome

    # Events

    def handle(
        self,
        event: GroupEvent,
        now_ms: int,
        request: int = NO_REQUEST,
        image: MetadataImage = _NO_TOPICS,
    ) -> Outcome:
        """What an event leads to. A request gets one reply, here or in a later outcome."""
        limits = self.limits.of_group(image.group_config(event.group_id))
        turn = GroupTurn(request, now_ms, limits, image)
        group = self._groups.get(event.group_id)
        if isinstance(group, ShareGroup):
            share_group_events.handle(group, event, turn)
        elif isinstance(event, ShareHeartbeat) and group is None and event.epoch == JOINING_EPOCH:
            self._newcomer = ShareGroup(event.group_id)
            share_group_events.handle(self._newcomer, event, turn)
        else:
            self._handle(group, event, turn)
        return turn.outcome

    def _handle(self, group: OffsetGroup | None, event: GroupEvent, turn: GroupTurn) -> None:
        match event:
            case ConsumerHeartbeat():
                self._beat(group, event, turn)
            case Join():
                self._join(group, event, turn)
            case CommitOffsets():
                commits.commit(group, event, turn)
            case CommitTransactionOffsets():
                commits.commit_in_transaction(group, event, turn)
            case DeleteOffsets():
                commits.delete_offsets(group, event, turn)
            case _ if group is None:
                _answer_without_group(event, turn)
            case _ if isinstance(group, ConsumerGroup):
                _handle_of_consumers(group, event, turn)
            case Sync() | Heartbeat() | Leave() | Abandon():
                _handle_of_member(group, event, turn)
            case _:
                self._handle_of_group(group, event, turn)
        if group is not None and not turn.outcome.records:
            self._drop_if_vacant(group)

    def _beat(self, group: OffsetGroup | None, event: ConsumerHeartbeat, turn: GroupTurn) -> None:
        if isinstance(group, ConsumerGroup):
            consumer_membership.heartbeat(group, event, turn)
        elif event.epoch != JOINING_EPOCH:
            turn.answer(
                ConsumerHeartbeatAnswer(
                    error=ErrorCode.group_id_not_found,
                    message=f"there is no consumer group {event.group_id!r}",
                )
            )
        elif group is None or _is_unused(group):
            if group is not None and group.stored is not None:
                turn.outcome.records.append(GroupRecord(group.group_id, None))
            consumer_membership.heartbeat(ConsumerGroup(event.group_id), event, turn)
        elif (fault := find_upgrade_fault(group, turn.limits)) is not None:
            turn.answer(
                ConsumerHeartbeatAnswer(
                    error=ErrorCode.group_id_not_found,
                    message=f"group {event.group_id!r} has members of the classic protocol: "
                    f"{fault}",
                )
            )
        elif not consumer_membership.refuse_if_invalid(event, turn):
            consumer_membership.heartbeat(become_consumer_group(group, turn), event, turn)

    def _join(self, group: OffsetGroup | None, event: Join, turn: GroupTurn) -> None:
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
        elif isinstance(group, ConsumerGroup) and group.subscriptions:
            classic_consumers.join(group, event, turn)
            return
        elif group is None and event.member_id != UNKNOWN_MEMBER:
            error = ErrorCode.unknown_member_id
        if error is not None:
            turn.answer(JoinAnswer(error=error, member_id=event.member_id))
            return
        if isinstance(group, ConsumerGroup):
            turn.outcome.records += group.end_records()
        joined = self._find_or_make_classic(event.group_id)
        Joining(joined, event, turn).run()
        if not turn.outcome.records:
            self._drop_if_vacant(joined)

    def _handle_of_group(self, group: Group, event: GroupEvent, turn: GroupTurn) -> None:
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
                _forget(group, [one for one in _committed(group) if one[0] in topics], turn.outcome)
            case _:
                _refuse_shares(event, "is a classic group", turn)

    # Questions

    def describe(self, group_id: str) -> DescribedGroup | None:
        group = self._groups.get(group_id)
        return group.describe() if isinstance(group, Group) else None

    def describe_consumers(self, group_id: str) -> DescribedConsumerGroup | None:
        group = self._groups.get(group_id)
        return (
            describe_consumer_group(group, self.limits)
            if isinstance(group, ConsumerGroup)
            else None
        )

    def describe_takers(self, group_id: str) -> DescribedConsumerGroup | None:
        group = self._groups.get(group_id)
        return describe_share_group(group, self.limits) if isinstance(group, ShareGroup) else None

    def find_state_topics(self, group_id: str) -> StateTopics | None:
        """Where a share group has a state; None when there is no such group."""
        group = self._groups.get(group_id)
        return group.state_topics if isinstance(group, ShareGroup) else None

    def is_initializing(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        return isinstance(group, ShareGroup) and bool(group.initializing_now)

    def listed(self) -> list[ListedGroup]:
        return [_list(group) for group in self._groups.values()]


def _list(group: AnyGroup) -> ListedGroup:
    match group:
        case ConsumerGroup():
            return list_consumer_group(group)
        case ShareGroup():
            return list_share_group(group)
        case Group():
            return group.listed()


def _refuse_shares(event: GroupEvent, what: str, turn: GroupTurn) -> None:
    share_group_events.refuse_without(event, f"group {event.group_id!r} {what}", turn)


def _is_unused(group: Group) -> bool:
    return group.state is ClassicGroupState.EMPTY and not group.pending


def _handle_of_consumers(group: ConsumerGroup, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case TimerFired(timer=timer):
            _time_of_consumer_is_over(group, timer, turn)
        case Sync() | Heartbeat() | Leave():
            classic_consumers.handle(group, event, turn)
        case AppendFailed():
            # Who was about to go, or to come, is as before: nobody is waited for without an end.
            consumer_membership.await_signs_of_life(group, turn.limits, turn.outcome)
        case DeleteGroup() if group.subscriptions:
            turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        case DeleteGroup():
            _forget(group, _committed(group), turn.outcome)
            turn.outcome.records += group.end_records()
            turn.answer(CodeAnswer())
        case ExpireOffsets():
            expired = find_expired(group, turn.limits.offsets_retention_ms, turn.now_ms)
            _forget(group, expired, turn.outcome)
            is_unused = not group.subscriptions and not group.pending_offsets
            if is_unused and len(expired) == sum(1 for _ in group.offsets):
                turn.outcome.records += group.end_records()
        case DeleteTopics(topics=topics):
            _forget(group, [one for one in _committed(group) if one[0] in topics], turn.outcome)
        case _:  # nobody waits here for others
            _refuse_shares(event, "is a consumer group", turn)


def _time_of_consumer_is_over(group: ConsumerGroup, timer: GroupTimer, turn: GroupTurn) -> None:
    match timer.kind:
        case GroupTimerKind.SESSION:
            consumer_membership.session_is_over(group, timer.member_id, turn)
        case GroupTimerKind.REVOCATION:
            consumer_membership.revocation_time_is_over(group, timer.member_id, turn)
        case GroupTimerKind.JOIN:
            classic_consumers.join_time_is_over(group, timer.member_id, turn)
        case GroupTimerKind.SYNC:
            classic_consumers.sync_time_is_over(group, timer.member_id, turn)


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
        case _:  # also what came too late for a group that has gone
            _refuse_shares(event, "is not there", turn)


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
    _forget(group, _committed(group), turn.outcome)
    turn.outcome.records.append(GroupRecord(group.group_id, None))
    turn.answer(CodeAnswer())


def _expire(group: Group, turn: GroupTurn) -> None:
    expired = find_expired(group, turn.limits.offsets_retention_ms, turn.now_ms)
    _forget(group, expired, turn.outcome)
    is_unused = (
        group.state is ClassicGroupState.EMPTY and not group.pending and not group.pending_offsets
    )
    if is_unused and len(expired) == sum(1 for _ in group.offsets):
        turn.outcome.records.append(GroupRecord(group.group_id, None))


def _committed(group: OffsetGroup) -> list[tuple[str, int]]:
    """The partitions in which something is committed, or may be by a transaction."""
    decided = [(topic, partition) for topic, partition, _ in group.offsets]
    return list(dict.fromkeys((*decided, *group.pending_offsets)))


def _forget(group: OffsetGroup, partitions: list[tuple[str, int]], outcome: Outcome) -> None:
    for topic, partition in partitions:
        outcome.records.append(OffsetRecord(group.group_id, topic, partition, None))
