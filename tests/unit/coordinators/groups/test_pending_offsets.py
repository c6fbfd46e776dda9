"""Offsets in transactions (TXP-5): the machine against a log that is read from the beginning."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.metadata_image import DeletedTopic, MetadataImage
from moldau.coordinators.groups.rules.events import (
    CommitTransactionOffsets,
    DeleteGroup,
    DeleteOffsets,
    DeleteTopics,
    ExpireOffsets,
    PartitionsAnswer,
)
from moldau.coordinators.groups.rules.groups import Groups
from moldau.coordinators.groups.rules.outcome import GroupLimits, OffsetsTransaction, Outcome
from moldau.coordinators.groups.rules.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    PendingOffsetRecord,
    StoredMember,
    TransactionEnd,
)
from moldau.errors import ErrorCode
from moldau.model import TopicId

NOW_MS = 1_000_000
YEAR_MS = 365 * 24 * 3_600_000


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, -1, "", NOW_MS)


def pending(producer: int, offset: int, partition: int = 0) -> PendingOffsetRecord:
    return PendingOffsetRecord(producer, "g", "t", partition, committed(offset))


def plain(offset: int | None, partition: int = 0) -> OffsetRecord:
    return OffsetRecord("g", "t", partition, None if offset is None else committed(offset))


def after(*records: CoordinatorRecord) -> Groups:
    groups = Groups(GroupLimits())
    for record in records:
        groups.apply(record)
    return groups


def offset_of(groups: Groups, partition: int = 0) -> int | None:
    group = groups.find("g")
    found = None if group is None else group.offsets.find("t", partition)
    return None if found is None else found.offset


def play(groups: Groups, outcome: Outcome) -> Outcome:
    for record in outcome.records:
        groups.apply(record)
    return outcome


def test_offsets_become_the_groups_with_the_commit():
    groups = after(pending(1, 10))
    assert offset_of(groups) is None
    groups.apply(TransactionEnd(1, is_commit=True))
    assert offset_of(groups) == 10


def test_an_abort_drops_them_and_a_group_of_nothing_else_with_them():
    groups = after(pending(1, 10), TransactionEnd(1, is_commit=False))
    assert offset_of(groups) is None
    assert len(groups) == 0


def test_a_later_commit_outside_of_the_transaction_stays():
    groups = after(pending(1, 10), plain(20))
    group = groups.find("g")
    assert group is not None
    assert group.pending_offsets.holds("t", 0)  # still undecided
    groups.apply(TransactionEnd(1, is_commit=True))
    assert offset_of(groups) == 20


def test_of_two_transactions_the_one_that_committed_later_in_the_log_counts():
    ends = TransactionEnd(2, is_commit=True), TransactionEnd(1, is_commit=True)
    assert offset_of(after(pending(1, 10), pending(2, 20), *ends)) == 20
    assert offset_of(after(pending(1, 10), pending(2, 20), *reversed(ends))) == 20


Step = tuple[str, int, int]
steps = st.lists(
    st.tuples(
        st.sampled_from(["pending", "plain", "delete", "commit", "abort"]),
        st.integers(1, 3),  # producer
        st.integers(0, 1),  # partition
    ),
    max_size=25,
)


@given(steps)
def test_the_last_decided_commit_in_the_log_counts(story: list[Step]) -> None:
    records: list[CoordinatorRecord] = []
    for number, (step, producer, partition) in enumerate(story):
        match step:
            case "pending":
                records.append(pending(producer, number, partition))
            case "plain":
                records.append(plain(number, partition))
            case "delete":
                records.append(plain(None, partition))
            case _:
                records.append(TransactionEnd(producer, is_commit=step == "commit"))
    groups = after(*records)
    for partition in (0, 1):
        assert offset_of(groups, partition) == _last_decided(records, partition)


def _last_decided(records: list[CoordinatorRecord], partition: int) -> int | None:
    """What somebody finds who knows the whole log."""
    found: int | None = None
    for at, record in enumerate(records):
        if isinstance(record, OffsetRecord) and record.partition == partition:
            found = None if record.committed is None else record.committed.offset
        elif isinstance(record, PendingOffsetRecord) and _counts(records, at, record, partition):
            found = record.committed.offset
    return found


def _counts(
    records: list[CoordinatorRecord], at: int, record: PendingOffsetRecord, partition: int
) -> bool:
    """Of the partition, committed, and not deleted while it was pending."""
    if record.partition != partition:
        return False
    for later in records[at + 1 :]:
        match later:
            case TransactionEnd(producer_id, is_commit) if producer_id == record.producer_id:
                return is_commit
            case OffsetRecord(_, _, number, None) if number == partition:
                return False
            case _:
                pass
    return False


# Events


def commit(generation: int = -1, member_id: str = "", text: str = "") -> CommitTransactionOffsets:
    return CommitTransactionOffsets(
        group_id="g",
        producer_id=1,
        producer_epoch=4,
        verification=9,
        generation=generation,
        member_id=member_id,
        instance_id=None,
        offsets=(("t", 0, CommittedOffset(5, -1, text, NOW_MS)),),
    )


def a_generation(number: int, *member_ids: str) -> GroupRecord:
    members = tuple(
        StoredMember(
            member_id=one,
            instance_id=None,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=1000,
            session_timeout_ms=1000,
            subscription=b"",
            assignment=b"",
        )
        for one in member_ids
    )
    metadata = GroupMetadata(
        protocol_type="consumer",
        generation=number,
        protocol="range" if members else None,
        leader=member_ids[0] if member_ids else None,
        state_timestamp_ms=NOW_MS,
        members=members,
    )
    return GroupRecord("g", metadata)


def answer_to(groups: Groups, event: CommitTransactionOffsets) -> Outcome:
    return play(groups, groups.handle(event, NOW_MS, 1))


def test_a_commit_is_logged_as_part_of_the_transaction():
    outcome = answer_to(after(), commit())
    assert outcome.transaction == OffsetsTransaction(1, 4, 9)
    assert outcome.records == [PendingOffsetRecord(1, "g", "t", 0, committed(5))]
    assert outcome.replies[0].answer == PartitionsAnswer(errors=(ErrorCode.none,))


@pytest.mark.parametrize(
    ("generation", "member_id", "code"),
    [
        (-1, "", None),  # before version 3 nobody says for whom
        (3, "m", None),
        (2, "m", ErrorCode.illegal_generation),
        (3, "other", ErrorCode.unknown_member_id),
    ],
)
def test_it_is_for_a_member_in_its_generation(generation, member_id, code):
    groups = after(a_generation(3, "m"))
    answer = answer_to(groups, commit(generation, member_id)).replies[0].answer
    expected = PartitionsAnswer(errors=(ErrorCode.none,))
    assert answer == (expected if code is None else PartitionsAnswer(error=code))


def test_a_generation_of_a_group_that_is_not_there_is_illegal():
    answer = answer_to(after(), commit(3, "m")).replies[0].answer
    assert answer == PartitionsAnswer(error=ErrorCode.illegal_generation)


def test_metadata_that_is_too_long_is_refused():
    text = "x" * (GroupLimits().offset_metadata_max_bytes + 1)
    answer = answer_to(after(), commit(text=text)).replies[0].answer
    assert answer == PartitionsAnswer(errors=(ErrorCode.offset_metadata_too_large,))


def test_what_a_transaction_may_replace_does_not_expire_and_keeps_its_group():
    groups = after(plain(1), plain(2, partition=1), pending(1, 10))
    outcome = play(groups, groups.handle(ExpireOffsets(group_id="g"), NOW_MS + YEAR_MS))
    assert outcome.records == [plain(None, partition=1)]
    groups.apply(TransactionEnd(1, is_commit=True))
    assert offset_of(groups) == 10


@pytest.mark.parametrize(
    "event",
    [
        DeleteGroup(group_id="g"),
        DeleteOffsets(group_id="g", partitions=(("t", 0),)),
        DeleteTopics(group_id="g", topics=frozenset({"t"})),
    ],
)
def test_who_deletes_offsets_deletes_the_undecided_ones_too(event):
    deleted = {TopicId(UUID(int=1)): DeletedTopic("t", NOW_MS)}
    image = MetadataImage(cluster_id="c").with_topics((), deleted=deleted)
    groups = after(pending(1, 10))
    play(groups, groups.handle(event, NOW_MS, 1, image))
    groups.apply(TransactionEnd(1, is_commit=True))
    assert offset_of(groups) is None
    assert len(groups) == 0
