"""Compaction is stopped at each of its steps: the log is the old one or the new one, never less."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from random import Random
from typing import TypeVar

import pytest
from cleaner_bench import COMPACTED, clean, clean_now, put, put_rounds, read_records, table_of
from log_bench import PARTITION, START_MS, LogBench, a_memory_bench

from moldau.config.broker_options import BrokerOptions
from moldau.errors import StorageError
from moldau.model import Offset
from moldau.records.record import Record
from moldau.replication.rules.truncation import find_cut
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log import Log
from moldau.storage.log_cleaner import LogCleaner

T = TypeVar("T")

ROUNDS = 4


def a_dirty_log() -> tuple[LogBench, MemoryFiles, Log]:
    """Several groups of segments, with something in each of them that stays."""
    bench = a_memory_bench()
    assert isinstance(bench.files, MemoryFiles)
    log = bench.create(**{**COMPACTED, "segment_bytes": 200})
    for number in range(ROUNDS):
        put_rounds(bench, log, 1)
        put(bench, log, {b"once-%d" % number: b"stays"})
    log.update_options(log.options.replace(segment_bytes=600))
    put(bench, log, {b"key-0": b"last"}, producer_id=7, producer_epoch=0, base_sequence=5)
    asyncio.run(log.flush())
    bench.files.sync_everything()
    return bench, bench.files, log


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_segments(loses_power: bool):
    step = 0
    while crash(step, loses_power):
        step += 1
    assert step > 60


def crash(step: int, loses_power: bool) -> bool:
    """Stop a round before one of its operations; False when it was over by then."""
    bench, files, log = a_dirty_log()
    before, all_before = table_of(log), read_records(log)
    end_offset, recovery_point = log.log_end_offset, log.recovery_point
    fault = files.fail_next("*", skip=step, count=None)  # nothing reaches the disk from here on
    clean_now(bench, log)
    files.clear_faults()
    if loses_power:
        files.lose_power(Random(step))
    else:
        files.crash_process()
    again = bench.load(recovery_point=recovery_point)
    assert table_of(again) == before, step
    assert set(read_records(again)) <= set(all_before), step
    if find_cut(9, 0, again.cleaned_offset, again.compared_offset):  # else all of it goes (REP-8)
        assert last_values(read_records(again), 9) == last_values(all_before, 9), step
    assert again.log_end_offset == end_offset, step
    assert again.producers.find(7).last_sequence == 5, step
    names = files.list_folder(bench.folder)
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))], step
    assert_whole(again, step)
    clean_now(bench, again)  # what a crash has left undone can be done again
    assert table_of(again) == before, step
    return fault.times_met > 0


def last_values(records: Iterable[Record], end_offset: int) -> dict[bytes | None, int]:
    """Where the last value of each key is, before an offset."""
    return {record.key: record.offset for record in records if record.offset < end_offset}


def assert_whole(log: Log, step: int) -> None:
    """Segments do not overlap, and their indexes find every record."""
    starts = [segment.base_offset for segment in log.segments]
    assert starts == sorted(set(starts))
    for record in read_records(log):
        read = log.read(record.offset, 1, end_offset=log.log_end_offset, min_one=True)
        assert read.slice is not None
        assert read.end_offset == record.offset + 1, step


def test_a_crash_while_a_start_takes_up_the_new_segments_does_no_harm():
    for step in range(40):
        bench, files, log = a_dirty_log()
        before, recovery_point = table_of(log), log.recovery_point
        files.fail_next("rename", path_matching="*.log", count=None)  # the log has swap files now
        clean_now(bench, log)
        files.clear_faults()
        files.lose_power()
        assert any(name.endswith(".log.swap") for name in files.list_folder(bench.folder))
        files.fail_next("*", skip=step, count=None)
        with contextlib.suppress(OSError):
            bench.load(recovery_point=recovery_point)
        files.clear_faults()
        files.lose_power(Random(step))
        again = bench.load(recovery_point=recovery_point)
        assert table_of(again) == before, step
        assert_whole(again, step)


def test_what_a_former_round_left_behind_does_not_spoil_this_one():
    """Behind a `.cleaned` file a start believes no `.swap` file; what that replaces is gone."""
    bench, files, log = a_dirty_log()
    before, recovery_point = table_of(log), log.recovery_point
    files.replace(bench.folder / "00000000000000000001.index.cleaned", b"")
    files.fail_next("rename", path_matching="*.swap", skip=4, count=None)
    clean_now(bench, log)
    files.clear_faults()
    files.crash_process()
    names = files.list_folder(bench.folder)
    assert any(name.endswith(".log.swap") and not name.startswith("0" * 20) for name in names)
    again = bench.load(recovery_point=recovery_point)
    assert table_of(again) == before
    assert again.log_end_offset == log.log_end_offset


class InterruptingWorkers:
    """Something happens to the log right before one of the works."""

    def __init__(self, step: int, change: Callable[[], None]) -> None:
        self._left = step
        self._change = change

    async def run(self, work: Callable[[], T]) -> T:
        self._left -= 1
        if self._left == -1:
            self._change()
        return work()

    def close(self) -> None:
        """Nothing is running between two calls."""


def interrupted(step: int, change: Callable[[LogBench, Log], None]) -> tuple[LogBench, Log, bool]:
    """A round during which the log changes, and whether it did before the round was over."""
    bench, files, log = a_dirty_log()
    happened = False

    def happen() -> None:
        nonlocal happened
        happened = True
        change(bench, log)

    bench.directory.workers = InterruptingWorkers(step, happen)
    asyncio.run(clean(bench, log))
    assert bench.failures == [], step
    names = files.list_folder(bench.folder) if files.exists(bench.folder) else ()
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))], step
    return bench, log, happened


def at_every_step(
    change: Callable[[LogBench, Log], None], check: Callable[[LogBench, Log], None]
) -> None:
    step = 0
    while True:
        bench, log, happened = interrupted(step, change)
        if not happened:
            assert step > 20
            return
        check(bench, log)
        step += 1


def test_a_truncation_at_any_step_stands():
    def check(bench: LogBench, log: Log) -> None:
        assert log.log_end_offset == 9
        assert all(record.offset < 9 for record in read_records(log))
        assert table_of(log)[b"once-0"] == (3, b"stays")
        again = bench.load()
        assert table_of(again) == table_of(log)

    at_every_step(lambda _, log: log.truncate_to(9), check)


def test_what_a_truncation_takes_at_any_step_has_replaced_nothing():
    """Who is cut off after an unclean election keeps the values that are the last ones then: all
    of it goes, if compaction has removed one of them before (REP-8), and none is removed after."""
    _, _, whole = a_dirty_log()
    expected = last_values(read_records(whole), 9)

    def cut(_: LogBench, log: Log) -> None:
        log.truncate_to(find_cut(9, 0, log.cleaned_offset, log.compared_offset))

    def check(bench: LogBench, log: Log) -> None:
        assert log.log_end_offset in (0, 9)
        assert last_values(read_records(log), 9) == (expected if log.log_end_offset else {})
        assert log.cleaned_offset <= log.log_end_offset

    at_every_step(cut, check)


def test_a_deletion_at_any_step_stands():
    def delete(_: LogBench, log: Log) -> None:
        log.advance_start(9)
        log.delete_old_segments(START_MS, log.log_end_offset)

    def check(bench: LogBench, log: Log) -> None:
        assert log.log_start_offset == 9
        values = table_of(log)
        assert values[b"key-0"][1] == b"last"
        assert values[b"once-3"] == (15, b"stays")
        again = bench.load(log_start=9)
        assert table_of(again) == values

    at_every_step(delete, check)


def test_appends_and_reads_at_any_step_go_on():
    def use(bench: LogBench, log: Log) -> None:
        put_rounds(bench, log, 3)
        assert table_of(log)[b"once-0"] == (3, b"stays")
        assert log.find_offset_by_timestamp(START_MS) is not None

    def check(bench: LogBench, log: Log) -> None:
        assert table_of(log)[b"key-2"][1] == b"2"
        assert table_of(log)[b"once-0"] == (3, b"stays")
        assert log.cleaned_offset > 0

    at_every_step(use, check)


def test_a_log_may_be_deleted_at_any_step():
    def delete(bench: LogBench, log: Log) -> None:
        log.close()
        bench.files.rename(bench.folder, bench.root / "deleted")

    def check(bench: LogBench, log: Log) -> None:
        with pytest.raises(StorageError):
            log.require_usable()

    at_every_step(delete, check)


def test_a_log_that_is_made_anew_while_it_is_measured_is_left_alone():
    """The folder of the topic that had its name is gone, and that is no failure of the disk."""
    bench, _, log = a_dirty_log()
    logs = {PARTITION: log}
    high_watermarks = {PARTITION: Offset(log.log_end_offset)}

    def make_anew() -> None:
        log.close()
        bench.files.rename(bench.folder, bench.root / "deleted")
        logs[PARTITION] = bench.create(**COMPACTED)

    bench.directory.workers = InterruptingWorkers(0, make_anew)
    cleaner = LogCleaner(bench.clock, lambda: BrokerOptions.resolve({}))
    assert not asyncio.run(cleaner.clean_dirtiest(logs, high_watermarks))
    assert bench.failures == []
    put(bench, logs[PARTITION], {b"key": b"value"})


def test_the_broker_may_stop_at_any_step():
    def cancel() -> None:
        raise asyncio.CancelledError

    async def stop(bench: LogBench, log: Log, step: int) -> bool:
        bench.directory.workers = InterruptingWorkers(step, cancel)
        try:
            await clean(bench, log)
        except asyncio.CancelledError:
            await log.shut_down()
            return True
        return False

    step = 0
    while True:
        bench, files, log = a_dirty_log()
        before = table_of(log)
        if not asyncio.run(stop(bench, log, step)):
            assert step > 20
            return
        files.lose_power()
        again = bench.load(clean=True)
        assert table_of(again) == before, step
        assert_whole(again, step)
        step += 1
