"""The cleaner as a job of the store, and among threads."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from cleaner_bench import COMPACTED, clean, put_rounds, read_records, table_of
from log_bench import DEFAULTS, START_MS, LogBench
from test_log_store import CLICKS, DATA, TOPIC_ID, VIEWS, Bench
from test_maintenance import run

from moldau.config.broker_options import BrokerOptions
from moldau.model import Offset, TopicPartition
from moldau.storage.checkpoint_files import read_offset_checkpoint
from moldau.storage.log import Log
from moldau.storage.log_cleaner import LogCleaner
from moldau.storage.log_store import LogStore
from moldau.workers import ThreadWorkers

CHECKPOINT = DATA / "cleaner-offset-checkpoint"


def _ends_of(logs: Mapping[TopicPartition, Log]) -> dict[TopicPartition, Offset]:
    """All of it is committed."""
    return {key: log.log_end_offset for key, log in logs.items()}


def test_a_dirty_log_is_compacted_after_the_backoff_and_that_is_written_down():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        put_rounds(bench, log, 10)
        before, size_bytes = table_of(log), log.size_bytes
        await bench.clock.advance(14)
        assert log.size_bytes == size_bytes
        await bench.clock.advance(2)
        assert log.size_bytes < size_bytes / 2
        assert table_of(log) == before
        cleaned = log.segments[-1].base_offset
        assert bench.files.read(CHECKPOINT) == b"0\n1\nclicks 0 %d\n" % cleaned

    run(story, **COMPACTED)


def test_the_checkpoint_is_read_at_the_next_start():
    async def main() -> None:
        bench = Bench()
        store = await bench.open()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS.replace(**COMPACTED))
        put_rounds(bench, log, 10)
        await log.flush()
        cleaner = LogCleaner(bench.clock, lambda: BrokerOptions.resolve({}))
        assert await cleaner.clean_dirtiest(store.logs, _ends_of(store.logs))
        await store.close()
        again = await bench.open()
        assert again.logs[CLICKS].cleaned_offset == log.cleaned_offset > 0
        # A topic of the same name that is made anew was never cleaned.
        await again.delete_log(CLICKS)
        new = await again.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert new.cleaned_offset == 0
        assert read_offset_checkpoint(bench.files, CHECKPOINT) == {}
        await again.close()

    asyncio.run(main())


def test_nothing_is_compacted_when_the_cleaner_is_off():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        put_rounds(bench, log, 10)
        size_bytes = log.size_bytes
        await bench.clock.advance(60)
        assert log.size_bytes == size_bytes

    run(story, {"log.cleaner.enable": "false"}, **COMPACTED)


def test_a_log_can_be_compacted_and_deleted():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        put_rounds(bench, log, 10)
        await bench.clock.advance(16)
        assert len(read_records(log)) < 12
        await bench.clock.advance(301)
        assert log.log_start_offset == log.log_end_offset

    policy = frozenset({"compact", "delete"})
    run(story, **{**COMPACTED, "cleanup_policy": policy, "retention_ms": 100_000})


def test_the_files_of_the_old_segments_go():
    async def story(bench: Bench, store: LogStore, log: Log) -> None:
        put_rounds(bench, log, 10)
        await bench.clock.advance(16)
        folder = DATA / "clicks-0"
        assert any(name.endswith(".deleted") for name in bench.files.list_folder(folder))
        await bench.clock.advance(61)
        assert not any(name.endswith(".deleted") for name in bench.files.list_folder(folder))
        assert len(table_of(log)) == 3

    run(story, **COMPACTED)


def test_the_dirtiest_log_is_first():
    async def main() -> None:
        bench = Bench()
        store = await bench.open()
        options = DEFAULTS.replace(**COMPACTED)
        first = await store.create_log(CLICKS, TOPIC_ID, options)
        second = await store.create_log(VIEWS, TOPIC_ID, options)
        cleaner = LogCleaner(bench.clock, lambda: BrokerOptions.resolve({}))
        put_rounds(bench, first, 20)
        await first.flush()
        assert await cleaner.clean_dirtiest(store.logs, _ends_of(store.logs))
        put_rounds(bench, first, 3)
        put_rounds(bench, second, 5)
        await asyncio.gather(first.flush(), second.flush())
        cleaned = first.cleaned_offset
        assert await cleaner.clean_dirtiest(store.logs, _ends_of(store.logs))
        assert second.cleaned_offset > 0
        assert first.cleaned_offset == cleaned
        assert await cleaner.clean_dirtiest(store.logs, _ends_of(store.logs))
        assert first.cleaned_offset > cleaned
        assert not await cleaner.clean_dirtiest(store.logs, _ends_of(store.logs))
        await store.close()

    asyncio.run(main())


def test_lookups_in_other_threads_go_on_while_segments_are_replaced(bench: LogBench):
    log = bench.create(**{**COMPACTED, "file_delete_delay_ms": 0})
    workers = ThreadWorkers(4)
    bench.directory.workers = workers

    async def look_up(stop: asyncio.Event) -> None:
        while not stop.is_set():
            found = await workers.run(lambda: log.find_offset_by_timestamp(START_MS))
            assert found is not None
            assert len(table_of(log)) == 3

    async def story() -> None:
        put_rounds(bench, log, 2)
        stop = asyncio.Event()
        readers = [asyncio.create_task(look_up(stop)) for _ in range(3)]
        for _ in range(3):
            put_rounds(bench, log, 6)
            assert await clean(bench, log)
        stop.set()
        await asyncio.gather(*readers)

    asyncio.run(story())
    workers.close()
    assert bench.failures == []
