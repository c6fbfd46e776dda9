"""One segment: its index entries, its lookups, its recovery."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_bench import START_MS, batch_of

from moldau.records.batch_header import read_header, stamp
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.files import OpenFiles
from moldau.storage.segment import Boundary, Segment

BASE = 100
FOLDER = Path("clicks-0")
NOW_MS = START_MS


def a_segment(files: MemoryFiles | None = None) -> Segment:
    files = files or MemoryFiles()
    files.make_folder(FOLDER)
    return Segment.create(OpenFiles(files), FOLDER, BASE, NOW_MS)


def append(segment: Segment, base_offset: int, count: int, size: int, interval: int, ts=NOW_MS):
    batch, header = batch_of(count, value=b"v" * size, timestamp_ms=ts)
    stamp(batch, base_offset, 3)
    position = segment.size_bytes
    segment.append(batch, len(batch), base_offset + count - 1, header.max_timestamp, interval)
    return position, read_header(batch)


def filled(shapes: list[tuple[int, int]], interval: int):
    segment = a_segment()
    offset, batches = BASE, []
    for count, size in shapes:
        batches.append(append(segment, offset, count, size, interval))
        offset += count
    return segment, batches


shapes = st.lists(st.tuples(st.integers(1, 5), st.integers(0, 900)), min_size=1, max_size=40)
intervals = st.sampled_from([0, 200, 1000, 4096])


@given(shapes, intervals, st.integers(BASE - 1, BASE + 210))
def test_an_offset_is_found_where_a_scan_finds_it(shapes, interval, target):
    segment, batches = filled(shapes, interval)
    expected = next((b for b in batches if b[1].last_offset >= target), None)
    found = segment.find_batch(target)
    assert found == (None if expected is None else Boundary(expected[0], expected[1].base_offset))


@given(shapes, intervals, st.data())
def test_a_limit_is_rounded_down_to_a_batch_boundary(shapes, interval, data):
    segment, batches = filled(shapes, interval)
    start = data.draw(st.sampled_from([position for position, _ in batches]))
    limit = data.draw(st.integers(start, segment.size_bytes - 1))
    behind = [b for b in batches if start < b[0] <= limit]
    expected = Boundary(behind[-1][0], behind[-1][1].base_offset) if behind else None
    assert segment.find_boundary(start, limit) == expected


@given(shapes, intervals)
def test_entries_are_those_of_kafka(shapes, interval):
    """LogSegment.append: an entry for a batch once more than the interval lies behind the last."""
    segment, batches = filled(shapes, interval)
    expected, since = [], 0
    for position, header in batches:
        if since > interval:
            expected.append((header.last_offset - BASE, position))
            since = 0
        since += header.size_bytes
    segment.write_out_indexes()
    data = segment._open_files.files.read(segment.offset_index.path)
    assert list(Struct(">II").iter_unpack(data)) == expected


@given(shapes, intervals)
def test_recovery_rebuilds_the_indexes_as_they_were(shapes, interval):
    segment, batches = filled(shapes, interval)
    segment.seal()
    files = segment._open_files.files
    paths = (segment.offset_index.path, segment.time_index.path)
    before = [files.read(path) for path in paths]
    for path in paths:
        files.replace(path, b"rubbish, and more of it")
    again = Segment(
        OpenFiles(files), FOLDER, BASE, size_bytes=segment.size_bytes, created_ms=NOW_MS
    )
    seen = []
    assert again.recover(lambda position, header: seen.append((position, header)), interval) == 0
    assert [files.read(path) for path in paths] == before
    assert seen == batches
    assert again.size_bytes == segment.size_bytes
    assert again.largest_timestamp() == segment.largest_timestamp()


@given(shapes, intervals, st.data())
def test_appending_goes_on_after_opening_as_if_it_had_never_stopped(shapes, interval, data):
    segment, batches = filled(shapes, interval)
    segment.write_out_indexes()
    files = segment._open_files.files
    again = Segment(
        OpenFiles(files), FOLDER, BASE, size_bytes=segment.size_bytes, created_ms=NOW_MS
    )
    assert again.prepare_to_append() == batches[-1][1].next_offset
    for each in (segment, again):
        append(each, batches[-1][1].next_offset, 2, 300, interval, ts=NOW_MS + 50)
    assert again.offset_index.last_entry() == segment.offset_index.last_entry()
    assert again.first_timestamp == segment.first_timestamp
    assert again.max_timestamp == segment.max_timestamp
    assert again.max_timestamp_offset == segment.max_timestamp_offset


@given(shapes, intervals, st.data())
def test_truncation_removes_the_batch_that_holds_the_offset_and_all_behind(shapes, interval, data):
    segment, batches = filled(shapes, interval)
    target = data.draw(st.integers(BASE, batches[-1][1].last_offset))
    kept = [b for b in batches if b[1].last_offset < target]
    next_offset = segment.truncate_to(target)
    assert next_offset == (kept[-1][1].next_offset if kept else BASE)
    assert segment.size_bytes == sum(header.size_bytes for _, header in kept)
    assert segment.opened().size() == segment.size_bytes
    last = segment.offset_index.last_entry()
    assert last is None or last.last_offset < target
    assert segment.largest_timestamp() == max((h.max_timestamp for _, h in kept), default=-1)


def test_a_time_index_ends_with_the_youngest_timestamp_once_sealed():
    segment = a_segment()
    append(segment, BASE, 1, 10, 4096, ts=NOW_MS + 500)
    append(segment, BASE + 1, 1, 10, 4096, ts=NOW_MS)
    assert segment.time_index.last_entry() is None
    segment.seal()
    assert segment.time_index.last_entry() == (NOW_MS + 500, BASE)


def test_a_deleted_segment_is_renamed_and_still_readable():
    files = MemoryFiles()
    segment = a_segment(files)
    append(segment, BASE, 1, 10, 4096)
    file = segment.opened()
    segment.mark_deleted()
    assert [name for name in files.list_folder(FOLDER) if not name.endswith(".deleted")] == []
    assert len(file.read_at(0, 1000)) == segment.size_bytes
    assert segment.find_batch(BASE) == Boundary(0, BASE)


@pytest.mark.parametrize("offset", [BASE - 1, BASE + 2**31])
def test_recovery_cuts_a_batch_whose_offset_cannot_be_here(offset: int):
    files = MemoryFiles()
    segment = a_segment(files)
    append(segment, BASE, 1, 10, 4096)
    good = segment.size_bytes
    append(segment, offset, 1, 10, 4096)
    assert segment.recover(lambda position, header: None, 4096) > 0
    assert segment.size_bytes == good
