"""Logs on their way between log directories: nothing is lost, whatever happens meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from log_bench import DEFAULTS, START_MS, batch_of, headers_in, offsets_of, read_all
from moving_log_story import MORE, MovingStory
from test_log_store import CLICKS, DATA, TOPIC_ID, Bench, append

from moldau.errors import StartupError
from moldau.records.batch_header import BatchHeader, read_header
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_marker_batch
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.files import Files
from moldau.storage.log import Log
from moldau.storage.log_cleaner import LogCleaner
from moldau.storage.log_store import LogStore


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@pytest.mark.parametrize("hundred", range(2))
def test_a_log_that_moves_loses_nothing(policy: str, hundred: int):
    moved = 0
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        story = MovingStory(seed, policy)
        try:
            story.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, {policy}: {story.happened}") from error
        moved += story.moved
    assert moved > 50


# One step at a time


def moving(story: Callable[[Bench, LogStore, Log], Awaitable[None]], **settings: str) -> None:
    """Run a story with a log of three segments in the first of two directories."""

    async def main() -> None:
        bench = Bench(folders=(DATA, MORE))
        bench.settings = {name.replace("_", "."): value for name, value in settings.items()}
        store = await bench.open()
        store.moves.request_directory(CLICKS, DATA)
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS.replace(segment_bytes=2_000))
        for _ in range(20):
            append(log, 3)
        await story(bench, store, log)

    asyncio.run(main())


async def run_moves(bench: Bench, store: LogStore, turns: int | None = None) -> None:
    task = asyncio.create_task(store.moves.run())
    while store.moves.find(CLICKS) is not None and turns != 0:
        turns = None if turns is None else turns - 1
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


def folders(files: Files, *roots: Path) -> list[Path]:
    return [root / name for root in roots for name in files.list_folder(root) if "clicks" in name]


def test_a_move_is_not_started_before_its_copy_is_there(caplog: pytest.LogCaptureFixture):
    """Another one that is called off at that moment has those that wait looked at."""

    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        moves = asyncio.create_task(store.moves.run())
        begun = asyncio.create_task(store.moves.start_move(log, MORE))
        while not begun.done():
            store.moves._changed.set()
            await asyncio.sleep(0)
        while store.moves.find(CLICKS) is not None:
            await asyncio.sleep(0)
        moves.cancel()
        assert log.folder == MORE / "clicks-0"
        left = [one for one in folders(bench.files, MORE) if not one.name.endswith("-delete")]
        assert left == [log.folder]

    moving(story)
    assert caplog.text == ""


@pytest.mark.parametrize("turns", range(0, 60, 3))
def test_a_move_that_is_called_off_is_not_started_again(
    turns: int, caplog: pytest.LogCaptureFixture
):
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        moves = asyncio.create_task(store.moves.run())
        await store.moves.start_move(log, MORE)
        for _ in range(turns):
            await asyncio.sleep(0)
        await store.moves.start_move(log, DATA)  # where it is, unless it was faster
        await store.moves.start_move(log, MORE)
        while store.moves.find(CLICKS) is not None:
            await asyncio.sleep(0)
        assert not store.moves._running
        moves.cancel()
        assert log.folder == MORE / "clicks-0"
        left = [one for one in folders(bench.files, MORE) if not one.name.endswith("-delete")]
        assert left == [log.folder]

    moving(story)
    assert caplog.text == ""


@pytest.mark.parametrize("count", [0, 20])
def test_a_log_that_ends_in_a_gap_moves_without_an_append(count: int):
    """Kafka's cleaner may leave nothing before a segment that is still empty."""

    async def main() -> None:
        bench = Bench(folders=(DATA, MORE))
        store = await bench.open()
        store.moves.request_directory(CLICKS, DATA)
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS.replace(segment_bytes=2_000))
        for _ in range(count):
            append(log, 3)
        log.skip_to(100)
        await log.flush()
        before = [header.crc for header in read_all_until(log, 3 * count)]
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store, turns=2000)
        assert log.folder == MORE / "clicks-0"
        assert log.log_end_offset == log.recovery_point == 100
        assert [header.crc for header in read_all_until(log, 3 * count)] == before
        append(log)
        await store.close()
        store = await bench.open()
        log = store.logs[CLICKS]
        assert (log.folder, log.log_end_offset) == (MORE / "clicks-0", 101)
        await store.close()

    asyncio.run(main())


