"""The offset index, against a plain list."""

from __future__ import annotations

from pathlib import Path
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.files import RealFiles
from moldau.storage.indexes import (
    OFFSET_ENTRY_BYTES,
    PENDING_LIMIT_BYTES,
    IndexedBatch,
    OffsetIndex,
)

BASE = 5000
PATH = Path("00000000000000005000.index")


@st.composite
def entry_lists(draw: st.DrawFn) -> list[IndexedBatch]:
    steps = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=60))
    offset, position, entries = BASE, 0, []
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        entries.append(IndexedBatch(offset, position))
    return entries


def an_index(entries: list[IndexedBatch], *, written: int = 0) -> OffsetIndex:
    """With so many of the entries in the file and the others in memory."""
    index = OffsetIndex(MemoryFiles(), PATH, BASE)
    index.start_empty()
    for number, entry in enumerate(entries):
        if number == written:
            index.write_out()
        index.add(*entry)
    return index


@given(entry_lists(), st.integers(0, 60), st.integers(BASE - 5, BASE + 3100))
def test_a_lookup_by_offset_finds_what_a_scan_finds(entries, written, target):
    index = an_index(entries, written=written)
    expected = [entry for entry in entries if entry.last_offset <= target]
    assert index.find_by_offset(target) == (expected[-1] if expected else None)


@given(entry_lists(), st.integers(0, 60), st.integers(0, 600_000))
def test_a_lookup_by_position_finds_what_a_scan_finds(entries, written, target):
    index = an_index(entries, written=written)
    expected = [entry for entry in entries if entry.position <= target]
    assert index.find_by_position(target) == (expected[-1] if expected else None)


@given(entry_lists(), st.integers(0, 60), st.integers(BASE - 5, BASE + 3100))
def test_truncation_keeps_the_entries_before_the_offset(entries, written, target):
    index = an_index(entries, written=written)
    index.truncate_to_offset(target)
    kept = [entry for entry in entries if entry.last_offset < target]
    assert len(index) == len(kept)
    assert index.last_entry() == (kept[-1] if kept else None)
    index.add(BASE + 4000, 700_000)
    assert index.find_by_offset(BASE + 9999) == IndexedBatch(BASE + 4000, 700_000)


def test_a_large_index_is_searched_without_reading_it_whole(tmp_path: Path):
    entries = [IndexedBatch(BASE + 10 * i, 4100 * i) for i in range(1, 20_000)]
    index = OffsetIndex(RealFiles(), tmp_path / PATH.name, BASE)
    index.start_empty()
    for entry in entries:
        index.add(*entry)
    ends = (0, BASE + 9, BASE + 10, BASE + 11, BASE + 55_555, BASE + 199_990, BASE * 100)
    in_order = range(BASE, BASE + 200_050, 977)
    for target in (*ends, *in_order, *reversed(in_order)):
        number = min(max(0, target - BASE) // 10, len(entries))
        assert index.find_by_offset(target) == (entries[number - 1] if number else None)
        assert index.find_by_position(number * 4100 + 5) == (
            entries[number - 1] if number else None
        )


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 700)),
            st.tuples(st.just("write out"), st.just(0)),
            st.tuples(st.just("truncate"), st.integers(0, 6000)),
            st.tuples(st.just("find"), st.integers(0, 6000)),
        ),
        max_size=30,
    )
)
def test_lookups_between_changes_find_what_a_scan_finds(steps):
    index, entries = an_index([]), []
    for step, number in steps:
        if step == "add":
            for _ in range(number):
                last = entries[-1] if entries else IndexedBatch(BASE, 0)
                entries.append(IndexedBatch(last.last_offset + 2, last.position + 100))
                index.add(*entries[-1])
        elif step == "write out":
            index.write_out()
        elif step == "truncate":
            index.truncate_to_offset(BASE + number)
            entries = [entry for entry in entries if entry.last_offset < BASE + number]
        else:
            found = [entry for entry in entries if entry.last_offset <= BASE + number]
            assert index.find_by_offset(BASE + number) == (found[-1] if found else None)
    assert len(index) == len(entries)


def test_the_file_has_kafkas_entries():
    files = MemoryFiles()
    index = OffsetIndex(files, PATH, BASE)
    index.start_empty()
    index.add(BASE + 1, 4200)
    index.add(BASE + 7, 8400)
    index.write_out()
    assert files.read(PATH).hex() == "000000010000106800000007000020d0"


def test_entries_wait_in_memory_until_there_are_many():
    files = MemoryFiles()
    index = OffsetIndex(files, PATH, BASE)
    index.start_empty()
    limit = PENDING_LIMIT_BYTES // OFFSET_ENTRY_BYTES
    for number in range(1, limit):
        index.add(BASE + number, number)
    assert files.size(PATH) == 0
    index.add(BASE + limit, limit)
    assert files.size(PATH) == PENDING_LIMIT_BYTES


def test_no_file_stays_open():
    files = MemoryFiles()
    index = OffsetIndex(files, PATH, BASE)
    index.start_empty()
    index.add(BASE + 1, 4200)
    index.write_out()
    index.find_by_offset(BASE + 5)
    index.sync()
    assert files.open_files == 0


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_the_zeros_of_a_preallocated_file_are_no_entries(count: int):
    files = MemoryFiles()
    entry = Struct(">II")
    data = b"".join(entry.pack(i, i * 4100) for i in range(1, count + 1))
    files.replace(PATH, data + bytes(10 * 1024))
    index = OffsetIndex(files, PATH, BASE)
    assert len(index) == count
    assert index.find_by_offset(BASE + 10**6) == (
        IndexedBatch(BASE + count, count * 4100) if count else None
    )
    index.add(BASE + 5000, count * 4100 + 1)
    index.write_out()
    assert files.read(PATH) == data + entry.pack(5000, count * 4100 + 1)


def test_half_an_entry_at_the_end_of_the_file_is_ignored():
    files = MemoryFiles()
    files.replace(PATH, Struct(">II").pack(3, 4100) + b"\x00\x00\x00")
    index = OffsetIndex(files, PATH, BASE)
    assert index.last_entry() == IndexedBatch(BASE + 3, 4100)


def test_an_absent_file_is_an_empty_index():
    assert OffsetIndex(MemoryFiles(), PATH, BASE).find_by_offset(BASE) is None
