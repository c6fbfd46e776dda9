"""Logs that make room for another topic of their name, and are served again later."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
from pathlib import Path

import pytest
from log_bench import DEFAULTS, offsets_of, read_all
from test_log_store import CLICKS, OTHER_ID, TOPIC_ID, Bench, append

from moldau.errors import StorageError
from moldau.model import Offset
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.checkpoint_files import NOTE_FILE
from moldau.storage.log_store import LogStore


async def with_one_aside(bench: Bench) -> tuple[LogStore, Path]:
    """Seven records of which five are committed and two are deleted."""
    store = await bench.open()
    log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
    append(log, 7)
    log.advance_start(2)
    store.checkpoints.note_high_watermark(CLICKS, Offset(5))
    return store, await store.stray_logs.set_aside(CLICKS)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_log_that_is_taken_back_is_what_it_was(is_restarted: bool):
    async def story() -> None:
        bench = Bench()
        store, folder = await with_one_aside(bench)
        assert folder.name.endswith("-stray")
        assert CLICKS not in store.logs
        if is_restarted:
            await store.close()
            store = await bench.open()
        assert store.stray_logs.has(CLICKS, TOPIC_ID)
        assert not store.stray_logs.has(CLICKS, OTHER_ID)
        log = await store.stray_logs.restore_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert log is not None
        assert store.logs[CLICKS] is log
        assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (TOPIC_ID, 2, 7)
        assert store.checkpoints.find_high_watermark(CLICKS) == 5
        assert not log.has_lost_its_end
        assert not store.stray_logs.has(CLICKS, TOPIC_ID)
        assert not bench.files.exists(log.folder / NOTE_FILE)
        await store.close()

    asyncio.run(story())


def test_a_crash_while_a_log_is_taken_back_leaves_nothing_of_who_had_its_name_meanwhile():
    """What the checkpoints say of the other topic would let it begin behind its own end."""

    async def crash_at(step: int) -> bool:
        bench = Bench()
        store, _ = await with_one_aside(bench)
        other = await store.create_log(CLICKS, OTHER_ID, DEFAULTS)
        append(other, 20)
        other.advance_start(15)
        await store.checkpoints.write_all()
        await store.stray_logs.set_aside(CLICKS)
        assert isinstance(bench.files, MemoryFiles)
        fault = bench.files.fail_next("*", skip=step, count=None)
        with contextlib.suppress(StorageError):
            await store.stray_logs.restore_log(CLICKS, TOPIC_ID, DEFAULTS)
        bench.files.clear_faults()
        bench.files.crash_process()
        bench.failed.clear()
        again = await bench.open()
        log = again.logs.get(CLICKS)
        if log is None:
            log = await again.stray_logs.restore_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert log is not None, step
        assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (TOPIC_ID, 2, 7), step
        assert len(offsets_of(read_all(log))) == 7, step
        await again.close()
        return fault.times_met > 0

    step = 0
    while asyncio.run(crash_at(step)):
        step += 1
    assert step > 10


def test_a_log_does_not_come_back_while_another_is_in_its_place():
    async def story() -> None:
        bench = Bench()
        store, _ = await with_one_aside(bench)
        other = await store.create_log(CLICKS, OTHER_ID, DEFAULTS)
        with pytest.raises(StorageError, match="already"):
            await store.stray_logs.restore_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert store.logs[CLICKS] is other
        assert store.stray_logs.has(CLICKS, TOPIC_ID)
        assert not bench.failed
        await store.close()

    asyncio.run(story())


def test_a_folder_that_somebody_has_removed_costs_its_log_and_no_other():
    """The message at its setting aside says when it may be removed."""

    async def story() -> None:
        bench = Bench()
        store, folder = await with_one_aside(bench)
        for name in bench.files.list_folder(folder):
            bench.files.remove(folder / name)
        bench.files.remove_folder(folder)
        assert await store.stray_logs.restore_log(CLICKS, TOPIC_ID, DEFAULTS) is None
        assert not bench.failed
        assert not store.stray_logs.has(CLICKS, TOPIC_ID)
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert log.log_end_offset == 0
        await store.close()

    asyncio.run(story())


def test_a_log_that_could_not_be_opened_is_taken_back_later():
    async def story() -> None:
        bench = Bench()
        store, _ = await with_one_aside(bench)
        bench.files.fail_next("open", errno.EMFILE, path_matching="*clicks-0/*.log", count=None)
        with pytest.raises(StorageError, match="too many files"):
            await store.stray_logs.restore_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert not bench.failed
        bench.files.clear_faults()
        log = await store.stray_logs.restore_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert log is not None
        assert (log.log_start_offset, log.log_end_offset) == (2, 7)
        assert not bench.failed
        await store.close()

    asyncio.run(story())


def test_a_folder_whose_note_makes_no_sense_is_left_alone(caplog: pytest.LogCaptureFixture):
    async def story() -> None:
        bench = Bench()
        store, folder = await with_one_aside(bench)
        await store.close()
        bench.files.replace(folder / NOTE_FILE, b"[]")
        again = await bench.open()
        assert not again.stray_logs.has(CLICKS, TOPIC_ID)
        assert bench.files.exists(folder)
        await again.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())
    assert "cannot be taken back by itself" in caplog.text
