"""The groups of one partition of the offsets topic: the machine behind a coordinator's shard.

`handle` takes an event and tells what is to be done; `apply` takes a record that was logged and is
the only way to hard state. Loading a shard is `apply` in a loop, then `begin`. The shell around it
owns the log, the timers and the connections.

A group id leads to one group, classic, a consumer group (KIP-848), a streams group (KIP-1071) or a
share group (KIP-932), and its kind decides who handles the event. A classic group without members
becomes a consumer group or a streams group when somebody comes who speaks that, and either of
them a classic one again; its committed offsets stay. A share group stays one until it is deleted. A
rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias, TypeVar

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules import (
    classic_consumers,
    commits,
    consumer_membership,
    share_group,
    streams_membership,
)
from moldau.coordinators.groups.rules import classic_membership as membership
from moldau.coordinators.groups.rules import share_group as share_membership
from moldau.coordinators.groups.rules import streams_membership as streams_targets
from moldau.coordinators.groups.rules.classic_group import ClassicGroup as Group
from moldau.coordinators.groups.rules.classic_group import ClassicGroupState
from moldau.coordinators.groups.rules.classic_membership import Joining
from moldau.coordinators.groups.rules.commits import OffsetGroup
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.consumer_records import ConsumerGroupRecord, GroupEpochRecord
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    UNKNOWN_MEMBER,
    Abandon,
    AlterShareOffsets,
    AppendFailed,
    CodeAnswer,
    CommitOffsets,
    CommitTransactionOffsets,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
    DeleteGroup,
    DeleteOffsets,
    DeleteStates,
    DeleteTopics,
    ExpireOffsets,
    GroupEvent,
    GroupTimer,
    GroupTimerKind,
    Heartbeat,
    Join,
    JoinAnswer,
    Leave,
    ListedGroup,
    PartitionsAnswer,
    ShareHeartbeat,
    StatesDeleted,
    StatesInitialized,
    StateTopicsAnswer,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
    Sync,
    TasksAssigned,
    TimerFired,
)
from moldau.coordinators.groups.rules.migration import become_consumer_group, find_upgrade_fault
from moldau.coordinators.groups.rules.outcome import GroupLimits, GroupTurn, Outcome
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    TransactionEnd,
)
from moldau.coordinators.groups.rules.share_group import EndedShareGroups, ShareGroup
from moldau.coordinators.groups.rules.share_records import (
    SHARE_RECORDS,
    ShareEpochRecord,
    ShareGroupRecord,
)
from moldau.coordinators.groups.rules.streams_group import StreamsGroup
from moldau.coordinators.groups.rules.streams_records import (
    STREAMS_RECORDS,
    StreamsEpochRecord,
    StreamsGroupRecord,
)
from moldau.errors import ErrorCode

NO_REQUEST = -1
"""For events that nobody waits for."""

AnyGroup: TypeAlias = OffsetGroup | ShareGroup

_NO_TOPICS = MetadataImage(cluster_id="")

_Made = TypeVar("_Made", ConsumerGroup, StreamsGroup)


class Groups:
    """All groups of a shard, by their ids."""

    def __init__(self, limits: GroupLimits) -> None:
        self.limits = limits  # replaced when the broker's options change
        self._groups: dict[str, AnyGroup] = {}
        # Whose offsets are pending in the transaction of each producer; some may have none left.
        self._in_transactions: dict[int, set[str]] = {}
        # The share or streams group that the last event has begun; it is there when its records are
        # applied.
        self._newcomer: ShareGroup | StreamsGroup | None = None
        self._ended_share_groups = EndedShareGroups()

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[AnyGroup]:
        return iter(tuple(self._groups.values()))

    def find(self, group_id: str) -> AnyGroup | None:
        return self._groups.get(group_id)

    # Hard state

    def apply(self, record: CoordinatorRecord) -> None:
        """Take a record that is in the log; live and at loading."""
        if isinstance(
            record, OffsetRecord
        ):  # nearly all are, and a commit may be thousands of them
            self._apply_offset(*record)
            return
        match record:
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
                self._apply_to_share_group(record)
            case StreamsEpochRecord(group_id, None):
                self._apply_end(group_id, StreamsGroup)
            case _ if isinstance(record, STREAMS_RECORDS):
                self._apply_to_streams_group(record)
            case GroupEpochRecord(group_id, None):
                self._apply_end(group_id, ConsumerGroup)
            case _:
                self._apply_to_consumer_group(record)

    def _apply_to_share_group(self, record: ShareGroupRecord) -> None:
        group = self._groups.get(record.group_id)
        if isinstance(record, ShareEpochRecord) and record.value is None:
            if isinstance(group, ShareGroup):
                del self._groups[record.group_id]
                self._ended_share_groups.add(group)
                group.end()
            return
        if not isinstance(group, ShareGroup):
            if record[-1] is None:
                return  # compaction has kept it, and nothing that it is about
            newcomer, self._newcomer = self._newcomer, None
            if not isinstance(newcomer, ShareGroup) or newcomer.group_id != record.group_id:
                newcomer = ShareGroup(record.group_id)
            group = self._groups[record.group_id] = newcomer
        group.apply(record)

    def _find_with_offsets(self, group_id: str) -> OffsetGroup | None:
        group = self._groups.get(group_id)
        return None if isinstance(group, ShareGroup) else group

    def _apply_to_consumer_group(self, record: ConsumerGroupRecord) -> None:
        group = self._find_with_offsets(record.group_id)
        if not isinstance(group, ConsumerGroup):
            if record[-1] is None:
                return  # compaction has kept it, and nothing that it is about
            group = self._take_place_of(group, ConsumerGroup(record.group_id))
        group.apply(record)

    def _apply_to_streams_group(self, record: StreamsGroupRecord) -> None:
        group = self._find_with_offsets(record.group_id)
        if not isinstance(group, StreamsGroup):
            if record[-1] is None:
                return  # compaction has kept it, and nothing that it is about
            newcomer, self._newcomer = self._newcomer, None
            if not isinstance(newcomer, StreamsGroup) or newcomer.group_id != record.group_id:
                newcomer = StreamsGroup(record.group_id)
            group = self._take_place_of(group, newcomer)
        group.apply(record)

    def _take_place_of(self, former: OffsetGroup | None, made: _Made) -> _Made:
        """The group of this id is of another kind from now on."""
        if former is not None:
            made.take_offsets(former)
            former.end()
        self._groups[made.group_id] = made
        return made

    def _apply_offset(
        self, group_id: str, topic: str, partition: int, committed: CommittedOffset | None
    ) -> None:
        group = self._find_with_offsets(group_id)
        if group is None:
            if committed is None:
                return
            group = self._find_or_make_classic(group_id)
        group.offsets.apply(topic, partition, committed)
        if committed is None:
            group.pending_offsets.discard(topic, partition)
            self._drop_if_vacant(group)
        elif group.pending_offsets:
            group.pending_offsets.supersede(topic, partition)

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

    def start_timers(self, image: MetadataImage = _NO_TOPICS) -> Outcome:
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
            if isinstance(group, StreamsGroup):
                streams_membership.await_signs_of_life(group, limits, outcome)
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
            _handle_share(group, event, turn)
        elif group is None and _begins_share_group(event):
            former_epoch = self._ended_share_groups.last_epoch(event.group_id)
            self._newcomer = ShareGroup(event.group_id, former_epoch)
            _handle_share(self._newcomer, event, turn)
        else:
            self._handle(group, event, turn)
        return turn.outcome

    def _handle(self, group: OffsetGroup | None, event: GroupEvent, turn: GroupTurn) -> None:
        match event:
            case ConsumerHeartbeat():
                self._beat(group, event, turn)
            case StreamsHeartbeat():
                self._beat_streams(group, event, turn)
            case Join():
                self._join(group, event, turn)
            case CommitOffsets() | CommitTransactionOffsets() | DeleteOffsets():
                commits.handle_commit(group, event, turn)
            case _ if group is None:
                _answer_without_group(event, turn)
            case _ if isinstance(group, ConsumerGroup):
                _handle_consumers(group, event, turn)
            case _ if isinstance(group, StreamsGroup):
                _handle_streams(group, event, turn)
            case _:
                _handle_classic(group, event, turn)
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
        elif isinstance(group, StreamsGroup):
            turn.answer(
                ConsumerHeartbeatAnswer(
                    error=ErrorCode.group_id_not_found,
                    message=f"group {event.group_id!r} is a streams group, and no consumer group",
                )
            )
        elif group is None or _is_unused(group):
            consumer_membership.heartbeat(ConsumerGroup(event.group_id), event, turn)
            if turn.outcome.records:  # who is refused ends nothing
                turn.outcome.records[:0] = _end_of(group)
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

    def _beat_streams(
        self, group: OffsetGroup | None, event: StreamsHeartbeat, turn: GroupTurn
    ) -> None:
        if isinstance(group, StreamsGroup):
            _handle_streams(group, event, turn)
        elif isinstance(group, ConsumerGroup):
            _refuse_streams_member(event, "is a consumer group", turn)
        elif group is not None and not _is_unused(group):
            _refuse_streams_member(event, "is a classic group", turn)
        elif event.epoch != JOINING_EPOCH:
            _refuse_streams_member(event, "is not there", turn)
        elif not streams_membership.refuse_if_invalid(event, turn):
            self._newcomer = StreamsGroup(event.group_id)
            streams_membership.heartbeat(self._newcomer, event, turn)
            if turn.outcome.records:
                turn.outcome.records[:0] = _end_of(group)

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
        elif isinstance(group, StreamsGroup) and group.members:
            error = ErrorCode.inconsistent_group_protocol
        elif group is None and event.member_id != UNKNOWN_MEMBER:
            error = ErrorCode.unknown_member_id
        if error is not None:
            turn.answer(JoinAnswer(error=error, member_id=event.member_id))
            return
        if isinstance(group, ConsumerGroup | StreamsGroup):
            turn.outcome.records += group.end_records()
        joined = self._find_or_make_classic(event.group_id)
        Joining(joined, event, turn).run()
        if not turn.outcome.records:
            self._drop_if_vacant(joined)

    # Questions

    def is_initializing(self, group_id: str) -> bool:
        group = self._groups.get(group_id)
        return isinstance(group, ShareGroup) and bool(group.initializing_now)

    def listed(self) -> list[ListedGroup]:
        return [group.listed() for group in self._groups.values()]


def _is_unused(group: Group) -> bool:
    return group.state is ClassicGroupState.EMPTY and not group.pending


def _end_of(group: Group | None) -> list[GroupRecord]:
    """What ends an unused classic group, when somebody comes who speaks another protocol."""
    if group is None or group.stored is None:
        return []
    return [GroupRecord(group.group_id, None)]


def _begins_share_group(event: GroupEvent) -> bool:
    """A member that joins does, and an administrator who says where a group is to begin."""
    match event:
        case ShareHeartbeat():
            return event.epoch == JOINING_EPOCH
        case AlterShareOffsets():
            return bool(event.states)
        case _:
            return False


def _answer_without_group(event: GroupEvent, turn: GroupTurn) -> None:
    """Nobody is a member of a group that is not there."""
    match event:
        case Sync() | Heartbeat() | Leave():
            membership.refuse_stranger(event, turn)
        case DeleteGroup():
            turn.answer(CodeAnswer(error=ErrorCode.group_id_not_found))
        case _:  # also what came too late for a group that has gone
            _refuse_without(event, "is not there", turn)


def _handle_classic(group: Group, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case Sync():
            membership.sync(group, event, turn)
        case Heartbeat():
            membership.heartbeat(group, event, turn)
        case Leave():
            membership.leave(group, event, turn)
        case Abandon():
            membership.abandon(group, event, turn.outcome)
        case TimerFired(timer=timer):
            _classic_time_is_over(group, timer, turn)
        case AppendFailed() if group.state is not ClassicGroupState.EMPTY:
            group.start_over(turn)
        case DeleteGroup():
            _delete_classic(group, turn)
        case ExpireOffsets():
            _expire_classic(group, turn)
        case DeleteTopics(topics=topics):
            commits.forget_topics(group, topics, turn)
        case _:
            _refuse_without(event, "is a classic group", turn)


def _classic_time_is_over(group: Group, timer: GroupTimer, turn: GroupTurn) -> None:
    match timer.kind:
        case GroupTimerKind.JOIN:
            group.join_time_is_over(turn)
        case GroupTimerKind.SYNC:
            membership.sync_time_is_over(group, turn)
        case GroupTimerKind.SESSION:
            membership.session_is_over(group, timer.member_id, turn)


def _expire_classic(group: Group, turn: GroupTurn) -> None:
    is_bare = commits.expire(group, turn)
    if is_bare and group.state is ClassicGroupState.EMPTY and not group.pending:
        turn.outcome.records.append(GroupRecord(group.group_id, None))


def _delete_classic(group: Group, turn: GroupTurn) -> None:
    if group.state is not ClassicGroupState.EMPTY:
        turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        return
    for member_id in sorted(group.pending):
        turn.outcome.disarm(group.session_timer(member_id))
    commits.forget_all(group, turn.outcome)
    turn.outcome.records.append(GroupRecord(group.group_id, None))
    turn.answer(CodeAnswer())


def _handle_consumers(group: ConsumerGroup, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case TimerFired(timer=timer):
            _consumer_time_is_over(group, timer, turn)
        case Sync() | Heartbeat() | Leave():
            classic_consumers.handle(group, event, turn)
        case AppendFailed():
            # Who was about to go, or to come, is as before: nobody is waited for without an end.
            # Members of the classic protocol are told again, and their time begins then.
            group.told_to_join.clear()
            group.resolved = None
            consumer_membership.await_signs_of_life(group, turn.limits, turn.outcome)
        case DeleteGroup() if group.subscriptions:
            turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        case DeleteGroup():
            commits.forget_all(group, turn.outcome)
            turn.outcome.records += group.end_records()
            turn.answer(CodeAnswer())
        case ExpireOffsets():
            if commits.expire(group, turn) and not group.subscriptions:
                turn.outcome.records += group.end_records()
        case DeleteTopics(topics=topics):
            commits.forget_topics(group, topics, turn)
        case _:  # nobody waits here for others
            _refuse_without(event, "is a consumer group", turn)


def _consumer_time_is_over(group: ConsumerGroup, timer: GroupTimer, turn: GroupTurn) -> None:
    match timer.kind:
        case GroupTimerKind.SESSION:
            consumer_membership.session_is_over(group, timer.member_id, turn)
        case GroupTimerKind.REVOCATION:
            consumer_membership.revocation_time_is_over(group, timer.member_id, turn)
        case GroupTimerKind.JOIN:
            classic_consumers.join_time_is_over(group, timer.member_id, turn)
        case GroupTimerKind.SYNC:
            classic_consumers.sync_time_is_over(group, timer.member_id, turn)


def _handle_share(group: ShareGroup, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case ShareHeartbeat():
            share_membership.heartbeat_share(group, event, turn)
        case StatesInitialized():
            share_group.states_initialized(group, event, turn)
        case AlterShareOffsets():
            share_group.alter_offsets(group, event, turn)
        case DeleteStates():
            share_group.delete_states(group, event, turn)
        case StatesDeleted():
            share_group.states_deleted(group, event, turn)
        case TimerFired(timer=timer):
            share_membership.share_session_is_over(group, timer.member_id, turn)
        case AppendFailed():
            # As before: nobody is waited for without an end, and nobody was asked for anything.
            group.initializing_now.clear()
            group.deleting_now.clear()
            share_membership.await_signs_of_life(group, turn.limits, turn.outcome)
        case DeleteGroup():
            _delete_share(group, turn)
        case DeleteTopics():
            share_group.forget_topics(group, turn.image, turn)
        case _:
            _refuse_others(event, turn)


def _delete_share(group: ShareGroup, turn: GroupTurn) -> None:
    """Its states are deleted before (`DeleteStates`), so that none is left behind (SHG-3)."""
    if group.subscriptions or group.state_topics.everything:
        turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        return
    turn.outcome.records += group.end_records()
    turn.answer(CodeAnswer())


def _refuse_others(event: GroupEvent, turn: GroupTurn) -> None:
    """Kafka's codes for a group of another kind."""
    not_found = ErrorCode.group_id_not_found
    match event:
        case ConsumerHeartbeat():
            message = f"group {event.group_id!r} is a share group, and no consumer group"
            turn.answer(ConsumerHeartbeatAnswer(error=not_found, message=message))
        case StreamsHeartbeat():
            message = f"group {event.group_id!r} is a share group, and no streams group"
            turn.answer(StreamsHeartbeatAnswer(error=not_found, message=message))
        case Join():
            turn.answer(
                JoinAnswer(error=ErrorCode.inconsistent_group_protocol, member_id=event.member_id)
            )
        case Sync() | Heartbeat() | Leave():
            membership.refuse_stranger(event, turn)
        case CommitOffsets() | CommitTransactionOffsets() | DeleteOffsets():
            turn.answer(PartitionsAnswer(error=not_found))
        case _:
            pass  # offsets that expire, requests that were given up: there are none here


