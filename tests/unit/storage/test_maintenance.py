"""What the store does in the background, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from log_bench import DEFAULTS, START_MS, batch_of
from test_log_store import CLICKS, DATA, TOPIC_ID, Bench

from moldau.storage.checkpoint_files import read_offset_checkpoint
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore

SIZE = len(batch_of()[0])

Story = Callable[[Bench, LogStore, Log], Awaitable[None]]


def run(story: Story, settings: dict[str, str] | None = None, **values: object) -> None:
    async def main() -> None:
        bench = Bench()
        bench.settings = settings or {}
        store = await bench.open()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS.replace(**values))
        task = asyncio.create_task(store.maintain())
        await asyncio.sleep(0)
        await story(bench, store, log)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()

    asyncio.run(main())


def append(bench: Bench, log: Log, **fields: int) -> None:
    batch, header = batch_of(**fields)
    log.append(batch, header, leader_epoch=0, now_ms=bench.clock.now_ms())


def test_a_rolled_segment_is_flushed_at_once():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(bench, log)
        append(bench, log)
        await bench.clock.advance(0)
        assert log.recovery_point == 2
        assert bench.files.exists(DATA / "clicks-0" / "00000000000000000001.snapshot")

    run(story, segment_bytes=SIZE)


def test_flush_ms_is_kept():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        for end in (1, 2):
            append(bench, log)
            await bench.clock.advance(0.9)
            assert log.recovery_point == end - 1
            await bench.clock.advance(0.2)
            assert log.recovery_point == end

    run(story, flush_ms=1000)


def test_retention_runs_in_its_interval_and_the_files_go():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        for number in range(4):
            append(bench, log, timestamp_ms=START_MS + number)
        await bench.clock.advance(59)
        assert log.log_start_offset == 0
        await bench.clock.advance(2)
        assert log.log_start_offset == 4
        await bench.clock.advance(61)
        names = bench.files.list_folder(DATA / "clicks-0")
        assert [name for name in names if name.endswith((".log", ".deleted"))] == [
            "00000000000000000004.log"
        ]

    settings = {"log.retention.check.interval.ms": "60000"}
    run(story, settings, segment_bytes=SIZE, retention_ms=1000)


def test_retention_goes_by_the_high_watermarks_it_is_given():
    async def main() -> None:
        bench = Bench()
        store = await bench.open()
        options = DEFAULTS.replace(segment_bytes=SIZE, retention_ms=0)
        log = await store.create_log(CLICKS, TOPIC_ID, options)
        for _ in range(4):
            append(bench, log)
        task = asyncio.create_task(store.maintain(lambda: {CLICKS: 2}))
        await bench.clock.advance(301)
        assert log.log_start_offset == 2
        assert read_offset_checkpoint(bench.files, DATA / "replication-offset-checkpoint") == {
            CLICKS: 2
        }
        task.cancel()
        await store.close()

    asyncio.run(main())


def test_recovery_points_are_written_down():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(bench, log)
        await log.flush()
        await bench.clock.advance(61)
        path = DATA / "recovery-point-offset-checkpoint"
        assert read_offset_checkpoint(bench.files, path) == {CLICKS: 1}

    run(story)


def test_a_start_offset_that_was_moved_is_written_down_at_once():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(bench, log, count=5)
        log.advance_start(3)
        await bench.clock.advance(0)
        assert read_offset_checkpoint(bench.files, DATA / "log-start-offset-checkpoint") == {
            CLICKS: 3
        }

    run(story)


def test_checkpoints_that_say_the_same_are_not_written_again():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(bench, log)
        await log.flush()
        await bench.clock.advance(61)
        bench.files.fail_next("write", path_matching="*checkpoint*", count=None)
        await bench.clock.advance(600)
        assert bench.failed == []
        bench.files.clear_faults()

    run(story)


def test_producers_are_forgotten_in_time():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(bench, log, producer_id=5, producer_epoch=0, base_sequence=0)
        assert len(log.active_producers()) == 1
        await bench.clock.advance(24 * 3600 + 601)
        assert len(log.active_producers()) == 0

    run(story, retention_ms=-1)


def test_a_job_that_fails_is_reported_and_runs_again(caplog: pytest.LogCaptureFixture):
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        original = log.delete_old_segments
        calls = []

        def fail_once(now_ms: int, high_watermark: int) -> int:
            calls.append(now_ms)
            if len(calls) == 1:
                raise RuntimeError("a bug")
            return original(now_ms, high_watermark)

        log.delete_old_segments = fail_once  # type: ignore[method-assign]
        await bench.clock.advance(301)
        assert "apply_retention failed" in caplog.text
        await bench.clock.advance(301)
        assert len(calls) == 2

    run(story)


def test_a_failing_disk_ends_no_job():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(bench, log)
        bench.files.fail_next("sync", path_matching="*.log")
        append(bench, log)
        await bench.clock.advance(1000)
        assert bench.failed == [DATA]

    run(story, segment_bytes=SIZE)


def test_a_job_that_a_full_disk_ends_is_told_of_in_a_line(caplog: pytest.LogCaptureFixture):
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        append(bench, log)
        bench.files.set_capacity(1)
        await bench.clock.advance(1000)
        assert bench.failed == [DATA]
        assert "No space left" in caplog.text
        assert "Traceback" not in caplog.text

    run(story)


def test_an_idle_store_arms_a_handful_of_timers():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        await bench.clock.advance(3600)
        assert bench.clock.pending_timers <= 5

    run(story)


def test_producers_are_forgotten_after_the_time_that_the_option_says_now():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        now_ms = bench.clock.now_ms()
        append(bench, log, timestamp_ms=now_ms, producer_id=7, producer_epoch=0, base_sequence=0)
        await bench.clock.advance(3)
        assert [entry.producer_id for entry in log.active_producers()] == [7]
        bench.settings["producer.id.expiration.ms"] = "2000"  # it was a day
        bench.resolve_options()
        await bench.clock.advance(1)
        assert not log.active_producers()

    run(story, {"producer.id.expiration.check.interval.ms": "1000"})
