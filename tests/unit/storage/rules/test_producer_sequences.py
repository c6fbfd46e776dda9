"""Producer sequences: by plain values, and against a naive model that remembers everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from moldau.records.batch_header import TRANSACTIONAL_FLAG, BatchHeader
from moldau.records.record_batch import ControlType, EndTransactionMarker
from moldau.storage.rules.producer_state import (
    ACCEPTED,
    MAX_SEQUENCE,
    Duplicate,
    ProducerEntry,
    RememberedBatch,
    apply_batch,
    apply_marker,
    check_epoch,
    check_marker,
    check_sequence,
    is_expired,
    next_sequence,
)

PRODUCER_ID = 4711


def a_header(
    sequence: int,
    count: int = 1,
    epoch: int = 0,
    timestamp_ms: int = 1000,
    transactional: bool = False,
) -> BatchHeader:
    return BatchHeader(
        base_offset=0,
        batch_length=100,
        leader_epoch=-1,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_FLAG if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def entry_after(*headers: BatchHeader) -> ProducerEntry:
    """The entry after these batches, appended one after the other from offset 100."""
    entry, offset = None, 100
    for header in headers:
        entry = apply_batch(entry, header, offset)
        offset += header.record_count
    assert entry is not None
    return entry


@pytest.mark.parametrize("sequence", [0, 1, 17, MAX_SEQUENCE])
def test_an_unknown_producer_may_start_anywhere(sequence):
    assert check_sequence(None, a_header(sequence)) is ACCEPTED


def test_the_next_sequence_is_accepted():
    assert check_sequence(entry_after(a_header(0, count=10)), a_header(10)) is ACCEPTED


@pytest.mark.parametrize("sequence", [9, 11, 0, MAX_SEQUENCE])
def test_a_gap_or_an_overlap_is_out_of_order(sequence):
    with pytest.raises(OutOfOrderSequenceError):
        check_sequence(entry_after(a_header(0, count=10)), a_header(sequence))


def test_a_repeated_batch_is_answered_with_its_first_offsets():
    entry = entry_after(*(a_header(10 * i, count=10, timestamp_ms=i) for i in range(5)))

    for i in range(5):
        found = check_sequence(entry, a_header(10 * i, count=10))
        assert found == Duplicate(100 + 10 * i, 109 + 10 * i, i)


def test_only_the_last_five_batches_are_remembered():
    entry = entry_after(*(a_header(i) for i in range(6)))

    assert len(entry.batches) == 5
    assert check_sequence(entry, a_header(1)) == Duplicate(101, 101, 1000)
    with pytest.raises(OutOfOrderSequenceError):
        check_sequence(entry, a_header(0))


def test_a_batch_that_only_begins_like_a_remembered_one_is_out_of_order():
    with pytest.raises(OutOfOrderSequenceError):
        check_sequence(entry_after(a_header(0, count=10)), a_header(0, count=9))


def test_sequences_wrap_to_zero():
    entry = entry_after(a_header(MAX_SEQUENCE - 1, count=2))

    assert entry.last_sequence == MAX_SEQUENCE
    assert next_sequence(MAX_SEQUENCE) == 0
    assert check_sequence(entry, a_header(0)) is ACCEPTED


def test_a_batch_that_wraps_inside_is_recognised_when_it_comes_again():
    wrapping = a_header(MAX_SEQUENCE - 1, count=5)
    entry = entry_after(a_header(MAX_SEQUENCE - 2), wrapping)

    assert entry.last_sequence == 2
    assert entry.batches[-1].first_sequence == MAX_SEQUENCE - 1
    assert check_sequence(entry, wrapping) == Duplicate(101, 105, 1000)
    assert check_sequence(entry, a_header(3)) is ACCEPTED


def test_a_new_epoch_starts_at_zero_and_forgets_the_batches():
    entry = entry_after(a_header(0), a_header(1))

    assert check_sequence(entry, a_header(0, epoch=1)) is ACCEPTED
    with pytest.raises(OutOfOrderSequenceError):
        check_sequence(entry, a_header(2, epoch=1))
    assert len(apply_batch(entry, a_header(0, epoch=1), 102).batches) == 1


def test_an_older_epoch_is_fenced_even_with_a_batch_that_was_seen():
    entry = entry_after(a_header(0), a_header(0, epoch=1))

    with pytest.raises(InvalidProducerEpochError):
        check_sequence(entry, a_header(0, epoch=0))


def test_refusing_changes_nothing():
    entry = entry_after(a_header(0), a_header(1))
    before = tuple(entry)

    with pytest.raises(OutOfOrderSequenceError):
        check_sequence(entry, a_header(7))
    assert tuple(entry) == before


def test_the_first_transactional_batch_opens_the_transaction():
    entry = entry_after(a_header(0, transactional=True), a_header(1, transactional=True))

    assert entry.transaction_first_offset == 100


def test_inside_a_transaction_other_batches_are_refused():
    entry = entry_after(a_header(0, transactional=True))

    assert check_sequence(entry, a_header(1, transactional=True)) is ACCEPTED
    with pytest.raises(InvalidTxnStateError):
        check_sequence(entry, a_header(1))


COMMIT = EndTransactionMarker(ControlType.COMMIT, 3)


def test_a_marker_ends_the_transaction_and_keeps_the_sequence():
    entry = entry_after(a_header(0, transactional=True))

    ended = apply_marker(entry, a_header(-1, timestamp_ms=2000, transactional=True), COMMIT)

    assert ended.transaction_first_offset is None
    assert ended.coordinator_epoch == 3
    assert ended.last_timestamp_ms == 2000
    assert check_sequence(ended, a_header(1)) is ACCEPTED


def test_a_marker_of_a_new_epoch_starts_the_sequence_anew():
    entry = entry_after(a_header(0, transactional=True))

    ended = apply_marker(entry, a_header(-1, epoch=1), COMMIT)

    assert ended.batches == ()
    assert check_sequence(ended, a_header(0, epoch=1)) is ACCEPTED
    with pytest.raises(OutOfOrderSequenceError):
        check_sequence(ended, a_header(1, epoch=1))
    with pytest.raises(InvalidProducerEpochError):
        check_sequence(ended, a_header(1, epoch=0))


def test_a_marker_may_be_the_first_thing_heard_of_a_producer():
    entry = apply_marker(None, a_header(-1), COMMIT)

    assert entry == ProducerEntry(PRODUCER_ID, 0, (), 1000, 3, None)


def test_markers_of_old_epochs_are_fenced():
    entry = apply_marker(None, a_header(-1, epoch=2), COMMIT)

    check_marker(None, a_header(-1), COMMIT)
    check_marker(entry, a_header(-1, epoch=2), COMMIT)
    with pytest.raises(InvalidProducerEpochError):
        check_marker(entry, a_header(-1, epoch=1), COMMIT)
    with pytest.raises(TransactionCoordinatorFencedError):
        check_marker(entry, a_header(-1, epoch=2), COMMIT._replace(coordinator_epoch=2))


def test_a_quiet_producer_expires_but_not_inside_a_transaction():
    entry = entry_after(a_header(0, timestamp_ms=1000))

    assert not is_expired(entry, 1000, expiration_ms=500, now_ms=1499)
    assert is_expired(entry, 1000, expiration_ms=500, now_ms=1500)
    assert not is_expired(entry, heard_ms=2000, expiration_ms=500, now_ms=2000)
    assert not is_expired(entry._replace(transaction_first_offset=100), 1000, 500, 10_000)


def test_a_remembered_batch_knows_where_it_begins():
    batch = RememberedBatch(last_sequence=1, last_offset=50, offset_delta=3, timestamp_ms=0)

    assert batch.first_offset == 47
    assert batch.first_sequence == MAX_SEQUENCE - 1


class NaiveProducer:
    """Remembers every accepted batch as the list of its (unwrapped) sequence numbers."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.batches: list[tuple[list[int], int]] = []
        self.next_offset = 0

    def send(self, epoch: int, sequence: int, count: int) -> object:
        numbers = [(sequence + i) % (MAX_SEQUENCE + 1) for i in range(count)]
        if self.epoch is not None and epoch < self.epoch:
            return InvalidProducerEpochError
        if self.epoch is None or epoch > self.epoch:
            if self.epoch is not None and sequence != 0:
                return OutOfOrderSequenceError
            self.epoch, self.batches = epoch, []
        else:
            for seen, offset in self.batches[-5:]:
                if seen == numbers:
                    return Duplicate(offset, offset + count - 1, 1000)
            if numbers[0] != (self.batches[-1][0][-1] + 1) % (MAX_SEQUENCE + 1):
                return OutOfOrderSequenceError
        self.batches.append((numbers, self.next_offset))
        self.next_offset += count
        return "accepted"


