"""Deliveries: what is given, what was dealt with, and what is left, to the record."""

from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.consumer.rules.fetch_buffer import (
    CompletedFetch,
    Decoding,
    FetchBuffer,
    FetchedBatch,
    Position,
)
from moldau.errors import CorruptBatchError, RecordDeserializationError
from moldau.model import TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.compression import Codec
from moldau.records.record import NewRecord
from moldau.records.record_batch import build_batch

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(base_offset: int, count: int, *, damaged: bool = False) -> FetchedBatch:
    rows = [NewRecord(0, None, b"%d" % (base_offset + n)) for n in range(count)]
    data = build_batch(rows, base_offset=base_offset, leader_epoch=5)
    if damaged:
        data[-1] ^= 1
    return FetchedBatch(memoryview(data), read_header(data))


def completed(
    *batches: FetchedBatch, partition: TopicPartition = ZERO, start: int | None = None, end: int = 0
) -> CompletedFetch:
    first = batches[0].header.base_offset if batches else 0
    position = Position(first if start is None else start)
    last = batches[-1].header.next_offset if batches else end
    return CompletedFetch(partition, 1, position, list(batches), Position(max(last, end), 5))


def buffer(*chunks: CompletedFetch, decoding: Decoding | None = None) -> FetchBuffer:
    made = FetchBuffer(decoding or Decoding())
    made.add(chunks)
    return made


def offsets(records: Sequence[object]) -> list[int]:
    return [record.offset for record in records]  # type: ignore[attr-defined]


def test_records_come_in_order_across_batches_and_chunks() -> None:
    made = buffer(completed(batch(0, 3), batch(3, 2)), completed(batch(9, 2), partition=ONE))
    found = made.take_records(100)
    assert [(one.partition, one.offset) for one in found] == [
        *[(0, offset) for offset in range(5)],
        (1, 9),
        (1, 10),
    ]
    assert made.take_records(100) == []


def test_the_limit_holds_and_what_is_left_comes_next() -> None:
    made = buffer(completed(batch(0, 3), batch(3, 3)))
    assert [offsets(made.take_records(2)) for _ in range(4)] == [[0, 1], [2, 3], [4, 5], []]


def test_what_precedes_the_position_is_not_given() -> None:
    assert offsets(buffer(completed(batch(0, 5), start=3)).take_records(9)) == [3, 4]


def test_the_position_is_behind_what_was_given() -> None:
    made = buffer(completed(batch(0, 5), batch(5, 2)))
    assert made.position(ZERO) is None
    made.take_records(3)
    assert made.position(ZERO) == (3, 5)
    made.take_records(3)
    assert made.position(ZERO) == (6, 5)


def test_behind_the_last_batch_the_position_is_behind_all_that_was_left_out() -> None:
    made = buffer(completed(batch(0, 2), end=7))  # a transaction marker at 6, say
    made.take_records(9)
    assert made.position(ZERO) == (7, 5)


def test_a_chunk_of_nothing_but_what_is_left_out_moves_the_position() -> None:
    made = buffer(completed(end=4))
    assert made.take_records(9) == []
    assert made.mark_processed() == {ZERO: (4, 5)}


def test_settling_tells_what_moved_once() -> None:
    made = buffer(completed(batch(0, 5)), completed(batch(0, 2), partition=ONE))
    made.take_records(6)
    assert made.has_given
    assert made.mark_processed() == {ZERO: (5, 5), ONE: (1, 5)}
    assert not made.has_given
    made.take_records(1)
    assert made.mark_processed() == {ONE: (2, 5)}


def test_what_was_given_last_can_be_told_from_what_was_given_before() -> None:
    made = buffer(completed(batch(0, 5)), completed(batch(7, 2), partition=ONE))
    made.take_records(2)
    made.take_records(4)  # 2, 3, 4 of one and 7 of the other
    assert {p: at.offset for p, at in made.find_failed().items()} == {ZERO: 2, ONE: 7}


# --- iteration ----------------------------------------------------------------------------------


def test_an_iterator_counts_what_it_has_given() -> None:
    made = buffer(completed(batch(0, 4)))
    run = made.next_run()
    assert run is not None
    assert (next(run).offset, next(run).offset) == (0, 1)
    assert made.position(ZERO) == (2, 5)
    assert made.find_failed() == {ZERO: (1, 5)}
    assert made.mark_processed() == {ZERO: (2, 5)}


