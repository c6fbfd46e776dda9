"""Which offsets a page reads, and where the next one goes on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.client.rules.offsets import OffsetRange
from moldau.console.records import (
    MAX_PARTITIONS,
    Cursor,
    Ranges,
    choose_partitions,
    count_offsets,
    forward_from,
    has_more,
    merge,
    newest,
    next_cursor,
    plan_page,
    rest_of,
)
from moldau.model import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def record(partition: int, offset: int, timestamp_ms: int) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, timestamp_ms, None, b"")


def browse(logs: dict[int, list[ConsumerRecord]], cursor: Cursor, bounds: Ranges, count: int):
    """All pages, as the data service reads them."""
    pages = []
    while has_more(cursor, bounds):
        planned = plan_page(cursor, bounds, count)
        found = [
            one
            for partition, (start, end) in planned.items()
            for one in logs[partition.partition]
            if start <= one.offset < end
        ]
        shown = merge(found, cursor, count)
        cursor = next_cursor(cursor, planned, found, shown)
        pages.append(shown)
    return pages


def test_empty_partitions_are_not_read_and_of_many_the_first() -> None:
    bounds = {TopicPartition("t", number): OffsetRange(0, number % 2) for number in range(400)}
    chosen = choose_partitions(bounds)
    assert len(chosen) == MAX_PARTITIONS
    assert chosen[0].partition == 1


def test_the_newest_are_merged_by_time_and_go_on_where_they_were_cut() -> None:
    bounds = {FIRST: OffsetRange(0, 3), SECOND: OffsetRange(0, 3)}
    logs = {
        0: [record(0, n, t) for n, t in enumerate((1, 3, 5))],
        1: [record(1, n, t) for n, t in enumerate((2, 4, 6))],
    }
    pages = browse(logs, newest(bounds), bounds, 4)
    assert [[one.timestamp_ms for one in page] for page in pages] == [[6, 5, 4, 3], [2, 1]]


def test_offsets_outside_the_log_are_moved_into_it() -> None:
    bounds = {FIRST: OffsetRange(10, 20), SECOND: OffsetRange(0, 5)}
    cursor = forward_from({FIRST: 3, SECOND: 99}, bounds)
    assert cursor.positions == {FIRST: 10, SECOND: 5}
    assert plan_page(cursor, bounds, 50) == {FIRST: OffsetRange(10, 20)}
    assert count_offsets(rest_of(cursor, bounds)) == 10


def test_a_stretch_without_records_is_passed_over() -> None:
    bounds = {FIRST: OffsetRange(0, 1000)}
    logs = {0: [record(0, 5, 1), record(0, 900, 2)]}
    for cursor in (newest(bounds), forward_from({FIRST: 0}, bounds)):
        found = [one.offset for page in browse(logs, cursor, bounds, 10) for one in page]
        assert sorted(found) == [5, 900]


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=30), min_size=1, max_size=5),
    st.integers(1, 12),
    st.booleans(),
)
def test_pages_together_are_every_record_once(
    times: list[list[int]], count: int, is_backward: bool
) -> None:
    logs = {
        number: [record(number, offset, at) for offset, at in enumerate(some)]
        for number, some in enumerate(times)
    }
    bounds = {
        TopicPartition("t", number): OffsetRange(0, len(some)) for number, some in logs.items()
    }
    cursor = newest(bounds) if is_backward else forward_from({}, bounds)
    pages = browse(logs, cursor, bounds, count)
    assert all(len(page) <= count for page in pages)
    found = [(one.partition, one.offset) for page in pages for one in page]
    assert sorted(found) == sorted((n, one.offset) for n, some in logs.items() for one in some)
    for number in logs:
        offsets = [offset for partition, offset in found if partition == number]
        assert offsets == sorted(offsets, reverse=is_backward)
