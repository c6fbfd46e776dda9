"""What a batch of a streaming query reads, and what is missing from it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.spark.rules.offset_ranges import (
    PartitionRange,
    TriggerLimits,
    clip_range,
    find_beyond,
    find_deleted,
    find_losses,
    keep_existing,
    limit_bytes,
    limit_ends,
    may_wait_for_more,
    pack_tasks,
    plan_batch,
    plan_tasks,
    ranges_between,
    share_out,
)

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
    assert clip_range(PartitionRange(ZERO, 3, 9), start_offset=20, end_offset=30).is_empty


PARTITIONS = [TopicPartition("t", number) for number in range(5)]
FIRST, SECOND = PARTITIONS[:2]
BACKLOGS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 10_000))


@given(BACKLOGS, st.integers(1, 20_000))
def test_shares_add_up_to_the_limit_and_none_is_more_than_waits(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    shares = share_out(backlog, limit)
    assert shares.keys() == backlog.keys()
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= shares[one] <= backlog[one] for one in backlog)


@given(BACKLOGS, st.integers(5, 20_000))
def test_no_partition_with_records_is_left_out_while_the_limit_reaches(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    shares = share_out(backlog, limit)
    assert all(shares[one] > 0 for one, waiting in backlog.items() if waiting)


def test_shares_follow_the_backlog() -> None:
    assert share_out({FIRST: 9_001, SECOND: 1_001}, 1_002) == {FIRST: 901, SECOND: 101}


@given(BACKLOGS, st.integers(1, 10**6), st.floats(0.1, 5000))
def test_bytes_are_kept_to_but_something_is_always_read(
    backlog: dict[TopicPartition, int], max_bytes: int, mean: float
) -> None:
    sizes = dict.fromkeys(backlog, mean)
    shares = limit_bytes(backlog, max_bytes, sizes)
    total = sum(shares.values())
    assert total * mean <= max(max_bytes, mean)
    assert bool(total) == any(backlog.values())


def test_without_limits_a_batch_takes_all() -> None:
    ends = {FIRST: 70, SECOND: 5}
    assert limit_ends({FIRST: 3}, ends, TriggerLimits(), {}) == ends


def test_a_batch_ends_early_by_its_limit_and_names_every_partition() -> None:
    found = limit_ends(
        {FIRST: 100, SECOND: 7}, {FIRST: 300, SECOND: 7}, TriggerLimits(max_offsets=50), {}
    )
    assert found == {FIRST: 150, SECOND: 7}


def test_a_log_that_was_cut_is_followed_back() -> None:
    assert limit_ends({FIRST: 100}, {FIRST: 40}, TriggerLimits(max_offsets=5), {}) == {FIRST: 40}


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    limits = TriggerLimits(min_offsets=10, max_delay_ms=1000)
    assert may_wait_for_more({FIRST: 0}, {FIRST: 9}, limits, 500.0)
    assert not may_wait_for_more({FIRST: 0}, {FIRST: 10}, limits, 500.0)
    assert not may_wait_for_more({FIRST: 0}, {FIRST: 9}, limits, 1000.0)


def test_the_first_batch_of_a_run_does_not_wait() -> None:
    assert not may_wait_for_more({FIRST: 0}, {FIRST: 1}, TriggerLimits(min_offsets=10), None)


def test_nothing_waits_without_a_minimum() -> None:
    assert not may_wait_for_more({FIRST: 0}, {FIRST: 0}, TriggerLimits(max_offsets=1), 0.0)


CLICKS_0, CLICKS_1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), max_size=5).map(
    lambda rows: [
        PartitionRange(TopicPartition("t", number), start, start + size)
        for number, (start, size) in enumerate(rows)
    ]
)
LIMITS = st.none() | st.integers(1, 20)
NO_LIMIT = 1 << 60


def places(ranges: list[PartitionRange]) -> list[tuple[TopicPartition, int]]:
    return [(one.partition, n) for one in ranges for n in range(one.start_offset, one.end_offset)]


def test_by_default_a_partition_is_a_task() -> None:
    ranges = [PartitionRange(CLICKS_0, 0, 10), PartitionRange(CLICKS_1, 5, 5)]
    assert plan_tasks(ranges) == [PartitionRange(CLICKS_0, 0, 10)]


def test_the_longest_ranges_are_cut_to_have_so_many_tasks() -> None:
    ranges = [PartitionRange(CLICKS_0, 0, 90), PartitionRange(CLICKS_1, 0, 10)]
    tasks = plan_tasks(ranges, min_partitions=4)
    assert tasks == [
        PartitionRange(CLICKS_0, 0, 30),
        PartitionRange(CLICKS_0, 30, 60),
        PartitionRange(CLICKS_0, 60, 90),
        PartitionRange(CLICKS_1, 0, 10),
    ]


def test_a_task_has_no_more_records_than_it_may() -> None:
    tasks = plan_tasks([PartitionRange(CLICKS_0, 7, 17)], max_records_per_partition=4)
    assert [one.size for one in tasks] == [3, 3, 4]


@given(RANGES, LIMITS, LIMITS)
def test_tasks_cover_what_was_asked_for_once_and_in_order(
    ranges: list[PartitionRange], min_partitions: int | None, max_records: int | None
) -> None:
    tasks = plan_tasks(ranges, min_partitions=min_partitions, max_records_per_partition=max_records)
    assert places(tasks) == places(ranges)
    assert not any(one.is_empty for one in tasks)


@given(RANGES, LIMITS, LIMITS)
def test_tasks_keep_to_both_limits_as_far_as_there_are_offsets(
    ranges: list[PartitionRange], min_partitions: int | None, max_records: int | None
) -> None:
    tasks = plan_tasks(ranges, min_partitions=min_partitions, max_records_per_partition=max_records)
    if max_records is not None:
        assert all(one.size <= max_records for one in tasks)
    if min_partitions is not None:
        assert len(tasks) >= min(min_partitions, len(places(ranges)))


def ranges_of(*sizes: int) -> list[PartitionRange]:
    return [
        PartitionRange(TopicPartition("t", number), 0, size) for number, size in enumerate(sizes)
    ]


def packed_sizes(*sizes: int, **limits: int) -> list[list[int]]:
    return [[one.size for one in task] for task in pack_tasks(ranges_of(*sizes), **limits)]


def test_short_ranges_are_one_task_where_that_is_asked_for() -> None:
    assert packed_sizes(3, 4, 5, 6) == [[3], [4], [5], [6]]
    assert packed_sizes(3, 4, 5, 6, min_records_per_partition=7) == [[3, 4], [5, 6]]
    assert packed_sizes(9, 1, 1, 9, min_records_per_partition=9) == [[9], [1, 1, 9]]
    assert packed_sizes(1, 1, 1, min_records_per_partition=100) == [[1, 1, 1]]
    assert packed_sizes(min_records_per_partition=100) == []


def test_the_other_limits_go_before_packing() -> None:
    assert packed_sizes(1, 1, 1, 1, min_records_per_partition=9, min_partitions=3) == [
        [1, 1],
        [1],
        [1],
    ]
    assert packed_sizes(3, 3, 3, min_records_per_partition=9, max_records_per_partition=6) == [
        [3, 3],
        [3],
    ]


@given(RANGES, LIMITS, LIMITS, LIMITS)
def test_packed_tasks_are_what_was_planned(
    ranges: list[PartitionRange],
    min_records: int | None,
    min_partitions: int | None,
    max_records: int | None,
) -> None:
    planned = plan_tasks(
        ranges, min_partitions=min_partitions, max_records_per_partition=max_records
    )
    packed = pack_tasks(
        planned,
        min_records_per_partition=min_records,
        min_partitions=min_partitions,
        max_records_per_partition=max_records,
    )
    assert [one for task in packed for one in task] == planned
    assert all(packed)
    assert len(packed) >= min(min_partitions or 0, len(planned))
    assert all(
        len(task) == 1 or sum(one.size for one in task) <= (max_records or NO_LIMIT)
        for task in packed
    )
