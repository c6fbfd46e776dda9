"""Reading ranges: batch boundaries, limits, ends."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_bench import LogBench, batch_of, headers_in, offsets_of, read_all

from moldau.errors import OffsetOutOfRangeError
from moldau.storage.local_log import GENERATION_SIZE, MOST_CUTS, PositionHints
from moldau.storage.segment import Boundary, Segment


def filled(bench: LogBench, counts: list[int], **values: object):
    log = bench.create(**values)
    for count in counts:
        bench.append(log, count)
    return log


def read(log, offset: int, max_bytes: int = 1 << 20, end: int | None = None, min_one: bool = True):
    found = log.read(
        offset, max_bytes, end_offset=log.log_end_offset if end is None else end, min_one=min_one
    )
    headers = headers_in(found.slice.read()) if found.slice is not None else []
    return [header.base_offset for header in headers], found.end_offset


def test_an_offset_inside_a_batch_gets_the_whole_batch(bench: LogBench):
    log = filled(bench, [3, 3, 3])
    assert read(log, 4) == ([3, 6], 9)


def test_the_end_of_the_log_is_empty_and_in_range(bench: LogBench):
    log = filled(bench, [3])
    assert read(log, 3) == ([], 3)


@pytest.mark.parametrize("offset", [-1, 4])
def test_what_is_not_in_the_log_is_out_of_range(bench: LogBench, offset: int):
    log = filled(bench, [3])
    with pytest.raises(OffsetOutOfRangeError):
        read(log, offset)


def test_what_was_deleted_is_out_of_range(bench: LogBench):
    log = filled(bench, [3, 3])
    log.advance_start(2)
    with pytest.raises(OffsetOutOfRangeError):
        read(log, 1)
    assert read(log, 2) == ([0, 3], 6)


def test_a_read_ends_before_the_end_offset(bench: LogBench):
    log = filled(bench, [3, 3, 3])
    assert read(log, 0, end=6) == ([0, 3], 6)
    assert read(log, 6, end=6) == ([], 6)
    assert read(log, 7, end=6) == ([], 7)


def test_a_batch_that_reaches_past_the_end_offset_is_left_out(bench: LogBench):
    log = filled(bench, [3, 3, 3])
    assert read(log, 0, end=5)[0] == [0]
    assert read(log, 3, end=5)[0] == []


def test_a_limit_is_kept_on_a_batch_boundary(bench: LogBench):
    log = filled(bench, [1, 1, 1])
    size = len(batch_of()[0])
    assert read(log, 0, max_bytes=2 * size) == ([0, 1], 2)
    assert read(log, 0, max_bytes=2 * size - 1) == ([0], 1)
    assert read(log, 0, max_bytes=3 * size - 1) == ([0, 1], 2)


def test_a_batch_larger_than_the_limit_is_still_delivered_when_asked_for(bench: LogBench):
    log = filled(bench, [1, 1])
    assert read(log, 0, max_bytes=1) == ([0], 1)
    assert read(log, 1, max_bytes=0) == ([1], 2)
    assert read(log, 0, max_bytes=1, min_one=False) == ([], 0)


def test_a_read_does_not_cross_segments_and_goes_on_in_the_next(bench: LogBench):
    size = len(batch_of()[0])
    log = filled(bench, [1] * 5, segment_bytes=2 * size)
    assert read(log, 0) == ([0, 1], 2)
    assert read(log, 2) == ([2, 3], 4)
    assert read(log, 4) == ([4], 5)
    assert offsets_of(read_all(log)) == [0, 1, 2, 3, 4]


def test_a_reader_that_waits_at_the_end_goes_on_in_a_new_segment(bench: LogBench):
    size = len(batch_of()[0])
    log = filled(bench, [1, 1], segment_bytes=2 * size)
    assert read(log, 2) == ([], 2)
    bench.append(log)
    assert len(log.segments) == 2
    assert read(log, 2) == ([2], 3)


def test_a_slice_outlives_its_segment(bench: LogBench):
    size = len(batch_of()[0])
    log = filled(bench, [1, 1, 1], segment_bytes=size, retention_ms=0)
    found = log.read(0, 1000, end_offset=3, min_one=True)
    bench.clock.jump(3600)
    assert log.delete_old_segments(bench.clock.now_ms(), 3) == 3
    for removal in bench.directory.to_remove:
        for path in removal.paths:
            bench.files.remove(path)
    assert found.slice is not None
    assert [header.base_offset for header in headers_in(found.slice.read())] == [0]


@given(
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=25),
    segment_batches=st.integers(1, 30),
    reads=st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 1500), st.integers(0, 100), st.booleans()),
        max_size=30,
    ),
    interval=st.sampled_from([0, 150, 4096]),
)
def test_any_read_gives_what_a_plain_list_of_batches_gives(
    memory_bench_factory, counts, segment_batches, reads, interval
):
    bench = memory_bench_factory()
    size = len(batch_of(4)[0])
    log = filled(bench, counts, segment_bytes=segment_batches * size, index_interval_bytes=interval)
    batches = read_all(log)
    bases = [segment.base_offset for segment in log.segments]
    for offset, max_bytes, end, min_one in reads:
        offset, end = offset % (log.log_end_offset + 1), end % (log.log_end_offset + 1)
        found = read(log, offset, max_bytes, end, min_one)[0]
        wanted = [b for b in batches if b.last_offset >= offset and b.last_offset < end]
        if wanted:
            segment = max(base for base in bases if base <= wanted[0].base_offset)
            following = min((base for base in bases if base > segment), default=1 << 62)
            wanted = [b for b in wanted if b.base_offset < following]
        total, fitting = 0, []
        for number, batch in enumerate(wanted):
            total += batch.size_bytes
            if total > max_bytes and not (number == 0 and min_one):
                break
            fitting.append(batch.base_offset)
        assert found == (fitting if offset < end else [])


def test_of_many_that_begin_at_an_offset_only_the_first_searches(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
):
    log = filled(bench, [3] * (3 * GENERATION_SIZE))  # its first batches are not in the table
    searched: list[int] = []
    find_batch = Segment.find_batch

    def note(segment: Segment, offset: int) -> Boundary | None:
        searched.append(offset)
        return find_batch(segment, offset)

    monkeypatch.setattr(Segment, "find_batch", note)
    for _ in range(5):
        assert read(log, 4, max_bytes=1) == ([3], 6)
    assert searched == [4]


def test_hints_forget_what_nobody_asked_for():
    hints = PositionHints()
    place = (Segment.__new__(Segment), 5)
    hints.remember(1, place)
    for offset in range(100, 100 + GENERATION_SIZE):
        hints.remember(offset, place)
    assert hints.find(1) == place  # asked for, so it is young again
    for offset in range(200, 200 + GENERATION_SIZE):
        hints.remember(offset, place)
    assert hints.find(1) == place
    for offset in range(300, 300 + 2 * GENERATION_SIZE):
        hints.remember(offset, place)
    assert hints.find(1) is None
    assert len(hints) <= 2 * GENERATION_SIZE


def test_only_the_first_of_many_readers_looks_for_the_end_of_a_range(
    bench: LogBench, monkeypatch: pytest.MonkeyPatch
):
    log = filled(bench, [1, 1, 1, 1])
    limit = log.size_bytes // 2 + 1
    looks: list[int] = []
    find_boundary = Segment.find_boundary

    def look(segment: Segment, start: int, end: int):
        looks.append(start)
        return find_boundary(segment, start, end)

    monkeypatch.setattr(Segment, "find_boundary", look)
    assert [read(log, 0, limit) for _ in range(5)] == [([0, 1], 2)] * 5
    assert len(looks) == 1
    assert read(log, 0, limit, end=1) == ([0], 1)  # less is committed: nothing is cut


def test_where_a_range_was_cut_is_forgotten_with_a_truncation(bench: LogBench):
    log = filled(bench, [1, 1, 1, 1])
    limit = log.size_bytes // 2 + 1
    assert read(log, 0, limit) == ([0, 1], 2)
    log.truncate_to(1)
    bench.append(log, 1, value=b"a longer value than before")
    bench.append(log, 1)
    assert read(log, 0, limit) == ([0], 1)


def test_few_cuts_are_remembered():
    hints = PositionHints()
    segment = Segment.__new__(Segment)
    for start in range(10 * MOST_CUTS):
        hints.remember_cut((segment, start, 5, True), Boundary(start + 5, 1))
    known = [start for start in range(10 * MOST_CUTS) if hints.find_cut((segment, start, 5, True))]
    assert 0 < len(known) <= MOST_CUTS
    hints.clear()
    assert hints.find_cut((segment, known[-1], 5, True)) is None
