"""The committed offsets of a group: who may change them, and when they are forgotten. A rule.

A member commits in its own generation. A member of a consumer group that has not heard of its epoch
yet commits in an older one, in partitions that it has had since (CGR-5). Somebody who is no member
(a consumer with assigned partitions, an administrator who resets offsets) commits without a
generation, and only while nobody is in the group. A producer commits in a transaction for a member,
in its generation; older ones do not say for whom, and may always.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode, StaleMemberEpochError, UnknownMemberError
from moldau.groups.rules.answers import PartitionsAnswer
from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.deleted_topics import is_deleted
from moldau.groups.rules.events import CommitOffsets, CommitTransactionOffsets, DeleteOffsets
from moldau.groups.rules.expiry import find_expired
from moldau.groups.rules.group import ClassicGroupState, Group
from moldau.groups.rules.offset_group import OffsetGroup
from moldau.groups.rules.outcome import GroupTurn, OffsetsTransaction, Outcome
from moldau.groups.rules.records import CommittedOffset, OffsetRecord, PendingOffsetRecord
from moldau.groups.rules.streams_commits import find_streams_commit_fault
from moldau.groups.rules.streams_group import StreamsGroup
from moldau.groups.rules.subscription import CONSUMER_PROTOCOL_TYPE

_NONE = ErrorCode.none


def handle(
    group: OffsetGroup | None,
    event: CommitOffsets | CommitTransactionOffsets | DeleteOffsets,
    turn: GroupTurn,
) -> None:
    match event:
        case CommitOffsets():
            commit(group, event, turn)
        case CommitTransactionOffsets():
            commit_in_transaction(group, event, turn)
        case DeleteOffsets():
            delete_offsets(group, event, turn)


def commit(group: OffsetGroup | None, event: CommitOffsets, turn: GroupTurn) -> None:
    error = _find_commit_fault(group, event, turn.image)
    if error is not None:
        turn.answer(PartitionsAnswer(error=error))
        return
    if isinstance(group, Group):
        _note_sign_of_life(group, event, turn.outcome)
    group_id, records = event.group_id, turn.outcome.records
    errors = []
    for topic, partition, committed in event.offsets:
        error = _find_offset_fault(committed, turn) if committed.metadata else _NONE
        errors.append(error)
        if error is _NONE:
            records.append(OffsetRecord(group_id, topic, partition, committed))
    turn.answer(PartitionsAnswer(errors=tuple(errors)))


def commit_in_transaction(
    group: OffsetGroup | None, event: CommitTransactionOffsets, turn: GroupTurn
) -> None:
    error = _find_transaction_fault(group, event, turn.image)
    if error is not None:
        turn.answer(PartitionsAnswer(error=error))
        return
    producer_id, group_id = event.producer_id, event.group_id
    outcome = turn.outcome
    errors = []
    for topic, partition, committed in event.offsets:
        error = _find_offset_fault(committed, turn) if committed.metadata else _NONE
        errors.append(error)
        if error is _NONE:
            pending = PendingOffsetRecord(producer_id, group_id, topic, partition, committed)
            outcome.records.append(pending)
    outcome.transaction = OffsetsTransaction(producer_id, event.producer_epoch, event.verification)
    turn.answer(PartitionsAnswer(errors=tuple(errors)))


def _find_transaction_fault(
    group: OffsetGroup | None, event: CommitTransactionOffsets, image: MetadataImage
) -> ErrorCode | None:
    """As Kafka: a member that is about to be told what it reads may still commit what it has."""
    if group is None:
        return None if event.generation < 0 else ErrorCode.illegal_generation
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        return None
    if isinstance(group, ConsumerGroup | StreamsGroup):
        fault = _find_fault_of_epoch(group, event, image)
        is_stale = fault is ErrorCode.stale_member_epoch  # which these clients do not know
        return ErrorCode.illegal_generation if is_stale else fault
    if event.generation < 0 and group.state is ClassicGroupState.EMPTY:
        return None
    fault = group.find_member_fault(event.member_id, event.instance_id)
    if fault is None and event.generation != group.generation:
        fault = ErrorCode.illegal_generation
    return fault


def _find_offset_fault(committed: CommittedOffset, turn: GroupTurn) -> ErrorCode:
    if _utf16_length(committed.metadata) > turn.limits.offset_metadata_max_bytes:
        return ErrorCode.offset_metadata_too_large
    return _NONE


def _find_commit_fault(
    group: OffsetGroup | None, event: CommitOffsets, image: MetadataImage
) -> ErrorCode | None:
    if isinstance(group, ConsumerGroup | StreamsGroup):
        return _find_fault_of_epoch(group, event, image)
    if group is None:
        if event.generation < 0:
            return None  # a group of offsets only; the first commit makes it
        if event.knows_epochs:
            return ErrorCode.group_id_not_found
        return ErrorCode.illegal_generation
    if event.generation < 0 and group.state is ClassicGroupState.EMPTY:
        return None
    if event.generation < 0 and not event.member_id and event.instance_id is None:
        return ErrorCode.unknown_member_id  # it is no member, and the group has some
    fault = group.find_member_fault(event.member_id, event.instance_id)
    if fault is not None:
        return fault
    if event.generation != group.generation:
        return ErrorCode.illegal_generation
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        # Its generation has begun, but it cannot know yet what it has been given to read.
        return ErrorCode.rebalance_in_progress
    return None


def _find_fault_of_epoch(
    group: ConsumerGroup | StreamsGroup,
    event: CommitOffsets | CommitTransactionOffsets,
    image: MetadataImage,
) -> ErrorCode | None:
    is_old = isinstance(event, CommitOffsets) and not event.knows_epochs
    if isinstance(group, ConsumerGroup):
        if is_old and _has_an_epoch(group, event.member_id):
            return ErrorCode.unsupported_version  # it would take its epoch for a generation
        fault = find_epoch_fault(group, event.member_id, event.generation)
        is_of_epoch = fault in (ErrorCode.stale_member_epoch, ErrorCode.illegal_generation)
        return None if is_of_epoch and _is_late(group, event, image) else fault
    if is_old and event.member_id in group.members:
        return ErrorCode.unsupported_version  # its members speak OffsetCommit 9, with epochs
    partitions = ((topic, partition) for topic, partition, _ in event.offsets)
    return find_streams_commit_fault(group, event.member_id, event.generation, partitions)


def _is_late(
    group: ConsumerGroup, event: CommitOffsets | CommitTransactionOffsets, image: MetadataImage
) -> bool:
    """Whether a member commits in an epoch before its own, and has had each of the partitions
    since then (CGR-5). As in Kafka, one that it has not makes the whole commit stale."""
    current = group.assignment_of(event.member_id)
    return event.generation < current.epoch and all(
        (state := image.topics.get(topic)) is not None
        and current.has_had(state.topic_id, partition, event.generation)
        for topic, partition, _ in event.offsets
    )


def find_epoch_fault(group: ConsumerGroup, member_id: str, epoch: int) -> ErrorCode | None:
    """Why somebody may not commit or look up offsets of a consumer group in this epoch."""
    if epoch < 0 and not group.subscriptions:
        return None  # an administrator, while nobody is in it
    if member_id not in group.subscriptions:
        return ErrorCode.unknown_member_id
    if epoch != group.assignment_of(member_id).epoch:
        is_classic = group.subscriptions[member_id].classic is not None
        return ErrorCode.illegal_generation if is_classic else ErrorCode.stale_member_epoch
    return None


def _has_an_epoch(group: ConsumerGroup, member_id: str) -> bool:
    """Whether it is a member that speaks KIP-848's protocol."""
    member = group.subscriptions.get(member_id)
    return member is not None and member.classic is None


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


