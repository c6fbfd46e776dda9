"""What a batch of a streaming query reads, and what is missing from it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.spark.rules.data_loss import find_beyond, find_deleted, find_losses, keep_existing
from moldau.spark.rules.ranges import PartitionRange, clip, plan_batch, ranges_between

ZERO, ONE, TWO = (TopicPartition("clicks", number) for number in range(3))
OFFSETS = st.dictionaries(st.sampled_from([ZERO, ONE, TWO]), st.integers(0, 20))


def test_empty_ranges_are_left_out() -> None:
    found = ranges_between({ZERO: 3, ONE: 4, TWO: 9}, {ZERO: 7, ONE: 4, TWO: 5})
    assert found == (PartitionRange(ZERO, 3, 7),)


def test_a_new_partition_is_read_from_its_beginning() -> None:
    batch = plan_batch({ZERO: 3}, {ZERO: 5, ONE: 4}, {ZERO: 0, ONE: 0})
    assert batch.ranges == (PartitionRange(ZERO, 3, 5), PartitionRange(ONE, 0, 4))
    assert batch.added == {ONE}
    assert find_losses(batch, {ZERO: 0, ONE: 0}) == []


def test_a_new_partition_that_begins_late_has_lost_something() -> None:
    batch = plan_batch({ZERO: 3}, {ZERO: 3, ONE: 8}, {ONE: 6})
    assert batch.ranges == (PartitionRange(ONE, 6, 8),)
    assert find_losses(batch, {ONE: 6}) == ["clicks-1 is new, but its log begins at 6 already"]


def test_a_partition_that_is_gone_is_a_loss() -> None:
    batch = plan_batch({ZERO: 3, ONE: 4}, {ZERO: 3}, {ZERO: 0})
    assert find_losses(batch, {ZERO: 0}) == ["clicks-1 is not there any more"]


def test_a_log_that_ends_before_where_it_was_read_to_is_another_one_and_read_whole() -> None:
    batch = plan_batch({ZERO: 30}, {ZERO: 4}, {ZERO: 1})
    assert batch.ranges == (PartitionRange(ZERO, 1, 4),)
    assert "deleted and made again" in find_losses(batch, {ZERO: 1})[0]


def test_a_log_that_begins_behind_the_start_is_a_loss_and_a_gap_inside_is_none() -> None:
    wanted = [PartitionRange(ZERO, 3, 9)]
    assert find_deleted(wanted, {ZERO: 3}) == []
    (message,) = find_deleted(wanted, {ZERO: 4})
    assert message == "clicks-0 is to be read from offset 3, but its log begins at 4 by now"


def test_a_range_beyond_the_end_of_its_log_is_told() -> None:
    assert find_beyond([PartitionRange(ZERO, 3, 9)], {ZERO: 9}) == []
    assert "ends at 8" in find_beyond([PartitionRange(ZERO, 3, 9)], {ZERO: 8})[0]


@given(OFFSETS, OFFSETS, OFFSETS)
def test_every_range_is_of_a_partition_that_is_there_and_ends_where_the_batch_ends(
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    earliest: dict[TopicPartition, int],
) -> None:
    batch = plan_batch(starts, ends, earliest)
    assert {one.partition for one in batch.ranges} <= ends.keys()
    assert all(one.end_offset == ends[one.partition] for one in batch.ranges)
    assert not any(one.is_empty for one in batch.ranges)
    assert batch.added == ends.keys() - starts.keys()
    assert batch.gone == starts.keys() - ends.keys()


@given(OFFSETS, OFFSETS)
def test_what_the_logs_still_have_of_a_range_is_kept(
    starts: dict[TopicPartition, int], earliest: dict[TopicPartition, int]
) -> None:
    wanted = ranges_between(starts, dict.fromkeys(starts, 15))
    kept = keep_existing(wanted, earliest, dict.fromkeys(starts, 12))
    offsets = {(one.partition, n) for one in kept for n in range(one.start_offset, one.end_offset)}
    assert offsets == {
        (one.partition, offset)
        for one in wanted
        for offset in range(one.start_offset, one.end_offset)
        if earliest.get(one.partition, 0) <= offset < 12
    }


def test_clipping_to_nothing_gives_an_empty_range() -> None:
    assert clip(PartitionRange(ZERO, 3, 9), start_offset=20, end_offset=30).is_empty
