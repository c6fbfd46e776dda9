"""OffsetCommit, TxnOffsetCommit and OffsetDelete: who may change the offsets of a group. A rule.

A member commits in its own generation. Somebody who is no member (a consumer with assigned
partitions, an administrator who resets offsets) commits without a generation, and only while
nobody is in the group. A producer commits in a transaction for a member, in its generation; older
ones do not say for whom, and may always.
"""

from __future__ import annotations

from moldau.errors import ErrorCode, StaleMemberEpochError, UnknownMemberError
from moldau.groups.rules.answers import PartitionsAnswer
from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.events import CommitOffsets, CommitTransactionOffsets, DeleteOffsets
from moldau.groups.rules.group import Group
from moldau.groups.rules.group_states import ClassicGroupState
from moldau.groups.rules.membership import find_member_fault
from moldau.groups.rules.outcome import GroupTurn, OffsetsTransaction, Outcome
from moldau.groups.rules.records import CommittedOffset, OffsetRecord, PendingOffsetRecord
from moldau.groups.rules.subscription import CONSUMER_PROTOCOL_TYPE

_NONE = ErrorCode.none


def commit(group: Group | ConsumerGroup | None, event: CommitOffsets, turn: GroupTurn) -> None:
    error = _find_commit_fault(group, event)
    if error is not None:
        turn.answer(PartitionsAnswer(error=error))
        return
    if isinstance(group, Group):
        _note_sign_of_life(group, event, turn.outcome)
    errors = []
    for topic, partition, committed in event.offsets:
        errors.append(_find_offset_fault(committed, turn))
        if errors[-1] is _NONE:
            turn.outcome.records.append(OffsetRecord(event.group_id, topic, partition, committed))
    turn.answer(PartitionsAnswer(errors=tuple(errors)))


def commit_in_transaction(
    group: Group | ConsumerGroup | None, event: CommitTransactionOffsets, turn: GroupTurn
) -> None:
    error = _find_transaction_fault(group, event)
    if error is not None:
        turn.answer(PartitionsAnswer(error=error))
        return
    producer_id, group_id = event.producer_id, event.group_id
    outcome = turn.outcome
    errors = []
    for topic, partition, committed in event.offsets:
        errors.append(_find_offset_fault(committed, turn))
        if errors[-1] is _NONE:
            pending = PendingOffsetRecord(producer_id, group_id, topic, partition, committed)
            outcome.records.append(pending)
    outcome.transaction = OffsetsTransaction(producer_id, event.producer_epoch, event.verification)
    turn.answer(PartitionsAnswer(errors=tuple(errors)))


def _find_transaction_fault(
    group: Group | ConsumerGroup | None, event: CommitTransactionOffsets
) -> ErrorCode | None:
    """As Kafka: a member that is about to be told what it reads may still commit what it has."""
    if group is None:
        return None if event.generation < 0 else ErrorCode.illegal_generation
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        return None
    if isinstance(group, ConsumerGroup):
        fault = find_epoch_fault(group, event.member_id, event.generation)
        is_stale = fault is ErrorCode.stale_member_epoch  # which these clients do not know
        return ErrorCode.illegal_generation if is_stale else fault
    if event.generation < 0 and group.state is ClassicGroupState.EMPTY:
        return None
    fault = find_member_fault(group, event.member_id, event.instance_id)
    if fault is None and event.generation != group.generation:
        fault = ErrorCode.illegal_generation
    return fault


def _find_offset_fault(committed: CommittedOffset, turn: GroupTurn) -> ErrorCode:
    if _utf16_length(committed.metadata) > turn.limits.offset_metadata_max_bytes:
        return ErrorCode.offset_metadata_too_large
    return _NONE


def _find_commit_fault(
    group: Group | ConsumerGroup | None, event: CommitOffsets
) -> ErrorCode | None:
    if isinstance(group, ConsumerGroup):
        return find_epoch_fault(group, event.member_id, event.generation)
    if group is None:
        if event.generation < 0:
            return None  # a group of offsets only; the first commit makes it
        if event.unknown_group_is_known:
            return ErrorCode.group_id_not_found
        return ErrorCode.illegal_generation
    if event.generation < 0 and group.state is ClassicGroupState.EMPTY:
        return None
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        return ErrorCode.unknown_member_id  # it is no member, and the group has some
    fault = find_member_fault(group, event.member_id, event.instance_id)
    if fault is not None:
        return fault
    if event.generation != group.generation:
        return ErrorCode.illegal_generation
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        # Its generation has begun, but it cannot know yet what it has been given to read.
        return ErrorCode.rebalance_in_progress
    return None


def find_epoch_fault(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode | None:
    """Why somebody may not commit or look up offsets of a consumer group."""
    if epoch < 0 and not group.subscriptions:
        return None  # an administrator, while nobody is in it
    if member_id not in group.subscriptions:
        return ErrorCode.unknown_member_id
    if epoch != group.assignment_of(member_id).epoch:
        is_classic = group.subscriptions[member_id].classic is not None
        return ErrorCode.illegal_generation if is_classic else ErrorCode.stale_member_epoch
    return None


def check_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> None:
    """Raise why a member may not look up offsets."""
    match find_epoch_fault(group, member_id, epoch):
        case ErrorCode.unknown_member_id:
            raise UnknownMemberError(f"{member_id!r} is no member of {group.group_id!r}")
        case ErrorCode.stale_member_epoch:
            raise StaleMemberEpochError(f"{member_id} is not in epoch {epoch} of the group")
        case _:
            pass


def _note_sign_of_life(group: Group, event: CommitOffsets, outcome: Outcome) -> None:
    member = group.members.find(event.member_id)
    if member is not None:
        group.await_sign_of_life(member, outcome)


def _utf16_length(text: str) -> int:
    """Kafka's limit counts Java's characters, whatever its name says."""
    return len(text) if text.isascii() else len(text.encode("utf-16-be", "surrogatepass")) // 2


def delete_offsets(
    group: Group | ConsumerGroup | None, event: DeleteOffsets, turn: GroupTurn
) -> None:
    if group is None:
        turn.answer(PartitionsAnswer(error=ErrorCode.group_id_not_found))
        return
    is_opaque = isinstance(group, Group) and group.protocol_type != CONSUMER_PROTOCOL_TYPE
    if is_opaque and group.state is not ClassicGroupState.EMPTY:
        # Whose topics are not known: any of them may be in use.
        turn.answer(PartitionsAnswer(error=ErrorCode.non_empty_group))
        return
    errors = []
    for topic, partition in event.partitions:
        if group.is_subscribed_to(topic):
            errors.append(ErrorCode.group_subscribed_to_topic)
            continue
        errors.append(_NONE)
        is_pending = group.pending_offsets.holds(topic, partition)
        if is_pending or group.offsets.find(topic, partition) is not None:
            turn.outcome.records.append(OffsetRecord(event.group_id, topic, partition, None))
    turn.answer(PartitionsAnswer(errors=tuple(errors)))
