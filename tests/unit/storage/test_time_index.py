"""The time index, against a plain list."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.indexes import IndexedTime, TimeIndex

BASE = 70
PATH = Path("00000000000000000070.timeindex")

steps = st.lists(st.tuples(st.integers(-3, 9), st.integers(0, 5)), max_size=40)


def filled(steps_taken: list[tuple[int, int]]) -> tuple[TimeIndex, list[IndexedTime]]:
    """An index that was offered each timestamp, and the entries that it should have."""
    index = TimeIndex(MemoryFiles(), PATH, BASE)
    index.start_empty()
    timestamp, offset, entries = 1000, BASE, []
    for timestamp_step, offset_step in steps_taken:
        timestamp, offset = timestamp + timestamp_step, offset + offset_step
        if not entries or timestamp > entries[-1].timestamp_ms:
            entries.append(IndexedTime(timestamp, offset))
        index.maybe_add(timestamp, offset)
    return index, entries


@given(steps, st.integers(990, 1400))
def test_a_lookup_finds_what_a_scan_finds(steps_taken, target):
    index, entries = filled(steps_taken)
    expected = [entry for entry in entries if entry.timestamp_ms <= target]
    assert index.find_by_timestamp(target) == (expected[-1] if expected else None)


@given(steps, st.integers(BASE, BASE + 200))
def test_truncation_keeps_the_entries_before_the_offset(steps_taken, target):
    index, entries = filled(steps_taken)
    index.truncate_to_offset(target)
    kept = [entry for entry in entries if entry.offset < target]
    assert index.last_entry() == (kept[-1] if kept else None)
    newest = kept[-1].timestamp_ms if kept else 0
    index.maybe_add(newest, BASE + 300)
    assert len(index) == len(kept) + (0 if kept else 1)
    index.maybe_add(newest + 1, BASE + 301)
    assert index.last_entry() == IndexedTime(newest + 1, BASE + 301)


def test_the_file_has_kafkas_entries():
    files = MemoryFiles()
    index = TimeIndex(files, PATH, BASE)
    index.start_empty()
    index.maybe_add(1_700_000_000_000, BASE + 3)
    index.write_out()
    assert files.read(PATH).hex() == "0000018bcfe5680000000003"


def test_the_zeros_of_a_preallocated_file_are_no_entries():
    files = MemoryFiles()
    files.replace(PATH, bytes.fromhex("0000018bcfe5680000000003") + bytes(12 * 100))
    index = TimeIndex(files, PATH, BASE)
    assert index.last_entry() == IndexedTime(1_700_000_000_000, BASE + 3)
    index.maybe_add(1_700_000_000_000, BASE + 9)
    assert len(index) == 1


def test_lookups_pass_over_a_file_that_is_being_truncated():
    """The file becomes shorter a moment before the index knows: a worker may read in between."""
    files = MemoryFiles()
    index = TimeIndex(files, PATH, BASE)
    index.start_empty()
    for number in range(10):
        index.maybe_add(1000 + number, BASE + number)
    index.write_out()
    file = files.open(PATH)
    file.truncate(0)
    file.close()
    assert index.find_by_timestamp(1005) is None
    assert index.find_by_timestamp(1005) is None  # not by what the first lookup has kept