def test_iterating_goes_on_where_it_was_left() -> None:
    made = buffer(completed(batch(0, 2), batch(2, 2)))
    seen = []
    while (run := made.next_run()) is not None:
        seen.append(next(run).offset)
    assert seen == [0, 1, 2, 3]


def test_taking_goes_on_where_an_iterator_was_left() -> None:
    made = buffer(completed(batch(0, 4)))
    run = made.next_run()
    assert run is not None
    next(run)
    assert offsets(made.take_records(9)) == [1, 2, 3]
    assert list(run) == []


def test_where_some_more_records_end_is_known_before_they_are_given() -> None:
    made = buffer(completed(batch(0, 4), end=9))
    made.next_run()
    assert made.positions_after(3) == {ZERO: (3, 5)}
    assert made.positions_after(4) == {ZERO: (9, 5)}
    assert made.position(ZERO) == (0, -1)


def test_giving_is_a_sign_of_life() -> None:
    made = buffer(completed(batch(0, 4)))
    run = made.next_run()
    assert run is not None
    signs = {made.sign_of_life for _ in run}
    assert len(signs) == 4


# --- raw batches --------------------------------------------------------------------------------


def test_batches_come_whole_with_what_is_to_be_seen_of_them() -> None:
    made = buffer(completed(batch(0, 4), batch(4, 2), start=2, end=9))
    found = made.take_batches(1 << 20)
    assert [(one.from_offset, one.next_offset) for one in found] == [(2, 4), (4, 9)]
    assert read_header(found[1].data) == found[1].header
    assert made.mark_processed() == {ZERO: (9, 5)}


def test_batches_are_limited_by_bytes_but_one_comes_in_any_case() -> None:
    made = buffer(completed(batch(0, 4), batch(4, 2)))
    assert [len(made.take_batches(1)) for _ in range(3)] == [1, 1, 0]


def test_records_and_batches_can_be_mixed() -> None:
    made = buffer(completed(batch(0, 4), batch(4, 2)))
    made.take_records(1)
    (first,) = made.take_batches(1)
    assert (first.from_offset, first.next_offset) == (1, 4)
    assert offsets(made.take_records(9)) == [4, 5]


def test_a_damaged_batch_is_not_given_raw() -> None:
    with pytest.raises(CorruptBatchError):
        buffer(completed(batch(0, 4, damaged=True))).take_batches(1)


# --- what is wrong with records -----------------------------------------------------------------


def test_a_damaged_batch_is_raised_after_what_precedes_it_and_again() -> None:
    made = buffer(completed(batch(0, 2), batch(2, 2, damaged=True), batch(4, 2)))
    assert offsets(made.take_records(9)) == [0, 1]
    for _ in range(2):
        with pytest.raises(CorruptBatchError, match="t-0: the batch at offset 2"):
            made.take_records(9)
    assert made.mark_processed() == {ZERO: (2, 5)}


def test_checksums_are_not_checked_when_nobody_wants_it() -> None:
    damaged = batch(0, 2, damaged=True)
    made = buffer(completed(damaged), decoding=Decoding(check_crcs=False))
    assert len(made.take_batches(1)) == 1


def fussy(value: bytes) -> int:
    if value == b"3":
        raise ValueError("three is not a number")
    return int(value)


def test_deserializers_make_values() -> None:
    made = buffer(completed(batch(0, 3)), decoding=Decoding(value_deserializer=fussy))
    assert [one.value for one in made.take_records(9)] == [0, 1, 2]


def test_a_record_that_cannot_be_read_is_raised_after_those_before_it_and_again() -> None:
    made = buffer(completed(batch(0, 6)), decoding=Decoding(value_deserializer=fussy))
    assert [one.value for one in made.take_records(9)] == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError, match="seek to 4") as raised:
            made.take_records(9)
        assert (raised.value.partition, raised.value.offset) == (ZERO, 3)
    assert made.mark_processed() == {ZERO: (3, -1)}


def test_an_iteration_comes_to_a_record_that_cannot_be_read() -> None:
    made = buffer(completed(batch(0, 6)), decoding=Decoding(value_deserializer=fussy))
    run = made.next_run()
    assert run is not None
    assert len(list(run)) == 3
    with pytest.raises(RecordDeserializationError):
        made.next_run()


