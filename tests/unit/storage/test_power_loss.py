"""What a disk that forgets leaves of a log: a prefix, and a word about what is missing."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from cleaner_bench import COMPACTED, put_rounds
from log_bench import DEFAULTS, a_memory_bench, batch_of, offsets_of, read_all
from power_loss_story import Story
from test_log_store import CLICKS, DATA, TOPIC_ID, VIEWS, Bench, append

from moldau.errors import StorageError
from moldau.storage.checkpoint_files import read_offset_checkpoint
from moldau.storage.log import Log
from moldau.storage.log_cleaner import LogCleaner
from moldau.storage.log_store import LogStore

MARKER = DATA / ".kafka_cleanshutdown"
LOSS = DATA / "possible-loss"


@pytest.mark.parametrize("policy", ["delete", "compact", "compact,delete"])
@pytest.mark.parametrize("hundred", range(2))
def test_what_is_left_of_a_log_is_a_prefix_of_what_was_appended(policy: str, hundred: int):
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        story = Story(seed, policy)
        try:
            story.run()
        except Exception as error:
            raise AssertionError(f"seed {seed}, {policy}: {story.happened}") from error


def in_a_store(story: Callable[[Bench, LogStore, Log], Awaitable[None]], **values: object) -> None:
    async def main() -> None:
        bench = Bench()
        store = await bench.open()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS.replace(**values))
        await story(bench, store, log)

    asyncio.run(main())


# Truncation


def test_nothing_is_copied_behind_a_truncation_that_is_not_on_disk():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(log, 3)
        append(log, 2)
        log.truncate_to(3)
        batch, _ = batch_of(1)
        batch[:8] = (3).to_bytes(8, "big")
        with pytest.raises(StorageError, match="not on disk yet"):
            log.append_replicated(memoryview(batch))
        await store.checkpoints.complete_truncation(log)
        log.append_replicated(memoryview(batch))
        assert log.log_end_offset == 4

    in_a_store(story)


def test_a_settled_truncation_is_on_disk_with_its_checkpoints():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        for _ in range(6):
            append(log, 2)
        await log.flush()
        await store.checkpoints.write(store.directories[0])
        await store.checkpoints.prepare_truncation(log, 4)
        points = DATA / "recovery-point-offset-checkpoint"
        assert read_offset_checkpoint(bench.files, points) == {CLICKS: 4}
        log.truncate_to(4)
        await store.checkpoints.complete_truncation(log)
        bench.files.lose_power()
        again = (await bench.open()).logs[CLICKS]
        assert offsets_of(read_all(again)) == [0, 1, 2, 3]
        assert not again.has_lost_its_end

    in_a_store(story, segment_bytes=2 * len(batch_of(2)[0]))


def test_the_recovery_point_waits_for_an_announced_truncation_and_then_goes_on():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(log, 3)
        append(log, 2)
        await store.checkpoints.prepare_truncation(log, 3)
        await log.flush()
        assert log.recovery_point == 3
        log.flushing.withdraw_truncation()
        await log.flush()
        assert log.recovery_point == 5

    in_a_store(story)


def test_segments_that_overlap_are_what_a_truncation_had_removed():
    bench = a_memory_bench()
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size)
    for _ in range(6):
        bench.append(log)
    former = bench.files.read(bench.folder / "00000000000000000004.log")
    log.truncate_to(3)
    log.update_options(log.options.replace(segment_bytes=100 * size))
    for _ in range(4):
        bench.append(log)
    log.close()
    path = bench.folder / "00000000000000000004.log"
    bench.files.replace(path, former)
    again = bench.load(recovery_point=2)
    assert offsets_of(read_all(again)) == [0, 1, 2, 3, 4, 5, 6]
    assert again.has_lost_its_end


# What a log says of its loss


@pytest.mark.parametrize("known", ["recovery_point", "high_watermark"])
def test_a_log_that_ends_before_what_was_flushed_or_committed_says_so(known: str):
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(log, 3)
        await log.flush()
        append(log, 2)
        if known == "recovery_point":
            await log.flush()
            await store.checkpoints.write(store.directories[0])
        else:
            await store.checkpoints.write_high_watermarks({CLICKS: log.log_end_offset})
        bench.files.crash_process()
        path = DATA / "clicks-0" / "00000000000000000000.log"
        bench.files.replace(path, bench.files.read(path)[: len(batch_of(3)[0])])
        again = (await bench.open()).logs[CLICKS]
        assert again.log_end_offset == 3
        assert again.has_lost_its_end

    in_a_store(story)


def test_a_loss_is_remembered_until_the_cluster_was_told():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(log, 3)
        append(log, 2)
        bench.files.crash_process()
        path = DATA / "clicks-0" / "00000000000000000000.log"
        data = bytearray(bench.files.read(path))
        data[-1] ^= 1
        bench.files.replace(path, bytes(data))
        for _ in range(2):  # killed before it could tell
            store = await bench.open()
            assert store.logs[CLICKS].has_lost_its_end
            bench.files.crash_process()
        store = await bench.open()
        await store.forget_losses()
        bench.files.crash_process()
        assert not (await bench.open()).logs[CLICKS].has_lost_its_end

    in_a_store(story)


def test_what_is_appended_after_a_loss_is_not_covered_by_an_older_recovery_point():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        for _ in range(4):
            append(log, 2)
        await log.flush()
        await store.checkpoints.write(store.directories[0])
        bench.files.crash_process()
        path = DATA / "clicks-0" / "00000000000000000000.log"
        bench.files.replace(path, bench.files.read(path)[: len(batch_of(2)[0])])
        await bench.open()
        points = DATA / "recovery-point-offset-checkpoint"
        assert read_offset_checkpoint(bench.files, points) == {CLICKS: 2}

    in_a_store(story)


# Syncs that fail


def test_after_a_failed_sync_the_next_process_takes_no_log_of_the_folder_for_whole():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        other = await store.create_log(VIEWS, TOPIC_ID, DEFAULTS)
        append(log, 3)
        append(other, 3)
        bench.files.fail_next("sync", path_matching="*clicks-0/*.log")
        with pytest.raises(StorageError):
            await log.flush()
        assert b"a sync failed" in bench.files.read(LOSS)
        bench.files.crash_process()
        again = await bench.open()
        assert [each.has_lost_its_end for each in again.logs.values()] == [True, True]
        assert [each.log_end_offset for each in again.logs.values()] == [3, 3]
        # The system takes what it failed to write for written: only what is written again is.
        for each in again.logs.values():
            await each.flush()
        bench.files.lose_power()
        logs = (await bench.open()).logs.values()
        assert [offsets_of(read_all(each)) for each in logs] == [[0, 1, 2]] * 2

    in_a_store(story)


def test_a_write_that_fails_leaves_what_was_written_before_whole():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(log, 3)
        bench.files.fail_next("write", errno.ENOSPC, path_matching="*.log")
        with pytest.raises(StorageError):
            append(log, 2)
        assert not bench.files.exists(LOSS)
        bench.files.crash_process()
        assert not (await bench.open()).logs[CLICKS].has_lost_its_end

    in_a_store(story)


# Stopping


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
def test_a_stop_with_a_flush_that_failed_is_no_clean_one(error: int):
    """A lack of handles takes no folder offline: nobody else would notice."""

    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(log, 3)
        bench.files.fail_next("open", error, path_matching="*/leader-epoch-checkpoint.tmp")
        await store.close()
        bench.files.clear_faults()
        assert not bench.files.exists(MARKER)
        again = await bench.open()
        assert again.logs[CLICKS].log_end_offset == 3
        assert not again.logs[CLICKS].was_closed

    in_a_store(story)


@pytest.mark.parametrize("seed", range(20))
def test_after_a_clean_stop_an_empty_and_a_truncated_log_survive_a_power_loss(seed: int):
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await store.create_log(VIEWS, TOPIC_ID, DEFAULTS)
        for _ in range(6):
            append(log, 2)
        await log.flush()
        log.truncate_to(4)
        await store.close()
        assert bench.files.exists(MARKER)
        bench.files.lose_power(Random(seed))
        again = await bench.open()
        assert again.logs[VIEWS].topic_id == TOPIC_ID
        assert offsets_of(read_all(again.logs[CLICKS])) == [0, 1, 2, 3]
        assert again.logs[CLICKS].was_closed

    in_a_store(story, segment_bytes=2 * len(batch_of(2)[0]))


# What is beside the batches


@pytest.mark.parametrize("seed", range(20))
def test_the_youngest_timestamp_of_a_sealed_segment_survives(seed: int):
    """It decides when retention takes the segment away."""
    bench = a_memory_bench()
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size, index_interval_bytes=1 << 20)
    bench.append(log, timestamp_ms=5_000)
    bench.append(log, timestamp_ms=9_000)
    asyncio.run(log.flush())
    bench.append(log, timestamp_ms=10_000)  # the first segment is sealed after its flush
    point = log.recovery_point
    if seed % 2:
        asyncio.run(log.flush())
        point = log.recovery_point
    bench.files.lose_power(Random(seed))
    again = bench.load(recovery_point=point)
    assert again.segments[0].largest_timestamp() == 9_000


def test_deleted_records_that_come_back_have_their_epochs():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        for epoch in (3, 4):
            batch, header = batch_of(2)
            log.append(batch, header, leader_epoch=epoch, now_ms=0)
        log.advance_start(3)
        await log.flush()
        bench.files.lose_power()
        again = (await bench.open()).logs[CLICKS]
        assert again.log_start_offset == 0
        assert [again.epochs.find_epoch_at(offset) for offset in range(4)] == [3, 3, 4, 4]

    in_a_store(story)


def test_compaction_stays_below_the_recovery_point_when_the_log_begins_above_it():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        put_rounds(bench, log, 5)  # type: ignore[arg-type]
        log.advance_start(6)
        log.delete_old_segments(bench.clock.now_ms(), log.log_end_offset)
        assert log.recovery_point == 0 < log.segments[0].base_offset < log.log_start_offset
        before = [each.size_bytes for each in log.segments]
        cleaner = LogCleaner(bench.clock, lambda: bench.options)
        await cleaner.clean_dirtiest({CLICKS: log}, {CLICKS: log.log_end_offset})
        assert [each.size_bytes for each in log.segments] == before

    in_a_store(story, **COMPACTED)


def test_a_start_that_told_nobody_of_a_power_loss_ends_without_the_marker_of_a_clean_stop():
    """It would vouch for logs that may have lost what was acknowledged (REP-6)."""

    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        await store.close()
        assert bench.files.exists(MARKER)
        store = await bench.open()
        await store.close(are_losses_told=False)
        assert bench.files.exists(MARKER)  # nothing can have been lost

        await bench.open()
        bench.files.lose_power()
        store = await bench.open()
        await store.close(are_losses_told=False)
        assert not bench.files.exists(MARKER)
        store = await bench.open()
        await store.close()
        assert bench.files.exists(MARKER)

    asyncio.run(story())