def _refuse_without(event: GroupEvent, what: str, turn: GroupTurn) -> None:
    """There is no share group of this id; `what` says what the group is instead."""
    not_found = ErrorCode.group_id_not_found
    match event:
        case ShareHeartbeat() if not share_membership.refuse_if_invalid_share(event, turn):
            message = f"group {event.group_id!r} {what}"
            turn.answer(ConsumerHeartbeatAnswer(error=not_found, message=message))
        case AlterShareOffsets() | DeleteStates():
            turn.answer(StateTopicsAnswer(error=not_found))
        case StatesInitialized() | StatesDeleted():
            turn.answer(CodeAnswer(error=not_found))
        case _:
            pass


def _handle_streams(group: StreamsGroup, event: GroupEvent, turn: GroupTurn) -> None:
    match event:
        case StreamsHeartbeat():
            streams_membership.heartbeat(group, event, turn)
        case TimerFired(timer=timer):
            streams_membership.time_is_over(group, timer.kind, timer.member_id, turn)
        case TasksAssigned():
            streams_targets.tasks_assigned(group, event, turn)
        case Sync() | Heartbeat() | Leave():
            membership.refuse_stranger(event, turn)
        case AppendFailed():
            # Who was about to go, or to come, is as before: nobody is waited for without an end,
            # and nobody was asked to assign tasks.
            group.is_assigning = False
            streams_membership.await_signs_of_life(group, turn.limits, turn.outcome)
        case DeleteGroup():
            _delete_streams(group, turn)
        case ExpireOffsets():
            if commits.expire(group, turn) and not group.members:
                turn.outcome.records += group.end_records()
        case DeleteTopics(topics=topics):
            commits.forget_topics(group, topics, turn)
        case _:  # nobody waits here for others
            _refuse_without(event, "is a streams group", turn)


def _delete_streams(group: StreamsGroup, turn: GroupTurn) -> None:
    if group.members:
        turn.answer(CodeAnswer(error=ErrorCode.non_empty_group))
        return
    commits.forget_all(group, turn.outcome)
    turn.outcome.records += group.end_records()
    turn.answer(CodeAnswer())


def _refuse_streams_member(event: StreamsHeartbeat, what: str, turn: GroupTurn) -> None:
    """There is no streams group of this id; `what` says what the group is instead."""
    if not streams_membership.refuse_if_invalid(event, turn):
        turn.answer(
            StreamsHeartbeatAnswer(
                error=ErrorCode.group_id_not_found, message=f"group {event.group_id!r} {what}"
            )
        )
