"""Logs that share files with another one: what is in them, and that neither harms the other."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TypeVar
from uuid import UUID

import pytest
from log_bench import DEFAULTS, START_MS, batch_of, offsets_of, read_all
from test_log_store import CLICKS, DATA, TOPIC_ID, Bench, append

from moldau.errors import StorageError
from moldau.model import TopicId, TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_marker_batch
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.workers import InlineWorkers

TRIAL = TopicPartition("trial", 0)
TRIAL_ID = TopicId(UUID(int=7))
OPTIONS = DEFAULTS.replace(segment_bytes=2_000)
MORE = Path("more")
T = TypeVar("T")


class CountingWorkers(InlineWorkers):
    """Keeps what it was given to do."""

    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[object] = []

    async def run(self, work: Callable[[], T]) -> T:
        self.jobs.append(work)
        return await super().run(work)


def run(story: Callable[[Bench, LogStore, Log], Awaitable[None]]) -> None:
    """With a log of several segments, in the second of two directories."""

    async def main() -> None:
        bench, store, log = await filled()
        await story(bench, store, log)

    asyncio.run(main())


async def filled() -> tuple[Bench, LogStore, Log]:
    bench = Bench(folders=(DATA, MORE))
    store = await bench.open()
    store.moves.request_directory(CLICKS, MORE)
    log = await store.create_log(CLICKS, TOPIC_ID, OPTIONS)
    for _ in range(40):
        append(log, 3)
    return bench, store, log


async def branch(store: LogStore, log: Log, end_offset: int | None = None) -> Log:
    end_offset = log.log_end_offset if end_offset is None else end_offset
    return await store.branches.create_branch(TRIAL, TRIAL_ID, OPTIONS, log, lambda: end_offset)


def checksums(log: Log) -> list[int]:
    return [header.crc for header in read_all(log)]


def write_transaction(log: Log, outcome: ControlType, producer_id: int = 9) -> None:
    batch, header = batch_of(
        2, producer_id=producer_id, producer_epoch=0, transactional=True, base_sequence=0
    )
    log.append(batch, header, leader_epoch=0, now_ms=START_MS)
    end_transaction(log, outcome, producer_id)


def end_transaction(log: Log, outcome: ControlType, producer_id: int) -> None:
    marker = EndTransactionMarker(outcome, 0)
    data = bytearray(
        build_marker_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=START_MS)
    )
    log.append(data, read_header(data), leader_epoch=0, now_ms=START_MS)


def test_a_branch_has_the_batches_the_epochs_and_no_producers():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        batch, header = batch_of(1, producer_id=5, producer_epoch=0, base_sequence=0)
        log.append(batch, header, leader_epoch=4, now_ms=START_MS)
        made = await branch(store, log)
        assert made.folder == MORE / "trial-0"  # where it can be linked
        assert (made.topic_id, made.log_end_offset) == (TRIAL_ID, log.log_end_offset)
        assert checksums(made) == checksums(log)
        assert made.epochs == log.epochs
        assert len(log.producers) == 1
        assert len(made.producers) == 0
        shared = [one for one in made.segments if bench.files.link_count(one.path) == 2]
        assert len(shared) == len(log.segments) - 1
        assert not made.segments[-1].size_bytes
        assert store.checkpoints.find_high_watermark(TRIAL) == made.log_end_offset
        before = checksums(log)
        append(made, 5)
        append(log, 2)
        await store.close()
        again = await bench.open()
        assert checksums(again.logs[CLICKS])[:-1] == before == checksums(again.logs[TRIAL])[:-1]
        assert len(again.logs[TRIAL].producers) == 0
        await again.close()

    run(story)


@pytest.mark.parametrize("end_offset", [0, 3, 30, 60, 117, 120])
def test_a_branch_ends_where_it_is_told_to(end_offset: int):
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log, end_offset)
        assert made.log_end_offset == end_offset
        whole = [header for header in read_all(log) if header.last_offset < end_offset]
        assert checksums(made) == [header.crc for header in whole]
        append(made)
        assert offsets_of(read_all(made))[-1] == end_offset

    run(story)


def test_a_branch_begins_where_its_origin_does():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        log.advance_start(50)
        made = await branch(store, log)
        assert made.log_start_offset == 50
        await store.close()
        again = await bench.open()
        assert again.logs[TRIAL].log_start_offset == 50
        await again.close()

    run(story)


def test_readers_of_a_branch_skip_what_was_aborted():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        write_transaction(log, ControlType.ABORT)
        for _ in range(40):
            append(log, 3)
        write_transaction(log, ControlType.ABORT, producer_id=10)
        write_transaction(log, ControlType.COMMIT, producer_id=11)
        end_offset = log.log_end_offset
        append(log)
        write_transaction(log, ControlType.ABORT, producer_id=12)
        made = await branch(store, log, end_offset)
        assert made.aborted_transactions(0, end_offset) == log.aborted_transactions(0, end_offset)
        assert len(made.aborted_transactions(0, end_offset)) == 2
        assert made.last_stable_offset(end_offset) == end_offset

    run(story)


def test_a_truncation_of_one_leaves_the_other_as_it_is():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        before = checksums(log)
        made.truncate_to(31)  # in the middle of a shared segment
        await store.checkpoints.complete_truncation(made)
        for _ in range(9):
            append(made)
        assert checksums(log) == before
        theirs = checksums(made)
        log.truncate_to(10)
        await store.checkpoints.complete_truncation(log)
        append(log, 2)
        assert checksums(made) == theirs
        await store.close()
        again = await bench.open()
        assert checksums(again.logs[TRIAL]) == theirs
        await again.close()

    run(story)


def test_a_truncation_to_the_end_of_a_shared_segment_leaves_the_other_as_it_is():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        before = checksums(log)
        made.truncate_to(made.segments[1].base_offset)
        append(made, 4)
        assert checksums(log) == before

    run(story)


def test_what_a_truncation_cuts_is_copied_by_a_worker_before_it():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        before, shared = checksums(log), made.segments[1]
        files = bench.files
        threads = made.directory.workers = CountingWorkers()
        assert files.link_count(shared.path) == 2
        await store.checkpoints.prepare_truncation(made, shared.base_offset + 4)
        assert threads.jobs[0] == shared.copy_shared
        assert files.link_count(shared.path) == 1
        assert files.link_count(made.segments[0].path) == 2, "which stays as it is"
        assert checksums(made) == before, "nothing is cut off yet"
        made.truncate_to(shared.base_offset + 4)
        await store.checkpoints.complete_truncation(made)
        append(made)
        assert checksums(log) == before
        await store.close()
        again = await bench.open()
        assert checksums(again.logs[CLICKS]) == before
        await again.close()

    run(story)


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EMFILE])
def test_a_truncation_for_which_there_is_no_room_costs_nothing_else(fault: int):
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        before = checksums(made)
        offset = made.segments[1].base_offset + 4
        assert isinstance(bench.files, MemoryFiles)
        bench.files.fail_next("open", fault, path_matching="*.unshared")
        with pytest.raises(StorageError):
            await store.checkpoints.prepare_truncation(made, offset)
        assert not bench.failed
        assert checksums(made) == before
        await store.checkpoints.prepare_truncation(made, offset)
        made.truncate_to(offset)
        await store.checkpoints.complete_truncation(made)
        assert checksums(log) == before

    run(story)


def unshared_in(bench: Bench, log: Log) -> list[str]:
    names = bench.files.list_folder(log.folder)
    return [name for name in names if name.endswith(".unshared")]


def test_who_is_cancelled_while_a_segment_is_copied_leaves_no_copy_behind():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        before, shared = checksums(log), made.segments[1]
        is_copied, may_go_on = asyncio.Event(), asyncio.Event()

        class SlowWorkers(InlineWorkers):
            async def run(self, work: Callable[[], T]) -> T:
                result = await super().run(work)
                is_copied.set()
                await may_go_on.wait()
                return result

        made.directory.workers = SlowWorkers()
        task = asyncio.ensure_future(made.unshare_before_truncation(shared.base_offset + 1))
        await is_copied.wait()
        assert unshared_in(bench, made)
        task.cancel()
        may_go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not unshared_in(bench, made)
        assert bench.files.link_count(shared.path) == 1
        assert checksums(log) == checksums(made) == before

    run(story)


def test_what_was_copied_before_the_disk_was_full_is_removed():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        assert isinstance(bench.files, MemoryFiles)
        bench.files.fail_next("open", errno.ENOSPC, path_matching="*.log.unshared")
        with pytest.raises(StorageError):
            await made.unshare_before_truncation(made.segments[1].base_offset + 1)
        assert not unshared_in(bench, made)
        assert not bench.failed

    run(story)


def test_a_segment_that_goes_while_it_is_copied_does_not_come_back():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        shared, end = made.segments[1], made.segments[2].base_offset

        class Retention(InlineWorkers):
            async def run(self, work: Callable[[], T]) -> T:
                result = await super().run(work)
                made.advance_start(end)
                made.delete_old_segments(START_MS, made.log_end_offset)
                return result

        made.directory.workers = Retention()
        await made.unshare_before_truncation(shared.base_offset + 1)
        assert shared.is_deleted
        assert not unshared_in(bench, made)
        names = bench.files.list_folder(made.folder)
        assert f"{shared.base_offset:020}.log" not in names

    run(story)


def test_either_may_be_deleted():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        before = checksums(made)
        await store.delete_log(CLICKS)
        assert checksums(made) == before

    run(story)


def test_retention_of_the_origin_in_the_middle_makes_it_begin_again():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        files = bench.files
        assert isinstance(files, MemoryFiles)
        link = files.link

        def link_and_delete(source: Path, target: Path) -> None:
            files.link = link  # type: ignore[method-assign]
            log.advance_start(log.segments[2].base_offset)
            assert log.delete_old_segments(START_MS, log.log_end_offset) == 2
            link(source, target)

        files.link = link_and_delete  # type: ignore[method-assign]
        made = await branch(store, log)
        assert checksums(made) == checksums(log)
        assert made.log_start_offset == log.log_start_offset > 0
        assert sorted(files.list_folder(MORE / "trial-0"))[0] > "00000000000000000000.log"

    run(story)


def test_a_log_that_was_disturbed_is_linked_anew():
    """As by compaction, which puts other files under the same names."""

    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        files = bench.files
        assert isinstance(files, MemoryFiles)
        link, tries = files.link, []

        def link_and_disturb(source: Path, target: Path) -> None:
            link(source, target)
            if source.name.endswith("0.log") and len(tries) < 3:
                tries.append(source)
                log.flushing.begin_truncation()
                log.flushing.end_truncation()

        files.link = link_and_disturb  # type: ignore[method-assign]
        assert checksums(await branch(store, log)) == checksums(log)
        assert len(tries) == 3

        def always(source: Path, target: Path) -> None:
            link(source, target)
            log.flushing.begin_truncation()
            log.flushing.end_truncation()

        files.link = always  # type: ignore[method-assign]
        await store.delete_log(TRIAL)
        with pytest.raises(StorageError, match="changed 20 times"):
            await branch(store, log)

    run(story)


def test_a_log_that_was_compacted_meanwhile_is_taken_up_to_its_end_of_then():
    """A record may have gone for the sake of one that was not there when it was first looked at."""

    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        files = bench.files
        assert isinstance(files, MemoryFiles)
        link = files.link

        def link_and_disturb(source: Path, target: Path) -> None:
            files.link = link  # type: ignore[method-assign]
            link(source, target)
            append(log, 7)
            log.flushing.begin_truncation()
            log.flushing.end_truncation()

        files.link = link_and_disturb  # type: ignore[method-assign]
        before = log.log_end_offset
        made = await store.branches.create_branch(
            TRIAL, TRIAL_ID, OPTIONS, log, lambda: log.log_end_offset
        )
        assert made.log_end_offset == log.log_end_offset == before + 7
        assert checksums(made) == checksums(log)

    run(story)


def test_a_file_that_waits_to_be_deleted_may_be_shared_as_well():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        made = await branch(store, log)
        before = checksums(made)
        log.truncate_fully(0)  # its files are there for a minute, and are the branch's
        await store.checkpoints.complete_truncation(log)
        for _ in range(40):
            append(log, 3)
        key = TopicPartition("second", 0)
        second = await store.branches.create_branch(
            key, None, OPTIONS, log, lambda: log.log_end_offset
        )
        seconds = checksums(second)
        log.truncate_to(4)
        await store.checkpoints.complete_truncation(log)
        append(log)
        assert checksums(made) == before
        assert checksums(second) == seconds

    run(story)


def test_where_there_are_no_links_everything_is_copied():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        assert isinstance(bench.files, MemoryFiles)
        bench.files.fail_next("link", errno.EPERM, count=None)
        made = await branch(store, log)
        assert checksums(made) == checksums(log)
        assert all(bench.files.link_count(segment.path) == 1 for segment in made.segments)

    run(story)


def test_a_full_disk_costs_the_branch_alone():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        files = bench.files
        assert isinstance(files, MemoryFiles)
        await log.flush()
        files.set_capacity(files.used_bytes() + 20)
        with pytest.raises(StorageError, match="no room"):
            await branch(store, log)
        assert not bench.failed
        assert not [name for name in files.list_folder(MORE) if "trial" in name]
        files.set_capacity(None)
        append(log)
        assert checksums(await branch(store, log)) == checksums(log)

    run(story)


@pytest.mark.parametrize("kills", [True, False])
def test_a_crash_anywhere_leaves_a_whole_branch_or_none(kills: bool):
    """Every operation on files fails in its turn, and then the process or the power is gone."""

    async def story(failing: int) -> bool:
        bench, store, log = await filled()
        files = bench.files
        assert isinstance(files, MemoryFiles)
        log.advance_start(20)
        await log.flush()
        await store.checkpoints.write(log.directory)
        before = checksums(log)
        fault = files.fail_next("*", errno.EIO, skip=failing, count=None)
        try:
            await branch(store, log)
            return False
        except (StorageError, OSError):
            pass
        del fault
        files.clear_faults()
        if kills:
            files.crash_process()
        else:
            files.lose_power(Random(failing))
        again = await bench.open()
        assert checksums(again.logs[CLICKS]) == before
        made = again.logs.get(TRIAL)
        if made is None:
            made = await branch(again, again.logs[CLICKS])
        assert checksums(made) == before
        assert made.log_start_offset == again.logs[CLICKS].log_start_offset
        append(made)
        await again.close()
        return True

    failing = 0
    while asyncio.run(story(failing)):
        failing += 1
    assert failing > 50
