"""Disks that fail: the folder goes offline, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import errno

import pytest
from log_bench import LogBench, batch_of, offsets_of, read_all

from moldau.errors import StorageError
from moldau.storage.log import Log

SIZE = len(batch_of()[0])


def everything_is_refused(bench: LogBench, log: Log) -> None:
    calls = (
        lambda: bench.append(log),
        lambda: log.append_replicated(memoryview(b"")),
        lambda: log.read(0, 100, end_offset=1, min_one=True),
        lambda: log.find_offset_by_timestamp(0),
        lambda: log.max_timestamp_offset(),
        lambda: log.advance_start(0),
        lambda: log.delete_old_segments(0, 0),
        lambda: log.truncate_to(0),
        lambda: log.truncate_fully(0),
    )
    for call in calls:
        with pytest.raises(StorageError, match="offline"):
            call()


def append_until_refused(bench: LogBench, log: Log) -> int:
    """Returns what was acknowledged."""
    for appended in range(10_000):
        try:
            bench.append(log)
        except StorageError:
            return appended
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("kept_bytes", [0, 1, 30, 70])
def test_of_a_torn_write_nothing_is_visible_now_or_later(memory_bench: LogBench, kept_bytes: int):
    log = memory_bench.create()
    memory_bench.append(log, 2)
    memory_bench.files.fail_next("write", errno.EIO, path_matching="*.log", kept_bytes=kept_bytes)
    with pytest.raises(StorageError, match="offline"):
        memory_bench.append(log, 3)
    assert log.log_end_offset == 2
    everything_is_refused(memory_bench, log)
    assert len(memory_bench.failures) == 1

    memory_bench.files.crash_process()
    again = memory_bench.load()
    assert offsets_of(read_all(again)) == [0, 1]


def test_a_torn_write_that_cannot_be_undone_is_cut_by_recovery(memory_bench: LogBench):
    log = memory_bench.create()
    memory_bench.append(log, 2)
    size = log.size_bytes
    memory_bench.files.fail_next("write", path_matching="*.log", kept_bytes=40)
    memory_bench.files.fail_next("truncate", path_matching="*.log")
    with pytest.raises(StorageError):
        memory_bench.append(log, 3)
    path = log.segments[0].path
    assert memory_bench.files.size(path) == size + 40
    memory_bench.files.crash_process()
    assert memory_bench.load().log_end_offset == 2
    assert memory_bench.files.size(path) == size


def test_a_full_disk_takes_the_folder_offline_and_keeps_what_was_acknowledged(
    memory_bench: LogBench,
):
    log = memory_bench.create()
    memory_bench.files.set_capacity(memory_bench.files.used_bytes() + 1000)
    acknowledged = append_until_refused(memory_bench, log)
    assert acknowledged > 3
    [(folder, error)] = memory_bench.failures
    assert folder == memory_bench.root
    assert error.errno == errno.ENOSPC
    memory_bench.files.set_capacity(1 << 30)
    memory_bench.files.crash_process()
    assert memory_bench.load().log_end_offset == acknowledged


@pytest.mark.parametrize("operation", ["open", "write"])
def test_an_index_that_cannot_be_written_is_a_failure_too(memory_bench: LogBench, operation: str):
    log = memory_bench.create(index_interval_bytes=0)
    memory_bench.files.fail_next(operation, path_matching="*.index", count=None)
    appended = append_until_refused(memory_bench, log)
    assert log.log_end_offset == appended
    memory_bench.files.clear_faults()
    memory_bench.files.crash_process()
    # The batch whose entry failed may be there: it was written, but nobody was told so.
    assert memory_bench.load().log_end_offset in (appended, appended + 1)


def test_a_segment_that_cannot_be_made_is_a_failure(memory_bench: LogBench):
    size = len(batch_of()[0])
    log = memory_bench.create(segment_bytes=size)
    memory_bench.append(log)
    memory_bench.files.fail_next("open", path_matching="*001.log")
    with pytest.raises(StorageError):
        memory_bench.append(log)
    memory_bench.files.crash_process()
    assert memory_bench.load().log_end_offset == 1


def test_a_read_error_is_a_failure(memory_bench: LogBench):
    log = memory_bench.create()
    for _ in range(3):
        memory_bench.append(log)
    memory_bench.files.fail_next("read", path_matching="*.log")
    with pytest.raises(StorageError, match="offline"):
        log.read(0, 1, end_offset=3, min_one=True)
    everything_is_refused(memory_bench, log)


def test_a_failure_of_one_log_closes_the_others_in_its_folder(memory_bench: LogBench):
    log = memory_bench.create()
    memory_bench.append(log)
    memory_bench.directory.fail(OSError(errno.EIO, "another log saw it"))
    everything_is_refused(memory_bench, log)


def test_a_folder_fails_once(memory_bench: LogBench):
    first = OSError(errno.EIO, "first")
    memory_bench.directory.fail(first)
    refusal = memory_bench.directory.fail(OSError(errno.EIO, "second"))
    assert memory_bench.failures == [(memory_bench.root, first)]
    assert "first" in str(refusal)


def test_too_many_open_files_are_no_failure_of_the_disk(memory_bench: LogBench):
    log = memory_bench.create(index_interval_bytes=0, segment_bytes=100 * SIZE)
    memory_bench.append(log)
    for error in (errno.EMFILE, errno.ENFILE):
        memory_bench.open_files.let_go(log.segments[0])
        memory_bench.files.fail_next("open", error, count=None)
        with pytest.raises(StorageError, match="too many files"):
            memory_bench.append(log)
        with pytest.raises(StorageError, match="too many files"):
            log.read(0, 10, end_offset=1, min_one=True)
        with pytest.raises(StorageError, match="too many files"):
            asyncio.run(log.flush())
        memory_bench.files.clear_faults()
    assert memory_bench.failures == []
    memory_bench.append(log)
    asyncio.run(log.flush())
    assert log.recovery_point == 2
    assert memory_bench.files.exists(memory_bench.folder / "leader-epoch-checkpoint")


def test_appends_go_on_while_no_index_can_be_opened(memory_bench: LogBench):
    log = memory_bench.create(index_interval_bytes=0)
    memory_bench.append(log)
    memory_bench.files.fail_next("open", errno.EMFILE, path_matching="*index", count=None)
    for _ in range(1000):
        memory_bench.append(log)
    memory_bench.files.clear_faults()
    assert offsets_of(read_all(log, max_bytes=1)) == list(range(1001))
    asyncio.run(log.flush())
    assert memory_bench.files.size(log.segments[0].offset_index.path) == 1000 * 8