def delete_offsets(group: OffsetGroup | None, event: DeleteOffsets, turn: GroupTurn) -> None:
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


# Forgetting


def expire(group: OffsetGroup, turn: GroupTurn) -> bool:
    """Forget what is too old, and what belongs to deleted topics; whether nothing is left then."""
    expired = find_expired(group, turn.limits.offsets_retention_ms, turn.now_ms)
    gone = dict.fromkeys((*expired, *_find_deleted(group, None, turn)))
    _forget(group, gone, turn.outcome)
    return not group.pending_offsets and gone.keys() >= set(_committed(group))


def forget_topics(group: OffsetGroup, topics: Collection[str] | None, turn: GroupTurn) -> None:
    """Some topics were deleted (None: any of them): so are the offsets that belong to them."""
    _forget(group, _find_deleted(group, topics, turn), turn.outcome)


def _find_deleted(
    group: OffsetGroup, topics: Collection[str] | None, turn: GroupTurn
) -> list[tuple[str, int]]:
    """The partitions in which nothing belongs to a topic that may be there (GRP-10). A tombstone
    deletes everything in a partition, also what is pending."""
    image, is_settled = turn.image, not group.pending_offsets
    found = []
    for topic, partition in _committed(group):
        if topics is not None and topic not in topics:
            continue
        committed = group.offsets.find(topic, partition)
        present = [] if is_settled else group.pending_offsets.of_partition(topic, partition)
        if committed is not None:
            present.append(committed)
        if present and all(is_deleted(topic, one, image) for one in present):
            found.append((topic, partition))
    return found


def forget_all(group: OffsetGroup, outcome: Outcome) -> None:
    _forget(group, _committed(group), outcome)


def _committed(group: OffsetGroup) -> list[tuple[str, int]]:
    """The partitions in which something is committed, or may be by a transaction."""
    decided = [(topic, partition) for topic, partition, _ in group.offsets]
    return list(dict.fromkeys((*decided, *group.pending_offsets)))


def _forget(group: OffsetGroup, partitions: Iterable[tuple[str, int]], outcome: Outcome) -> None:
    for topic, partition in partitions:
        outcome.records.append(OffsetRecord(group.group_id, topic, partition, None))
