"""A move that is interrupted at each of its steps, or whose disks fail: there is one log, the one
with all records, and it is not denied."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from pathlib import Path

import pytest
from log_bench import DEFAULTS, offsets_of, read_all
from moving_log_story import MORE
from test_log_moves import moving, run_moves
from test_log_store import CLICKS, DATA, TOPIC_ID, Bench, append

from moldau.errors import ReplicaNotAvailableError, StorageError
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log import Log
from moldau.storage.log_move import DEPARTURE_FILE
from moldau.storage.log_store import LogStore

OLD, NEW = DATA / "clicks-0", MORE / "clicks-0"
TURNS = 120
"""Of the loop, which a move of the log of these tests does not need."""


def memory(bench: Bench) -> MemoryFiles:
    assert isinstance(bench.files, MemoryFiles)
    return bench.files


def offline(store: LogStore) -> list[Path]:
    return [each.folder for each in store.directories if each.failure is not None]


async def move_until_it_takes_place(bench: Bench, store: LogStore, log: Log) -> None:
    """And end the process before the old folder is gone."""
    await store.moves.start_move(log, MORE)
    memory(bench).fail_next("rename", path_matching=str(OLD))
    await run_moves(bench, store)
    assert log.folder == NEW
    append(log)
    assert memory(bench).exists(OLD)
    memory(bench).crash_process()


# Power losses


async def lose_power_in(bench: Bench, store: LogStore, turns: int) -> None:
    """After so many turns of a move, beside which the checkpoints of the directory that the log
    comes from are written all the time."""
    source = store.logs[CLICKS].directory

    async def write_again_and_again() -> None:
        while True:
            with contextlib.suppress(StorageError):
                await store.checkpoints.write(source)
            await asyncio.sleep(0)

    tasks = asyncio.create_task(store.moves.run()), asyncio.create_task(write_again_and_again())
    for _ in range(turns):
        await asyncio.sleep(0)
    memory(bench).fail_next("*", count=None)  # nothing that is begun now comes to the disk
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    memory(bench).lose_power()
    memory(bench).clear_faults()


def test_a_power_loss_at_any_step_leaves_what_the_checkpoints_know():
    """Also where those of the old directory are written just then."""
    places = set()
    turns = iter(range(TURNS))

    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await log.flush()
        log.advance_start(7)
        await store.checkpoints.write_all()
        await store.moves.start_move(log, MORE)

        await lose_power_in(bench, store, next(turns))
        again = await bench.open()
        found = again.logs[CLICKS]
        places.add(found.folder)
        assert (found.log_start_offset, found.log_end_offset) == (7, 60)
        assert [name for root in (DATA, MORE) for name in memory(bench).peek_folder(root)].count(
            "clicks-0"
        ) == 1

    for _ in range(TURNS):
        moving(story)
    assert places == {OLD, NEW}


def test_a_power_loss_after_two_moves_leaves_one_log():
    """The note of the first one must not come back and contradict that of the second one."""
    turns = iter(range(TURNS))

    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await log.flush()
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store)
        await store.moves.start_move(log, DATA)
        await lose_power_in(bench, store, next(turns))
        again = await bench.open()
        assert offsets_of(read_all(again.logs[CLICKS])) == list(range(60))

    for _ in range(TURNS):
        moving(story)


# Disks that fail at the next start


def test_a_folder_that_may_have_been_replaced_is_not_served_while_a_directory_is_offline():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await move_until_it_takes_place(bench, store, log)
        memory(bench).fail_next("list_folder", path_matching=str(MORE))
        second = await bench.open()
        assert offline(second) == [MORE]
        assert CLICKS not in second.logs
        with pytest.raises(StorageError, match="may be in an offline directory"):
            await second.create_log(CLICKS, TOPIC_ID, DEFAULTS, is_new=False)
        await second.close()

        third = await bench.open()
        assert third.logs[CLICKS].folder == NEW
        assert third.logs[CLICKS].log_end_offset == 61
        assert not memory(bench).exists(OLD)

    moving(story)


def test_a_folder_whose_successor_was_taken_away_is_served_and_may_lack_records():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await move_until_it_takes_place(bench, store, log)
        bench.folders = (DATA,)
        second = await bench.open()
        assert second.logs[CLICKS].log_end_offset == 60
        assert second.logs[CLICKS].has_lost_its_end

    moving(story)


def test_a_folder_that_was_not_replaced_is_the_log_and_forgets_that_it_was_to_be():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.moves.start_move(log, MORE)
        task = asyncio.create_task(store.moves.run())
        while not memory(bench).exists(OLD / DEPARTURE_FILE):
            await asyncio.sleep(0)
        memory(bench).crash_process()
        task.cancel()
        await asyncio.wait([task])
        again = await bench.open()
        assert again.logs[CLICKS].folder == OLD
        assert not again.logs[CLICKS].has_lost_its_end
        assert not memory(bench).exists(OLD / DEPARTURE_FILE)

    moving(story)


def test_the_old_folder_stays_until_the_new_one_is_loaded():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await move_until_it_takes_place(bench, store, log)
        memory(bench).fail_next("read", path_matching=f"{NEW}/*.log")
        second = await bench.open()
        assert offline(second) == [MORE]
        assert CLICKS not in second.logs
        assert memory(bench).exists(OLD)
        await second.close()
        third = await bench.open()
        assert third.logs[CLICKS].log_end_offset == 61

    moving(story)


def test_what_is_committed_is_known_from_the_directory_that_has_the_log():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        store.checkpoints.note_high_watermark(CLICKS, log.log_end_offset)
        await store.checkpoints.write_high_watermarks()
        path = DATA / "replication-offset-checkpoint"
        stale = memory(bench).read(path).replace(b" 60", b" 5")
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store)
        await store.close()
        memory(bench).replace(path, stale)
        bench.folders = (MORE, DATA)
        again = await bench.open()
        assert again.checkpoints.take_high_watermark(CLICKS) == 60

    moving(story)


# Errors while it moves


def test_a_disk_that_cannot_be_read_fails_itself_and_not_the_one_that_is_written_to():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.advance_start(1)
        await store.moves.start_move(log, MORE)
        memory(bench).fail_next("read", path_matching=f"{OLD}/*.log", skip=next(skipped))
        await run_moves(bench, store)
        assert offline(store) == [DATA]

    skipped = iter(range(4))
    for _ in range(4):
        moving(story)


def test_a_copy_that_has_no_room_is_given_up_and_no_directory_goes_offline():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.moves.start_move(log, MORE)
        memory(bench).set_capacity(memory(bench).used_bytes() + log.size_bytes // 2)
        await run_moves(bench, store)
        assert not offline(store)
        assert log.folder == OLD
        assert not [name for name in memory(bench).list_folder(MORE) if name.endswith("-future")]
        memory(bench).set_capacity(None)
        append(log)
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store)
        assert offsets_of(read_all(log)) == list(range(61))
        assert log.folder == NEW

    moving(story)


def test_too_many_open_files_leave_no_old_folder():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.moves.start_move(log, MORE)
        memory(bench).fail_next("sync_folder", errno.EMFILE, path_matching=str(DATA))
        task = asyncio.create_task(store.moves.run())
        while store.moves.find(CLICKS) is not None:
            await asyncio.sleep(0)
            if log.folder == NEW:
                await bench.clock.advance(0.1)
        task.cancel()
        await asyncio.wait([task])
        assert not offline(store)
        assert not memory(bench).exists(OLD)
        assert not [name for name in memory(bench).list_folder(NEW) if name.endswith(".json")]

    moving(story)


def test_a_copy_keeps_no_files_of_what_its_log_has_thrown_away():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store, turns=25)
        log.truncate_fully(1_000)
        await store.checkpoints.complete_truncation(log)
        await run_moves(bench, store)
        assert log.folder == NEW
        assert not [name for name in memory(bench).list_folder(NEW) if ".deleted" in name]

    moving(story, replica_fetch_max_bytes="300")


# Asking


def test_a_move_that_is_called_off_before_it_began_is_no_obstacle_to_the_next():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.moves.start_move(log, MORE)
        store.moves._start_due()
        await store.moves.start_move(log, DATA)  # stay
        await store.moves.start_move(log, MORE)
        await run_moves(bench, store, turns=5_000)
        assert log.folder == NEW

    moving(story)


def test_a_log_that_was_deleted_meanwhile_does_not_move():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.delete_log(CLICKS)
        with pytest.raises(ReplicaNotAvailableError):
            await store.moves.start_move(log, MORE)
        assert store.moves.find(CLICKS) is None

    moving(story)


def test_a_new_log_does_not_find_the_segments_of_a_folder_that_was_left_over():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        left_over = {Path(name): memory(bench).read(OLD / name) for name in segments_in(bench)}
        await store.delete_log(CLICKS)
        memory(bench).make_folder(OLD)
        for name, content in left_over.items():
            memory(bench).replace(OLD / name, content)
        store.moves.request_directory(CLICKS, DATA)
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS))
        memory(bench).crash_process()
        again = await bench.open()
        assert again.logs[CLICKS].log_end_offset == 1
        assert [name for name in memory(bench).list_folder(DATA) if name.endswith("-stray")]

    def segments_in(bench: Bench) -> list[str]:
        return [name for name in memory(bench).list_folder(OLD) if name.endswith(".log")]

    moving(story)
