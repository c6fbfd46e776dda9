"""Where a log begins is known when the checkpoint of its directory is lost (LOG-12)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from log_bench import START_MS, batch_of, offsets_of, options, read_all

from moldau.config.broker_options import BrokerOptions
from moldau.model import TopicId, TopicPartition
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.checkpoint_files import read_log_start, write_log_start
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.storage.rules.file_names import (
    CLEAN_SHUTDOWN_FILE,
    LOG_START_OFFSET_FILE,
    LOG_START_OFFSETS_FILE,
)
from moldau.workers import InlineWorkers

CLICKS = TopicPartition("clicks", 0)
DATA = Path("data")
FOLDER = DATA / "clicks-0"
CHECKPOINT = DATA / LOG_START_OFFSETS_FILE
OWN = FOLDER / LOG_START_OFFSET_FILE
RECORDS = 12  # in batches of one, three to a segment


class Bench:
    """A machine on which stores are opened one after the other."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.clock = ManualClock()

    def directory_failed(self, folder: Path, error: OSError) -> None:
        raise AssertionError(f"{folder} has failed: {error}")

    async def open(self) -> LogStore:
        store = LogStore(
            (DATA,),
            files=self.files,
            clock=self.clock,
            workers=InlineWorkers(),
            options=lambda: BrokerOptions.resolve({}),
            failures=self,
            random=Random(1),
        )
        await store.open()
        return store


def play(story: Callable[[Bench, LogStore, Log], Awaitable[None]]) -> None:
    async def run() -> None:
        bench = Bench()
        store = await bench.open()
        batch, header = batch_of(1)
        terms = options(segment_bytes=3 * len(batch))
        log = await store.create_log(CLICKS, TopicId(UUID(int=1)), terms)
        for _ in range(RECORDS):
            batch, header = batch_of(1)
            log.append(batch, header, leader_epoch=0, now_ms=START_MS)
        await log.flush()
        await story(bench, store, log)

    asyncio.run(run())


async def start_of(bench: Bench) -> tuple[int, int]:
    """Where the log begins by its own account, and by what can be read of it."""
    store = await bench.open()
    log = store.logs[CLICKS]
    found = log.log_start_offset, offsets_of(read_all(log))[0]
    await store.close()
    return found


@pytest.mark.parametrize("damage", [None, b"", b"0\n7\n", b"0\n1\nclicks 0 x\n"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_deleted_stays_so_when_the_checkpoint_is_lost(
    damage: bytes | None, is_killed: bool
) -> None:
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.advance_start(4)
        await store.checkpoints.write_all()
        await store.close()
        if is_killed:
            bench.files.remove(DATA / CLEAN_SHUTDOWN_FILE)
        if damage is None:
            bench.files.remove(CHECKPOINT)
        else:
            bench.files.replace(CHECKPOINT, damage)
        assert await start_of(bench) == (4, 4)
        assert await start_of(bench) == (4, 4)  # and the checkpoint says it again
        bench.files.remove(OWN)
        assert await start_of(bench) == (4, 4)

    play(story)


def test_a_checkpoint_that_is_there_knows_more() -> None:
    """A Kafka may have had the folder meanwhile, which passes over the log's own file."""

    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.advance_start(4)
        await store.close()
        for content, start in ((b"0\n1\nclicks 0 8\n", 8), (b"0\n0\n", 0)):
            bench.files.replace(CHECKPOINT, content)
            assert (await start_of(bench))[0] == start
            write_log_start(bench.files, FOLDER, 4)

    play(story)


def test_a_log_that_begins_again_before_that_is_read_from_there() -> None:
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.advance_start(10)
        await store.checkpoints.write_all()
        await store.checkpoints.prepare_truncation(log, 3)
        log.truncate_fully(3)
        await store.checkpoints.complete_truncation(log)
        for _ in range(RECORDS):
            batch, header = batch_of(1)
            log.append(batch, header, leader_epoch=1, now_ms=START_MS)
        await store.close()
        bench.files.remove(CHECKPOINT)
        assert await start_of(bench) == (3, 3)

    play(story)


def test_nothing_is_noted_where_a_segment_begins() -> None:
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.advance_start(4)
        await store.checkpoints.write_all()
        assert read_log_start(bench.files, FOLDER) == 4
        log.advance_start(6)
        while log.delete_old_segments(START_MS, RECORDS):
            pass
        await store.checkpoints.write_all()
        assert log.segments[0].base_offset == 6
        assert not bench.files.exists(OWN)
        await store.close()

    play(story)


@pytest.mark.parametrize(
    "content",
    [b"", b"7", b"{}", b"\xff", b'{"version":1,"logStartOffset":5,"crc":7}', b"[]"],
)
def test_a_note_that_makes_no_sense_is_passed_over(content: bytes) -> None:
    files = MemoryFiles()
    files.make_folder(FOLDER)
    files.replace(OWN, content)
    assert read_log_start(files, FOLDER) == 0
    write_log_start(files, FOLDER, 5)
    assert read_log_start(files, FOLDER) == 5
