"""Into which tasks ranges are cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.spark.rules.ranges import PartitionRange
from moldau.spark.rules.task_planning import pack_tasks, plan_tasks

ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)

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
    ranges = [PartitionRange(ZERO, 0, 10), PartitionRange(ONE, 5, 5)]
    assert plan_tasks(ranges) == [PartitionRange(ZERO, 0, 10)]


def test_the_longest_ranges_are_cut_to_have_so_many_tasks() -> None:
    ranges = [PartitionRange(ZERO, 0, 90), PartitionRange(ONE, 0, 10)]
    tasks = plan_tasks(ranges, min_partitions=4)
    assert tasks == [
        PartitionRange(ZERO, 0, 30),
        PartitionRange(ZERO, 30, 60),
        PartitionRange(ZERO, 60, 90),
        PartitionRange(ONE, 0, 10),
    ]


def test_a_task_has_no_more_records_than_it_may() -> None:
    tasks = plan_tasks([PartitionRange(ZERO, 7, 17)], max_records_per_partition=4)
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
