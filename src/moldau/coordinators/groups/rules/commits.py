"""The committed offsets of a group: who may change and see them, and when they are forgotten. A
rule.

A member commits in its own generation. A member of a consumer group that has not heard of its epoch
yet commits in an older one, in partitions that it has had since (CGR-5). Somebody who is no member
(a consumer with assigned partitions, an administrator who resets offsets) commits without a
generation, and only while nobody is in the group. A producer commits in a transaction for a member,
in its generation; older ones do not say for whom, and may always.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeAlias

from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.classic_group import ClassicGroup as Group
from moldau.coordinators.groups.rules.classic_group import ClassicGroupState
from moldau.coordinators.groups.rules.consumer_group import ConsumerGroup
from moldau.coordinators.groups.rules.events import (
    CommitOffsets,
    CommitTransactionOffsets,
    DeleteOffsets,
    PartitionsAnswer,
)
from moldau.coordinators.groups.rules.offsets import CONSUMER_PROTOCOL_TYPE, is_current, is_deleted
from moldau.coordinators.groups.rules.outcome import GroupTurn, OffsetsTransaction, Outcome
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    OffsetRecord,
    PendingOffsetRecord,
)
from moldau.coordinators.groups.rules.share_group import ShareGroup
from moldau.coordinators.groups.rules.streams_group import StreamsGroup
from moldau.errors import ErrorCode, GroupNotFoundError, StaleMemberEpochError, UnknownMemberError
from moldau.model import NO_TIMESTAMP

_NO_ERROR = ErrorCode.none


def handle_commit(
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
        error = _find_offset_fault(committed, turn) if committed.metadata else _NO_ERROR
        errors.append(error)
        if error is _NO_ERROR:
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
        error = _find_offset_fault(committed, turn) if committed.metadata else _NO_ERROR
        errors.append(error)
        if error is _NO_ERROR:
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
    return _NO_ERROR


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
        errors.append(_NO_ERROR)
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


# When a committed offset expires:
#
# - A group without members keeps its offsets for `offsets.retention.minutes` after it became empty.
# - A group with active consumers keeps the offsets of the topics that it subscribes to. Its other
#   offsets expire by the time of their commit.
# - Offsets of a group without a membership protocol (a single consumer, an administrator) expire by
#   the time of their commit.
# - A commit by an old client may have its own expiry time.
# - Offsets of consumer groups (KIP-848) and streams groups (KIP-1071) expire by the time of their
#   commit, except in topics that the group subscribes to.
# - Offsets of all other groups, and of groups that are rebalancing, do not expire.
# - An offset does not expire while an open transaction may replace it.


AgeFrom = Callable[[CommittedOffset], int]


def find_expired(group: OffsetGroup, retention_ms: int, now_ms: int) -> list[tuple[str, int]]:
    """Topic and partition of each committed offset that has expired."""
    age_from = _age_rule(group)
    if age_from is None:
        return []
    return [
        (topic, partition)
        for topic, partition, committed in group.offsets
        if not group.is_subscribed_to(topic)
        and not group.pending_offsets.holds(topic, partition)
        and _has_expired(committed, age_from, retention_ms, now_ms)
    ]


def _age_rule(group: OffsetGroup) -> AgeFrom | None:
    """From when on offsets age; None where they do not."""
    if isinstance(group, ConsumerGroup | StreamsGroup):
        return _since_commit
    if not group.protocol_type:
        return _since_commit
    if group.state is ClassicGroupState.EMPTY:
        since_ms = NO_TIMESTAMP if group.stored is None else group.stored.state_timestamp_ms
        return _since_commit if since_ms == NO_TIMESTAMP else lambda _: since_ms
    if group.state is ClassicGroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return _since_commit
    return None


def _since_commit(committed: CommittedOffset) -> int:
    return committed.commit_timestamp_ms


def _has_expired(
    committed: CommittedOffset, age_from: AgeFrom, retention_ms: int, now_ms: int
) -> bool:
    if committed.expire_timestamp_ms != NO_TIMESTAMP:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - age_from(committed) >= retention_ms


FoundOffsets = dict[str, dict[int, CommittedOffset | ErrorCode | None]]
"""By topic and partition; None where nothing is committed, a code where it cannot be told."""


def find_offsets(
    group: OffsetGroup | ShareGroup | None,
    wanted: Mapping[str, Sequence[int]] | None,
    member: tuple[str, int] | None,
    *,
    require_stable: bool,
    image: MetadataImage,
) -> FoundOffsets:
    """See `GroupCoordinator.fetch_offsets`. Raises `KafkaError` for who may not ask."""
    if isinstance(group, ShareGroup):
        raise GroupNotFoundError(f"group {group.group_id!r} is a share group")
    if member is not None and isinstance(group, ConsumerGroup):
        check_epoch(group, *member)
    if member is not None and isinstance(group, StreamsGroup):
        check_streams_member(group, *member)
    return _find_in(group, wanted, require_stable, image)


def _find_in(
    group: OffsetGroup | None,
    wanted: Mapping[str, Sequence[int]] | None,
    require_stable: bool,
    image: MetadataImage,
) -> FoundOffsets:
    if group is None:
        return {topic: dict.fromkeys(numbers) for topic, numbers in (wanted or {}).items()}
    offsets, pending = group.offsets, group.pending_offsets
    found: FoundOffsets
    if wanted is not None:
        found = {
            topic: {
                number: _current(topic, offsets.find(topic, number), image) for number in numbers
            }
            for topic, numbers in wanted.items()
        }
    else:
        found = {}
        for topic, number, committed in offsets:
            if is_current(topic, committed, image):
                found.setdefault(topic, {})[number] = committed
    if require_stable and pending:
        for topic, of_topic in found.items():
            for partition in of_topic:
                if pending.holds(topic, partition):
                    of_topic[partition] = ErrorCode.unstable_offset_commit
    return found


def _current(
    topic: str, committed: CommittedOffset | None, image: MetadataImage
) -> CommittedOffset | None:
    """An offset that belongs to a deleted topic is not shown (GRP-10)."""
    return committed if committed is not None and is_current(topic, committed, image) else None


OffsetGroup: TypeAlias = Group | ConsumerGroup | StreamsGroup


# Who may commit and look up the offsets of a streams group (KIP-1071). A rule.
#
# A member commits in its own epoch. It may not have heard yet that it has come to another one; then
# what it commits counts in those partitions whose tasks it has since (STG-4): somebody else may
# have run the others in between.


def find_streams_commit_fault(
    group: StreamsGroup, member_id: str, epoch: int, partitions: Iterable[tuple[str, int]]
) -> ErrorCode | None:
    """Of all partitions together, as in Kafka."""
    if epoch < 0 and not group.members:
        return None  # an administrator, while nobody is in it
    if member_id not in group.members:
        return ErrorCode.unknown_member_id
    current = group.assignment_of(member_id)
    if epoch == current.epoch:
        return None
    if epoch > current.epoch:
        return ErrorCode.stale_member_epoch
    for topic, partition in partitions:
        subtopology_id = group.reader_of(topic)
        since = None if subtopology_id is None else current.since.get((subtopology_id, partition))
        if since is None or epoch < since:
            return ErrorCode.stale_member_epoch
    return None


def check_streams_member(group: StreamsGroup, member_id: str, epoch: int) -> None:
    """Raise why a member may not look up offsets."""
    if member_id not in group.members:
        raise UnknownMemberError(f"{member_id!r} is no member of {group.group_id!r}")
    if epoch != group.assignment_of(member_id).epoch:
        raise StaleMemberEpochError(f"{member_id} is not in epoch {epoch} of the group")
