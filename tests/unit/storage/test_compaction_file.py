"""What a round of compaction has compared and dropped is known when the round is cut short."""

from __future__ import annotations

import asyncio
import json

import pytest
from cleaner_bench import COMPACTED, clean_now, put, put_rounds, table_of
from log_bench import LogBench
from test_log_branch import branch
from test_log_branch import run as branching
from test_log_moves import MORE, moving, run_moves
from test_log_store import CLICKS, Bench

from moldau.model import Offset
from moldau.storage.checkpoint_files import (
    CompactionOffsets,
    read_compaction_offsets,
    write_compaction_offsets,
)
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.storage.rules.file_names import COMPACTION_OFFSETS_FILE

OFFSETS = CompactionOffsets(compared_offset=12, dropped_offset=7)


def test_a_log_knows_of_dropped_tombstones_without_any_checkpoint(memory_bench: LogBench):
    """A broker that is killed right behind a round must not let a follower go on (REP-9)."""
    bench = memory_bench
    log = bench.create(**COMPACTED, delete_retention_ms=1000)
    put_rounds(bench, log, 4)
    put(bench, log, {b"key-0": None})
    for _ in range(2):
        put(bench, log, {b"other": b"x" * 200})
        put(bench, log, {b"other": b"x" * 200})
        clean_now(bench, log)
        asyncio.run(bench.clock.advance(1.0))
    assert b"key-0" not in table_of(log)
    known = log.compaction_offsets
    assert known.dropped_offset > 12
    assert bench.load().compaction_offsets == known


def test_it_says_nothing_of_a_log_that_was_never_compacted(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create()
    bench.append(log, 3)
    assert COMPACTION_OFFSETS_FILE not in bench.files.list_folder(bench.folder)
    assert bench.load().compaction_offsets == CompactionOffsets()


def test_it_says_nothing_of_what_is_behind_the_end(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create()
    bench.append(log, 10)
    write_compaction_offsets(bench.files, bench.folder, OFFSETS)
    assert bench.load().compaction_offsets == CompactionOffsets(10, 7)


@pytest.mark.parametrize(
    "change", [{"comparedOffset": 13}, {"droppedOffset": -1}, {"crc": 0}, {"droppedOffset": None}]
)
def test_a_damaged_file_is_passed_over(memory_bench: LogBench, change: dict[str, int]):
    files, folder = memory_bench.files, memory_bench.root
    write_compaction_offsets(files, folder, OFFSETS)
    assert read_compaction_offsets(files, folder) == OFFSETS
    path = folder / COMPACTION_OFFSETS_FILE
    fields = json.loads(files.read(path)) | change
    files.replace(path, json.dumps(fields).encode())
    assert read_compaction_offsets(files, folder) == CompactionOffsets()
    files.replace(path, b"")
    assert read_compaction_offsets(files, folder) == CompactionOffsets()


def test_it_goes_along_with_a_log_that_moves():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.compared_offset, log.dropped_offset = map(Offset, OFFSETS)
        await log.flush()
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store)
        assert log.folder == MORE / "clicks-0"
        assert read_compaction_offsets(bench.files, log.folder) == OFFSETS
        await store.close()
        store = await bench.open()
        assert store.logs[CLICKS].compaction_offsets == OFFSETS
        await store.close()

    moving(story)


def test_a_branch_has_what_its_origin_has_as_far_as_it_goes():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.compared_offset, log.dropped_offset = map(Offset, OFFSETS)
        made = await branch(store, log, end_offset=9)
        assert made.compaction_offsets == CompactionOffsets(9, 7)

    branching(story)