def read_all_until(log: Log, end_offset: int) -> list[BatchHeader]:
    """As `read_all`, of a log that has nothing behind an offset."""
    found: list[BatchHeader] = []
    offset = log.log_start_offset
    while offset < end_offset:
        read = log.read(offset, 1 << 20, end_offset=end_offset, min_one=True)
        assert read.slice is not None
        found += headers_in(read.slice.read())
        offset = read.end_offset
    return found


def test_a_log_has_moved_with_all_that_is_known_of_it():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        before = [header.crc for header in read_all(log)]
        log.begin_epoch(4)
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store)
        assert log.folder == MORE / "clicks-0"
        assert [header.crc for header in read_all(log)] == before
        assert log.latest_epoch == 4
        append(log)
        await store.close()
        again = await bench.open()
        assert again.logs[CLICKS].folder == MORE / "clicks-0"
        assert offsets_of(read_all(again.logs[CLICKS])) == list(range(61))
        await again.close()

    moving(story)


def test_aborted_transactions_move_along():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        batch, header = batch_of(
            2, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        log.append(batch, header, leader_epoch=0, now_ms=START_MS)
        marker = build_marker_batch(
            EndTransactionMarker(ControlType.ABORT, 0),
            timestamp_ms=START_MS,
            producer_id=7,
            producer_epoch=0,
        )
        log.append(marker, read_header(marker), leader_epoch=0, now_ms=START_MS)
        aborted = log.aborted_transactions(0, log.log_end_offset)
        assert aborted
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store)
        assert log.aborted_transactions(0, log.log_end_offset) == aborted
        assert log.producers.find(7) is not None

    moving(story)


def test_a_copy_goes_on_after_a_clean_stop_and_begins_anew_after_a_kill():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store, turns=25)
        move = store.moves.find(CLICKS)
        assert move is not None
        copied = log.log_end_offset - move.offset_lag
        assert 0 < copied < 60
        (future,) = folders(bench.files, MORE)
        await store.close()

        again = await bench.open()
        resumed = again.moves.find(CLICKS)
        assert resumed is not None
        assert resumed.folder == future
        assert resumed.offset_lag == 60 - copied

        assert isinstance(bench.files, MemoryFiles)
        bench.files.crash_process()
        third = await bench.open()
        anew = third.moves.find(CLICKS)
        assert anew is not None
        assert (anew.offset_lag, anew.target.folder) == (60, MORE)
        await run_moves(bench, third)
        assert offsets_of(read_all(third.logs[CLICKS])) == list(range(60))
        assert third.logs[CLICKS].folder == MORE / "clicks-0"

    moving(story, replica_fetch_max_bytes="300")


def test_who_asks_for_a_flush_while_folders_change_is_served_by_the_new_one():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.moves.start_move(log, MORE)
        task = asyncio.create_task(store.moves.run())
        while log.flushing._held is None:
            await asyncio.sleep(0)
        append(log)
        await log.flush()
        assert log.folder == MORE / "clicks-0"
        assert log.recovery_point == log.log_end_offset == 61
        task.cancel()
        await asyncio.wait([task])
        assert isinstance(bench.files, MemoryFiles)
        bench.files.lose_power()
        again = await bench.open()
        assert offsets_of(read_all(again.logs[CLICKS])) == list(range(61))

    moving(story)


def test_a_damaged_log_stays_where_it_is():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        file = bench.files.open(log.segments[0].path)
        file.write_at(80, b"damage")
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store)
        assert log.folder == DATA / "clicks-0"
        assert not log.is_moving
        append(log)

    moving(story)


def test_two_folders_of_one_log_that_nobody_moved_are_refused():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.close()
        bench.files.make_folder(MORE / "clicks-0")
        with pytest.raises(StartupError, match="in two log directories"):
            await bench.open()

    moving(story)


def test_a_log_is_not_compacted_while_it_moves():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        compacted = DEFAULTS.replace(
            cleanup_policy=frozenset({"compact"}), segment_bytes=2_000, min_cleanable_dirty_ratio=0
        )
        log.update_options(compacted)
        await log.flush()
        await store.moves.start_move(log, MORE)
        cleaner = LogCleaner(bench.clock, lambda: bench.options)
        high_watermarks = {CLICKS: log.log_end_offset}
        assert not await cleaner.clean_dirtiest(store.logs, high_watermarks)
        await run_moves(bench, store)
        await log.flush()
        assert await cleaner.clean_dirtiest(store.logs, high_watermarks)

    moving(story)
