"""The index of aborted transactions."""

from __future__ import annotations

from pathlib import Path

from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.transaction_index import ENTRY_BYTES, AbortedTransaction, TransactionIndex

PATH = Path("00000000000000000000.txnindex")
FIRST = AbortedTransaction(7, 10, 20, 15)
SECOND = AbortedTransaction(8, 15, 30, 31)


def an_index(files: MemoryFiles | None = None) -> TransactionIndex:
    index = TransactionIndex(files or MemoryFiles(), PATH)
    index.append(FIRST)
    index.append(SECOND)
    return index


def test_the_file_has_kafkas_entries():
    files = MemoryFiles()
    an_index(files)
    data = files.read(PATH)
    assert len(data) == 2 * ENTRY_BYTES
    assert data[:ENTRY_BYTES].hex() == (
        "00000000000000000007000000000000000a0000000000000014000000000000000f"
    )


def test_a_range_finds_the_transactions_with_records_in_it():
    index = an_index()
    assert index.find_overlapping(0, 11) == [FIRST]
    assert index.find_overlapping(0, 10) == []
    assert index.find_overlapping(20, 21) == [FIRST, SECOND]
    assert index.find_overlapping(21, 100) == [SECOND]
    assert index.find_overlapping(31, 100) == []


def test_later_segments_are_needed_only_below_the_last_stable_offset():
    index = an_index()
    assert index.covers(31)
    assert not index.covers(32)


def test_truncation_forgets_what_ended_at_or_after_the_offset():
    files = MemoryFiles()
    index = an_index(files)
    index.truncate_to_offset(30)
    assert index.entries() == [FIRST]
    index.append(SECOND)
    assert TransactionIndex(files, PATH).entries() == [FIRST, SECOND]


def test_an_index_opened_again_is_appended_behind_its_entries():
    files = MemoryFiles()
    an_index(files)
    third = AbortedTransaction(9, 40, 50, 51)
    TransactionIndex(files, PATH).append(third)
    assert TransactionIndex(files, PATH).entries() == [FIRST, SECOND, third]


def test_there_is_no_file_where_nothing_was_aborted():
    files = MemoryFiles()
    index = TransactionIndex(files, PATH)
    assert index.entries() == []
    index.sync()
    assert not files.exists(PATH)


def test_what_was_looked_at_when_the_log_was_opened_is_not_read_again():
    """Checkpoints ask for it on the event loop."""
    files = MemoryFiles()
    digest = an_index(files).digest
    opened = TransactionIndex(files, PATH)
    assert opened.is_sound(0, None)
    files.remove(PATH)
    assert opened.digest == digest
