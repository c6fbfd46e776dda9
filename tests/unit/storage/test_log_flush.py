"""Flushing: the recovery point tells the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest
from log_bench import LogBench, batch_of, options

from moldau.errors import StorageError
from moldau.storage.log import Log

T = TypeVar("T")


class HeldWorkers:
    """Work waits at a gate until the test opens it."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.started = 0

    async def run(self, work: Callable[[], T]) -> T:
        self.started += 1
        await self.gate.wait()
        return work()

    def close(self) -> None: ...


def held(bench: LogBench, **values: object) -> tuple[Log, HeldWorkers]:
    workers = HeldWorkers()
    bench.directory.workers = workers
    return bench.create(**values), workers


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_flush_moves_the_recovery_point_to_the_end(bench: LogBench):
    log = bench.create()
    bench.append(log, 3)
    assert log.recovery_point == 0
    assert log.flushing in bench.directory.dirty
    asyncio.run(log.flush())
    assert log.recovery_point == 3
    assert log.flushing not in bench.directory.dirty
    assert log.flushing.dirty_since_ms is None


def test_what_is_appended_while_a_sync_runs_is_not_covered_by_it(bench: LogBench):
    async def story() -> None:
        log, workers = held(bench)
        bench.append(log, 3)
        flush = asyncio.create_task(log.flush())
        await turn()
        bench.append(log, 2)
        workers.gate.set()
        await flush
        assert log.recovery_point == 3
        assert log.flushing in bench.directory.dirty
        await log.flush()
        assert log.recovery_point == 5

    asyncio.run(story())


def test_those_who_wait_share_one_sync(bench: LogBench):
    async def story() -> None:
        log, workers = held(bench)
        bench.append(log)
        early = [asyncio.create_task(log.flush()) for _ in range(5)]
        await turn()
        assert workers.started == 1
        bench.append(log)
        late = [asyncio.create_task(log.flush()) for _ in range(5)]
        await turn()
        workers.gate.set()
        await asyncio.gather(*early, *late)
        assert workers.started == 2
        assert log.recovery_point == 2

    asyncio.run(story())


@pytest.mark.timeout(20)  # when it breaks, the event loop turns for ever
@pytest.mark.parametrize("turns", range(8))
def test_one_who_comes_just_as_a_sync_ends_gets_the_next(bench: LogBench, turns: int):
    """At each moment around the end, also between the end and the callback that tells of it."""

    async def story() -> None:
        log, workers = held(bench)
        bench.append(log)
        flush = asyncio.create_task(log.flush())
        await turn()
        bench.append(log)
        workers.gate.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        await log.flush()
        assert log.recovery_point == 2
        await flush

    asyncio.run(story())


def test_one_who_gives_up_waiting_does_not_stop_the_others(bench: LogBench):
    async def story() -> None:
        log, workers = held(bench)
        bench.append(log)
        first = asyncio.create_task(log.flush())
        second = asyncio.create_task(log.flush())
        await turn()
        first.cancel()
        await turn()
        workers.gate.set()
        await second
        assert first.cancelled()
        assert log.recovery_point == 1

    asyncio.run(story())


def test_a_sync_that_began_before_a_truncation_proves_nothing(bench: LogBench):
    async def story() -> None:
        log, workers = held(bench)
        bench.append(log)
        bench.append(log)
        bench.append(log)
        flush = asyncio.create_task(log.flush())
        await turn()
        log.truncate_to(1)
        bench.append(log, 3)
        workers.gate.set()
        await turn()
        assert log.recovery_point <= 1 or log.recovery_point == 4
        await flush
        assert workers.started == 2, "the batches that took the place were not synced"
        assert log.recovery_point == 4

    asyncio.run(story())


def test_what_takes_the_place_of_truncated_batches_is_not_flushed_yet(bench: LogBench):
    log = bench.create()
    for _ in range(3):
        bench.append(log)
    asyncio.run(log.flush())
    log.truncate_to(1)
    assert log.recovery_point == 1
    bench.append(log)
    assert log.recovery_point == 1


def test_a_flush_of_a_flushed_log_does_nothing(bench: LogBench):
    async def story() -> None:
        log, workers = held(bench)
        workers.gate.set()
        await log.flush()
        assert workers.started == 0

    asyncio.run(story())


def test_flush_messages_asks_for_a_flush(bench: LogBench):
    log = bench.create(flush_messages=3)
    bench.append(log, 2)
    assert not log.flush_is_due
    assert log.flushing not in bench.directory.to_flush
    bench.append(log, 1)
    assert log.flush_is_due
    assert log.flushing in bench.directory.to_flush
    asyncio.run(log.flush())
    assert not log.flush_is_due


