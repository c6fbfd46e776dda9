"""What an answer has of a partition, against what was acquired; and the stages of a record."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.rules.consumer_story import batch
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.queue.rules.in_flight import (
    IN_FLIGHT_MOVES,
    AcquiredOffsets,
    InFlightRecord,
    InFlightState,
    unpack_records,
)
from moldau.errors import CorruptBatchError, InvariantViolation
from moldau.model import TopicPartition
from moldau.records.record import NewRecord
from moldau.records.record_batch import build_batch

HERE = TopicPartition("t", 0)


def test_only_what_was_acquired_is_given_with_its_delivery_count() -> None:
    acquired = [AcquiredOffsets(12, 13, 1), AcquiredOffsets(16, 17, 3)]
    found = unpack_records(batch(10, 10), HERE, acquired, check_crcs=True)
    assert [(one.offset, count) for one, count in found.records] == [
        (12, 1),
        (13, 1),
        (16, 3),
        (17, 3),
    ]
    assert (found.gaps, found.unreadable, found.failure) == ([], [], None)


def test_offsets_without_a_record_are_gaps() -> None:
    data = memoryview(bytes(batch(10, 2)) + bytes(batch(15, 2)))
    found = unpack_records(data, HERE, [AcquiredOffsets(10, 16, 1)], check_crcs=True)
    assert [one.offset for one, _ in found.records] == [10, 11, 15, 16]
    assert found.gaps == [12, 13, 14]


def test_of_what_did_not_come_nobody_says_that_it_does_not_exist() -> None:
    found = unpack_records(batch(10, 2), HERE, [AcquiredOffsets(10, 13, 1)], check_crcs=True)
    assert (found.gaps, found.unreadable) == ([], [12, 13])


def test_a_damaged_batch_is_given_back_and_the_others_are_read() -> None:
    good, bad = bytes(batch(10, 2)), bytearray(batch(12, 2))
    bad[-1] ^= 1
    found = unpack_records(
        memoryview(good + bad), HERE, [AcquiredOffsets(10, 13, 1)], check_crcs=True
    )
    assert [one.offset for one, _ in found.records] == [10, 11]
    assert found.unreadable == [12, 13]
    assert isinstance(found.failure, CorruptBatchError)


@given(st.data())
def test_every_offset_that_was_acquired_has_one_fate(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), min_size=1))
    raw, offset, there = b"", 0, set()
    for gap, count in sizes:
        offset += gap
        rows = [NewRecord(0, None, b"v") for _ in range(count)]
        raw += bytes(build_batch(rows, base_offset=offset, leader_epoch=0))
        there |= set(range(offset, offset + count))
        offset += count
    cuts = sorted(data.draw(st.sets(st.integers(0, offset + 2), min_size=2)))
    ranges = [AcquiredOffsets(first, last - 1, 1) for first, last in pairwise(cuts)][::2]
    found = unpack_records(memoryview(raw), HERE, ranges, check_crcs=True)
    given_offsets = [one.offset for one, _ in found.records]
    everything = [n for few in ranges for n in range(few.first_offset, few.last_offset + 1)]
    assert sorted([*given_offsets, *found.gaps, *found.unreadable]) == everything
    assert set(given_offsets) == there & set(everything)
    assert not set(found.gaps) & there
    assert all(one >= offset for one in found.unreadable)


@pytest.mark.parametrize(("here", "there"), [*product(InFlightState, InFlightState)])
def test_a_record_moves_as_the_table_says(here: InFlightState, there: InFlightState) -> None:
    from uuid import UUID

    record = InFlightRecord(ConsumerRecord("t", 0, 1, 0, None, b""), (UUID(int=1), 0), 1, 1, 0.0)
    record.state = here
    if there in IN_FLIGHT_MOVES[here]:
        record.move(there)
        assert record.state is there
    else:
        with pytest.raises(InvariantViolation):
            record.move(there)
        assert record.state is here