def test_nulls_are_not_deserialized() -> None:
    data = build_batch([NewRecord(0, None, None)])
    null = FetchedBatch(memoryview(data), read_header(data))
    made = buffer(completed(null), decoding=Decoding(fussy is None, fussy, fussy))
    assert [(one.key, one.value) for one in made.take_records(9)] == [(None, None)]


# --- dropping and pausing -----------------------------------------------------------------------


def test_what_is_dropped_does_not_come_and_did_not_move() -> None:
    made = buffer(
        completed(batch(0, 4)), completed(batch(0, 2), partition=ONE), completed(batch(4, 2))
    )
    made.take_records(1)
    made.drop([ZERO])
    assert made.mark_processed() == {}
    assert [(one.partition, one.offset) for one in made.take_records(9)] == [(1, 0), (1, 1)]


def test_what_is_paused_waits_where_it_was() -> None:
    made = buffer(completed(batch(0, 4)), completed(batch(0, 2), partition=ONE))
    made.take_records(1)
    made.pause(frozenset([ZERO]))
    assert [one.partition for one in made.take_records(9)] == [1, 1]
    assert not made.has_more
    assert made.mark_processed() == {ZERO: (1, 5), ONE: (2, 5)}
    made.pause(frozenset())
    assert made.has_more
    assert offsets(made.take_records(9)) == [1, 2, 3]


@given(data=st.data())
def test_whatever_is_done_every_record_is_given_once_and_positions_are_exact(
    data: st.DataObject,
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    batches = [batch(start, size) for start, size in zip(starts, sizes, strict=True)]
    cut = data.draw(st.integers(0, len(batches)))
    made = buffer(*[completed(*some) for some in (batches[:cut], batches[cut:]) if some])
    seen: list[int] = []
    for _ in range(40):
        match data.draw(st.sampled_from(["take", "iterate", "pause", "process"])):
            case "take":
                seen += offsets(made.take_records(data.draw(st.integers(1, 5))))
            case "iterate":
                run = made.next_run()
                for _ in range(data.draw(st.integers(0, 3))):
                    if run is not None and (record := next(run, None)) is not None:
                        seen.append(record.offset)
            case "pause":
                made.pause(frozenset([ZERO]))
                assert made.take_records(3) == []
                made.pause(frozenset())
            case _:
                made.mark_processed()
        position = made.position(ZERO)
        if position is not None:
            assert position.offset == len(seen)
    seen += offsets(made.take_records(1000))
    assert seen == list(range(sum(sizes)))


# --- decoding elsewhere -------------------------------------------------------------------------


def heavy_batch(count: int = 5_000) -> FetchedBatch:
    rows = [NewRecord(0, None, os.urandom(30)) for _ in range(count)]
    data = build_batch(rows, codec=Codec.LZ4)
    return FetchedBatch(memoryview(data), read_header(data))


def test_a_large_compressed_batch_can_be_decoded_elsewhere() -> None:
    made = buffer(completed(batch(0, 3)))
    assert made.find_heavy_batch() is None
    made = buffer(completed(heavy_batch()))
    heavy = made.find_heavy_batch()
    assert heavy is not None
    records = heavy.decode()
    made.keep_decoded(heavy, records)
    assert made.take_records(1)[0] is records[0]
    assert made.find_heavy_batch() is None


def test_what_was_decoded_elsewhere_does_not_count_after_a_seek() -> None:
    large = heavy_batch()
    made = buffer(completed(large))
    heavy = made.find_heavy_batch()
    assert heavy is not None
    made.keep_decoded(heavy, heavy.decode())
    made.drop([ZERO])
    made.add([completed(large, start=10)])
    assert made.take_records(1)[0].offset == 10


def test_a_record_of_an_iteration_that_failed_after_a_pause_has_failed() -> None:
    made = buffer(completed(batch(0, 3)))
    run = made.next_run()
    assert run is not None
    assert [next(run).offset, next(run).offset] == [0, 1]
    made.pause(frozenset({ZERO}))
    assert made.find_failed() == {ZERO: (1, 5)}
    assert made.mark_processed() == {ZERO: (2, 5)}
    assert made.find_failed() == {}