def test_flush_ms_asks_for_a_flush_when_the_time_has_come(bench: LogBench):
    async def story() -> None:
        log = bench.create(flush_ms=5000)
        bench.append(log)
        await bench.clock.advance(4.9)
        assert log.flushing not in bench.directory.to_flush
        await bench.clock.advance(0.2)
        assert log.flushing in bench.directory.to_flush

    asyncio.run(story())


def test_a_log_that_was_flushed_meanwhile_is_not_asked_to(bench: LogBench):
    async def story() -> None:
        log = bench.create(flush_ms=5000)
        bench.append(log)
        await log.flush()
        await bench.clock.advance(6)
        assert log.flushing not in bench.directory.to_flush

    asyncio.run(story())


def test_a_flush_writes_indexes_epochs_and_snapshots(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=3 * size, index_interval_bytes=0)
    for epoch in (1, 1, 2, 2):
        bench.append(log, leader_epoch=epoch)
    asyncio.run(log.flush())
    files, folder = bench.files, bench.folder
    assert files.read(folder / "leader-epoch-checkpoint") == b"0\n2\n1 0\n2 2\n"
    assert files.exists(folder / "00000000000000000003.snapshot")
    assert files.size(folder / "00000000000000000000.index") == 2 * 8


def test_the_snapshots_of_deleted_segments_go_with_them(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=size, retention_bytes=2 * size)
    for _ in range(5):
        bench.append(log)
    asyncio.run(log.flush())

    def snapshots() -> list[str]:
        names = bench.files.list_folder(bench.folder)
        return [name[18:20] for name in names if name.endswith(".snapshot")]

    assert snapshots() == ["01", "02", "03", "04"]
    assert log.delete_old_segments(bench.clock.now_ms(), 5) == 3
    assert snapshots() == ["03", "04"]


def test_a_failed_sync_takes_the_folder_offline_and_the_point_stays(memory_bench: LogBench):
    log = memory_bench.create()
    memory_bench.append(log)
    memory_bench.files.fail_next("sync", path_matching="*.log")
    with pytest.raises(StorageError):
        asyncio.run(log.flush())
    assert log.recovery_point == 0
    assert [folder for folder, _ in memory_bench.failures] == [memory_bench.root]
    with pytest.raises(StorageError):
        memory_bench.append(log)


def test_a_log_deleted_during_a_flush_is_no_failure(bench: LogBench):
    async def story() -> None:
        log, workers = held(bench)
        bench.append(log)
        flush = asyncio.create_task(log.flush())
        await turn()
        log.close()
        bench.files.rename(bench.folder, bench.root / "gone-delete")
        workers.gate.set()
        await asyncio.gather(flush, return_exceptions=True)
        assert bench.failures == []

    asyncio.run(story())


def test_segments_deleted_during_a_flush_are_no_failure(bench: LogBench):
    async def story() -> None:
        size = len(batch_of()[0])
        log, workers = held(bench, segment_bytes=size, retention_bytes=size)
        for _ in range(4):
            bench.append(log)
        flush = asyncio.create_task(log.flush())
        await turn()
        assert log.delete_old_segments(bench.clock.now_ms(), 4) == 3
        for removal in bench.directory.to_remove:
            for path in removal.paths:
                bench.files.remove(path)
        workers.gate.set()
        await flush
        assert bench.failures == []
        assert log.recovery_point == 4

    asyncio.run(story())


def test_a_shorter_flush_ms_holds_for_what_is_waiting(bench: LogBench):
    async def story() -> None:
        log = bench.create()
        bench.append(log)
        await bench.clock.advance(100)
        assert log.flushing not in bench.directory.to_flush
        log.update_options(options(flush_ms=1000))
        await bench.clock.advance(1.1)
        assert log.flushing in bench.directory.to_flush

    asyncio.run(story())


def test_what_a_crash_left_unflushed_is_flushed_in_its_time(bench: LogBench):
    async def story() -> None:
        log = bench.create(flush_ms=1000)
        bench.append(log)
        log.close()
        again = bench.load()
        again.flushing.resume()
        await bench.clock.advance(1.1)
        assert again.flushing in bench.directory.to_flush

    asyncio.run(story())


def test_an_empty_log_leaves_no_snapshot_and_no_epochs(bench: LogBench):
    log = bench.create()
    log.begin_epoch(5)
    asyncio.run(log.shut_down())
    assert [name[18:] for name in bench.files.list_folder(bench.folder)] == [
        "00.index",
        "00.log",
        "00.timeindex",
    ]