def outcome_of(entry: ProducerEntry | None, header: BatchHeader) -> object:
    try:
        found = check_sequence(entry, header)
    except KafkaError as error:
        return type(error)
    return found if isinstance(found, Duplicate) else "accepted"


near_the_wrap = st.integers(MAX_SEQUENCE - 8, MAX_SEQUENCE)


@given(
    start=st.one_of(st.integers(0, 3), near_the_wrap),
    steps=st.lists(
        st.tuples(
            st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1]),  # change of epoch
            st.sampled_from([0, 0, 0, 0, -1, -2, -3, -9, 1]),  # off the expected sequence
            st.integers(1, 3),
        ),
        max_size=40,
    ),
)
def test_decisions_are_those_of_a_naive_model(start, steps):
    naive, entry, expected_sequence, epoch = NaiveProducer(), None, start, 5
    for epoch_change, off, count in steps:
        sequence = 0 if epoch_change > 0 else (expected_sequence + off) & MAX_SEQUENCE
        header = a_header(sequence, count, epoch + epoch_change)
        offset = naive.next_offset
        wanted = naive.send(epoch + epoch_change, sequence, count)
        found = outcome_of(entry, header)
        assert found == wanted
        if found != "accepted":
            continue
        entry = apply_batch(entry, header, offset)
        epoch += epoch_change
        expected_sequence = next_sequence(header.last_sequence)


