"""Too many open files: a request is refused or a job waits, and nothing is lost or half done.

Opening fails at each step in turn. The folder stays online; what was refused can be done again,
and a process that is killed right then leaves a log that is as it was, or as it should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable
from typing import Literal, TypeVar

import pytest
from cleaner_bench import COMPACTED, clean, put, put_rounds, table_of
from log_bench import START_MS, LogBench, a_memory_bench, batch_of, offsets_of, read_all

from moldau.errors import StorageError
from moldau.records.batch_header import read_header
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_marker_batch
from moldau.replication.rules.truncation import find_cut
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log import Log

T = TypeVar("T")

SIZE = len(batch_of()[0])
PRODUCER = {"producer_id": 7, "producer_epoch": 0}


def files_of(bench: LogBench) -> MemoryFiles:
    assert isinstance(bench.files, MemoryFiles)
    return bench.files


def is_refused(bench: LogBench, step: int, work: Callable[[], object]) -> bool:
    """Do work while no file can be opened after so many were; whether it was refused.

    The folder is well, whatever happened.
    """
    files_of(bench).fail_next("open", errno.EMFILE, skip=step, count=None)
    refusal: StorageError | None = None
    try:
        work()
    except StorageError as error:
        refusal = error
    files_of(bench).clear_faults()
    assert bench.failures == [], step
    assert refusal is None or "too many files" in str(refusal), step
    return refusal is not None


def count_steps(attempt: Callable[[int], bool]) -> int:
    """Have each opening fail in turn, until nothing is refused any more."""
    step = 0
    while attempt(step):
        step += 1
    return step


def end_transaction(bench: LogBench, log: Log, outcome: ControlType) -> None:
    marker = EndTransactionMarker(outcome, 0)
    batch = build_marker_batch(marker, timestamp_ms=START_MS, **PRODUCER)
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=bench.clock.now_ms())


@pytest.mark.parametrize("outcome", [ControlType.ABORT, ControlType.COMMIT])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 2 * SIZE], ids=["same segment", "new one"])
def test_the_end_of_a_transaction_is_written_and_noted_or_neither(
    outcome: ControlType, segment_bytes: int
) -> None:
    def attempt(step: int) -> bool:
        bench = a_memory_bench()
        log = bench.create(segment_bytes=segment_bytes)
        bench.append(log, transactional=True, base_sequence=0, **PRODUCER)
        bench.append(log)
        bench.open_files.let_go(log.segments[-1])

        was_refused = is_refused(bench, step, lambda: end_transaction(bench, log, outcome))
        if was_refused:
            assert log.log_end_offset == 2
            assert log.last_stable_offset(log.log_end_offset) == 0
            assert log.aborted_transactions(0, 2) == ()
            end_transaction(bench, log, outcome)
        assert log.last_stable_offset(log.log_end_offset) == 3
        aborted = log.aborted_transactions(0, 3)
        assert [one.first_offset for one in aborted] == [0] * (outcome is ControlType.ABORT)

        files_of(bench).crash_process()
        again = bench.load()
        assert offsets_of(read_all(again)) == [0, 1, 2], step
        assert again.aborted_transactions(0, 3) == aborted, step
        return was_refused

    assert count_steps(attempt) >= 1


@pytest.mark.parametrize("clean_stop", [False, True])
def test_a_segment_that_was_half_made_is_not_found_behind_the_one_that_goes_on(
    clean_stop: bool,
) -> None:
    def attempt(step: int) -> bool:
        bench = a_memory_bench()
        log = bench.create(segment_bytes=3 * SIZE)
        for _ in range(2):
            bench.append(log)
        was_refused = is_refused(bench, step, lambda: bench.append(log, value=b"v" * SIZE))
        bench.append(log)  # has room in the first segment, if there is no second
        end_offset = log.log_end_offset
        assert end_offset == (3 if was_refused else 4)
        asyncio.run(log.flush())

        files_of(bench).crash_process()
        again = bench.load(recovery_point=end_offset, clean=clean_stop)
        assert offsets_of(read_all(again)) == list(range(end_offset)), step
        return was_refused

    assert count_steps(attempt) >= 4


def test_a_gap_is_skipped_or_nothing_is_left_of_the_attempt() -> None:
    def attempt(step: int) -> bool:
        bench = a_memory_bench()
        log = bench.create(index_interval_bytes=0)
        for _ in range(3):
            bench.append(log)
        was_refused = is_refused(bench, step, lambda: log.skip_to(10))
        assert log.log_end_offset == (3 if was_refused else 10)
        names = files_of(bench).list_folder(bench.folder)
        assert was_refused is not any(name.startswith("00000000000000000010") for name in names)
        return was_refused

    assert count_steps(attempt) >= 4


@pytest.mark.parametrize("truncate", [Log.truncate_to, Log.truncate_fully])
def test_a_truncation_does_not_begin_without_the_files_that_it_needs(
    truncate: Callable[[Log, int], None],
) -> None:
    def attempt(step: int) -> bool:
        bench = a_memory_bench()
        log = bench.create(segment_bytes=3 * SIZE, index_interval_bytes=0)
        for _ in range(9):
            bench.append(log)
        assert is_refused(bench, step, lambda: truncate(log, 4))
        assert offsets_of(read_all(log)) == list(range(9))
        assert not log.flushing.has_pending_truncation
        truncate(log, 4)
        asyncio.run(log.flushing.flush_truncation())
        assert log.log_end_offset == 4
        files_of(bench).crash_process()
        assert bench.load(log_start=log.log_start_offset).log_end_offset == 4, step
        return step < 3

    assert count_steps(attempt) == 3


async def clean_in_time(bench: LogBench, log: Log) -> None:
    """What waits until it can go on has waited long enough."""
    cleaning = asyncio.ensure_future(clean(bench, log))
    while not cleaning.done():
        await bench.clock.advance(1.0)
    with contextlib.suppress(StorageError):  # of the flush that comes first
        await cleaning


@pytest.mark.parametrize("operation", ["open", "sync_folder"])
def test_a_compaction_is_put_off_at_any_step_and_later_ones_lose_nothing(
    operation: Literal["open", "sync_folder"],
) -> None:
    def attempt(step: int) -> bool:
        bench = a_memory_bench()
        log = bench.create(**{**COMPACTED, "segment_bytes": 200})
        for number in range(4):
            put_rounds(bench, log, 1)
            put(bench, log, {b"once-%d" % number: b"stays"})
        fault = files_of(bench).fail_next(operation, errno.EMFILE, skip=step, count=3)
        asyncio.run(clean_in_time(bench, log))
        was_met = fault.times_met > 0
        files_of(bench).clear_faults()
        put_rounds(bench, log, 2)
        before = table_of(log)
        asyncio.run(clean_in_time(bench, log))
        assert bench.failures == [], step
        assert table_of(log) == before, step
        assert not [one for one in log.segments if one.path.name.endswith(".swap")], step
        files_of(bench).crash_process()
        again = bench.load(recovery_point=log.recovery_point)
        assert table_of(again) == before, step
        return was_met

    assert count_steps(attempt) >= 4


def test_a_compaction_that_waits_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """There may be little room for a log either while no file can be opened."""

    def attempt(step: int) -> bool:
        caplog.clear()
        bench = a_memory_bench()
        log = bench.create(**{**COMPACTED, "segment_bytes": 200})
        put_rounds(bench, log, 4)
        fault = files_of(bench).fail_next("sync_folder", errno.EMFILE, skip=step, count=5)
        asyncio.run(clean_in_time(bench, log))
        told.append(sum("a compaction waits" in message for message in caplog.messages))
        return fault.times_met > 0

    told: list[int] = []
    count_steps(attempt)
    assert max(told) == 1


def test_what_a_truncation_has_overtaken_stays_away_though_a_folder_cannot_be_opened() -> None:
    """A start would take `.swap` files up that came back: records have gone from them for the sake
    of others that were truncated (REP-8)."""

    def attempt(step: int) -> bool:
        bench = a_memory_bench()
        log = bench.create(**{**COMPACTED, "segment_bytes": 200})
        for number in range(4):
            put_rounds(bench, log, 1)
            put(bench, log, {b"once-%d" % number: b"stays"})
        log.update_options(log.options.replace(segment_bytes=600))
        files_of(bench).sync_everything()
        workers = TruncatingWorkers(step, bench, log)
        bench.directory.workers = workers
        asyncio.run(clean_in_time(bench, log))
        assert bench.failures == [], step
        files_of(bench).clear_faults()
        if workers.has_truncated:
            left = table_of(log)
            files_of(bench).lose_power()
            again = bench.load()
            assert again.log_end_offset == log.log_end_offset, step
            assert table_of(again) == left, step
        return workers.has_truncated

    assert count_steps(attempt) > 20


class TruncatingWorkers:
    """The log is truncated, durably, behind one of the works; then no folder can be opened."""

    def __init__(self, step: int, bench: LogBench, log: Log) -> None:
        self.has_truncated = False
        self._left = step
        self._bench = bench
        self._log = log

    async def run(self, work: Callable[[], T]) -> T:
        done = work()
        self._left -= 1
        if self._left == -1:
            self._truncate()
        return done

    def _truncate(self) -> None:
        log, files = self._log, files_of(self._bench)
        log.truncate_to(find_cut(5, 0, log.cleaned_offset, log.compared_offset))
        for segment in log.segments:
            segment.sync()
        files.sync_folder(self._bench.folder)
        files.fail_next("sync_folder", errno.EMFILE, count=2)
        self.has_truncated = True
