"""The table of producers of one partition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.records.batch_header import TRANSACTIONAL_FLAG, BatchHeader
from moldau.records.record_batch import ControlType, EndTransactionMarker
from moldau.storage.rules.producer_state import (
    ACCEPTED,
    CompletedTransaction,
    Duplicate,
    ProducerState,
)

DAY_MS = 24 * 3_600_000
COMMIT = EndTransactionMarker(ControlType.COMMIT, 0)
ABORT = EndTransactionMarker(ControlType.ABORT, 0)


def a_header(
    producer_id: int,
    sequence: int = 0,
    count: int = 1,
    transactional: bool = False,
    timestamp_ms: int = 1000,
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
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        record_count=count,
    )


def test_batches_without_a_producer_id_are_accepted_and_only_move_the_end():
    state = ProducerState(DAY_MS)
    header = a_header(-1, count=5)

    assert state.check(header) is ACCEPTED
    state.apply(header, 10, 1000)

    assert state.end_offset == 15
    assert len(state) == 0


def test_producers_are_kept_apart():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, count=3), 0, 1000)

    assert state.check(a_header(2, sequence=9)) is ACCEPTED
    assert state.check(a_header(1, sequence=3)) is ACCEPTED
    assert state.check(a_header(1, count=3)) == Duplicate(0, 2, 1000)
    assert [entry.producer_id for entry in state] == [1]
    assert state.find(1) is not None
    assert state.find(2) is None


def test_producer_id_zero_is_a_producer():
    state = ProducerState(DAY_MS)
    state.apply(a_header(0), 0, 1000)

    assert state.check(a_header(0)) == Duplicate(0, 0, 1000)


def test_a_transaction_holds_the_last_stable_offset_until_its_marker_is_below_the_high_watermark():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, transactional=True), 10, 1000)

    assert state.first_unstable_offset(high_watermark=11) == 10

    completed = state.apply_marker(a_header(1, sequence=-1), 11, COMMIT, 1000)

    assert completed == CompletedTransaction(1, 10, 11, False, 12)
    assert state.end_offset == 12
    assert state.first_unstable_offset(high_watermark=11) == 10
    assert state.first_unstable_offset(high_watermark=12) is None


def test_a_completed_transaction_names_the_next_undecided_one():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, transactional=True), 10, 1000)
    state.apply(a_header(2, transactional=True), 11, 1000)

    completed = state.apply_marker(a_header(1, sequence=-1), 12, ABORT, 1000)

    assert completed == CompletedTransaction(1, 10, 12, True, 11)
    assert state.first_unstable_offset(high_watermark=13) == 11


def test_an_open_transaction_before_a_completed_one_counts_first():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, transactional=True), 10, 1000)
    state.apply(a_header(2, transactional=True), 11, 1000)
    state.apply_marker(a_header(2, sequence=-1), 12, COMMIT, 1000)

    assert state.first_unstable_offset(high_watermark=10) == 10


def test_a_marker_without_data_completes_nothing():
    state = ProducerState(DAY_MS)

    assert state.apply_marker(a_header(1, sequence=-1), 5, COMMIT, 1000) is None
    assert state.end_offset == 6
    assert state.find(1) is not None


def test_quiet_producers_are_forgotten_but_not_those_in_a_transaction():
    state = ProducerState(500)
    state.apply(a_header(1, timestamp_ms=1000), 0, 1000)
    state.apply(a_header(2, timestamp_ms=2000), 1, 2000)
    state.apply(a_header(3, timestamp_ms=1000, transactional=True), 2, 1000)

    assert state.remove_expired(DAY_MS, now_ms=1500) == 0
    assert state.remove_expired(500, now_ms=1500) == 1
    assert {entry.producer_id for entry in state} == {2, 3}
    assert state.check(a_header(1, sequence=8)) is ACCEPTED


def test_a_producer_of_old_records_is_remembered_by_the_time_at_which_the_broker_heard_from_it():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, timestamp_ms=1000), 0, heard_ms=3 * DAY_MS)

    assert state.remove_expired(DAY_MS, now_ms=3 * DAY_MS + 1) == 0
    restarted = ProducerState(DAY_MS)
    restarted.load(state.to_store(), end_offset=1, now_ms=3 * DAY_MS + 2)
    assert isinstance(restarted.check(a_header(1)), Duplicate)
    assert restarted.remove_expired(DAY_MS, now_ms=4 * DAY_MS) == 1


def test_a_producer_of_future_records_is_forgotten_in_time_after_a_restart():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, timestamp_ms=1000 * DAY_MS), 0, heard_ms=DAY_MS)
    restarted = ProducerState(DAY_MS)
    restarted.load(state.to_store(), end_offset=1, now_ms=2 * DAY_MS)
    assert restarted.remove_expired(DAY_MS, now_ms=3 * DAY_MS - 1) == 0
    assert restarted.remove_expired(DAY_MS, now_ms=3 * DAY_MS) == 1


def test_a_snapshot_of_a_producer_of_future_records_keeps_their_timestamp():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, timestamp_ms=9000), 0, heard_ms=1000)

    assert state.to_store() == tuple(state)


def test_loading_replaces_everything_and_leaves_out_what_has_expired():
    source = ProducerState(DAY_MS)
    source.apply(a_header(1, timestamp_ms=1000), 0, 1000)
    source.apply(a_header(2, timestamp_ms=9000), 1, 9000)
    source.apply(a_header(4, timestamp_ms=9000, transactional=True), 3, 9000)
    source.apply(a_header(3, timestamp_ms=9000, transactional=True), 2, 9000)
    target = ProducerState(5000)
    target.apply(a_header(9, transactional=True), 77, 1000)

    target.load(list(source), end_offset=4, now_ms=10_000)

    assert {entry.producer_id for entry in target} == {2, 3, 4}
    assert target.end_offset == 4
    assert target.first_unstable_offset(high_watermark=4) == 2


def test_reset_forgets_everything():
    state = ProducerState(DAY_MS)
    state.apply(a_header(1, transactional=True), 10, 1000)
    state.apply_marker(a_header(1, sequence=-1), 11, COMMIT, 1000)
    state.apply(a_header(1, sequence=1, transactional=True), 12, 1000)

    state.reset(3)

    assert len(state) == 0
    assert state.end_offset == 3
    assert state.first_unstable_offset(high_watermark=0) is None


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "end"])), max_size=30),
    st.integers(0, 30),
)
def test_the_first_unstable_offset_is_that_of_a_naive_model(steps, high_watermark):
    state, sequences = ProducerState(DAY_MS), dict.fromkeys(range(4), 0)
    open_since: dict[int, int] = {}
    ended: list[tuple[int, int]] = []
    for offset, (producer_id, step) in enumerate(steps):
        if step == "data":
            state.apply(
                a_header(producer_id, sequences[producer_id], transactional=True), offset, 1000
            )
            sequences[producer_id] += 1
            open_since.setdefault(producer_id, offset)
        else:
            state.apply_marker(a_header(producer_id, -1), offset, COMMIT, 1000)
            if producer_id in open_since:
                ended.append((open_since.pop(producer_id), offset))

    unstable = [*open_since.values(), *(first for first, end in ended if end >= high_watermark)]
    assert state.first_unstable_offset(high_watermark) == min(unstable, default=None)