# Markers with a bumped epoch (TXP-3)


def an_open_entry(epoch: int) -> ProducerEntry:
    return apply_batch(None, a_header(0, epoch=epoch, transactional=True), 100)


ENDING = EndTransactionMarker(ControlType.COMMIT, 0)


def test_a_marker_of_version_2_ends_the_transaction_of_the_epoch_before():
    assert check_marker(an_open_entry(3), a_header(-1, epoch=4), ENDING, 2)


def test_a_marker_of_version_2_that_comes_again_is_not_appended():
    ended = apply_marker(an_open_entry(3), a_header(-1, epoch=4), ENDING)
    assert not check_marker(ended, a_header(-1, epoch=4), ENDING, 2)


def test_a_marker_of_version_2_does_not_end_the_transaction_that_began_in_its_epoch():
    ended = apply_marker(an_open_entry(3), a_header(-1, epoch=4), ENDING)
    following = apply_batch(ended, a_header(0, epoch=4, transactional=True), 200)
    with pytest.raises(InvalidProducerEpochError):
        check_marker(following, a_header(-1, epoch=4), ENDING, 2)


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_an_older_version_ends_the_transaction_of_its_own_epoch(version):
    assert check_marker(an_open_entry(3), a_header(-1, epoch=3), ENDING, version)


def test_a_coordinator_of_groups_writes_without_sequences_and_is_fenced_by_epochs():
    check_epoch(None, a_header(-1, epoch=3))
    check_epoch(an_open_entry(3), a_header(-1, epoch=3))
    with pytest.raises(InvalidProducerEpochError):
        check_epoch(an_open_entry(3), a_header(-1, epoch=2))
