"""AlterReplicaLogDirs, and what DescribeLogDirs shows of moves: of a broker with two folders."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.api import Slices
from moldau.broker.handlers import alter_replica_log_dirs, delete_topics, describe_log_dirs
from moldau.errors import ErrorCode
from moldau.model import TopicPartition
from moldau.storage.log_dirs import DirectoryReport

BOTH = {"log_dirs": "/data,/more"}


async def move(bench: HandlerBench, path: str, topic: str, *partitions: int) -> Mapping[int, Any]:
    row = {"path": path, "topics": [{"name": topic, "partitions": partitions}]}
    answer = await bench.call(alter_replica_log_dirs, dirs=[row])
    (topic_row,) = answer.results
    assert topic_row.topic_name == topic
    return {one.partition_index: one.error_code for one in topic_row.partitions}


async def places(bench: HandlerBench, topic: str) -> dict[tuple[int, bool], tuple[str, int]]:
    """Folder and lag of each replica, by its number and whether it is a future one."""
    answer = await bench.call(describe_log_dirs, topics=None)
    return {
        (one.partition_index, one.is_future_key): (directory.log_dir, one.offset_lag)
        for directory in answer.results
        for row in directory.topics
        if row.name == topic
        for one in row.partitions
    }


def other(folder: str) -> str:
    return "/more" if folder == "/data" else "/data"


def test_a_replica_moves_and_serves_on() -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"a", b"b")
        (source, _) = (await places(bench, "clicks"))[0, False]
        assert await move(bench, other(source), "clicks", 0) == {0: ErrorCode.none}
        partition = bench.services.partitions.require_leader("clicks", 0)
        await bench.cluster.until(lambda: str(partition.log.directory.folder) == other(source))
        bench.append("clicks", b"c")
        assert (await places(bench, "clicks"))[0, False] == (other(source), 0)
        assert (0, True) not in await places(bench, "clicks")
        read = partition.read(0, 1 << 20, read_committed=False, min_one=True)
        assert partition.high_watermark == read.end_offset == 3

    with_broker(story, **BOTH)


def test_a_throttled_move_is_shown_with_its_lag_and_can_be_redirected_or_called_off() -> None:
    async def story(bench: HandlerBench) -> None:
        for _ in range(20):
            bench.append("clicks", b"a" * 1_000)
        (source, _) = (await places(bench, "clicks"))[0, False]
        await move(bench, other(source), "clicks", 0)
        found = await places(bench, "clicks")
        assert found[0, False] == (source, 0)
        folder, lag = found[0, True]
        assert folder == other(source)
        assert 0 < lag <= 20
        assert await move(bench, source, "clicks", 0) == {0: ErrorCode.none}  # stay
        assert (0, True) not in await places(bench, "clicks")
        assert bench.services.log_store.moves.find(TopicPartition("clicks", 0)) is None

    slow = {
        "replica_alter_log_dirs_io_max_bytes_per_second": "10",
        "replica_fetch_max_bytes": "1500",
    }
    with_broker(story, **BOTH, **slow)


def test_a_topic_that_is_deleted_takes_its_copies_along() -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"a" * 1_000)
        bench.append("clicks", b"a" * 1_000)
        (source, _) = (await places(bench, "clicks"))[0, False]
        await move(bench, other(source), "clicks", 0)
        assert (0, True) in await places(bench, "clicks")
        asked = [{"name": "clicks", "topic_id": None}]
        await bench.call(delete_topics, topics=asked, timeout=1_000)
        await bench.cluster.until(lambda: bench.services.partitions.find("clicks", 0) is None)
        await bench.cluster.clock.advance(120)
        (machine,) = bench.cluster.machines.values()
        for folder in ("/data", "/more"):
            names = machine.files.peek_folder(Path(folder))
            assert not [name for name in names if name.startswith("clicks")]

    slow = {
        "replica_alter_log_dirs_io_max_bytes_per_second": "10",
        "replica_fetch_max_bytes": "500",
    }
    with_broker(story, **BOTH, **slow)


def test_what_cannot_be_moved_is_refused() -> None:
    async def story(bench: HandlerBench) -> None:
        assert await move(bench, "/elsewhere", "clicks", 0) == {0: ErrorCode.log_dir_not_found}
        missing = await move(bench, "/more", "later", 0)
        assert missing == {0: ErrorCode.replica_not_available}

    with_broker(story, **BOTH)


def test_a_replica_is_made_where_somebody_wanted_it_before() -> None:
    async def story(bench: HandlerBench) -> None:
        for folder in ("/data", "/more"):
            name = f"in{folder[1:]}"
            for number in range(3):
                await move(bench, folder, name, number)
            await bench.create(name, 3)
            found = await places(bench, name)
            assert {place for place, _ in found.values()} == {folder}

    with_broker(story, **BOTH)


def test_nothing_moves_while_a_directory_is_offline() -> None:
    async def story(bench: HandlerBench) -> None:
        (source, _) = (await places(bench, "clicks"))[0, False]
        store = bench.services.log_store
        gone = next(each for each in store.directories if str(each.folder) != source)
        gone.fail(OSError(5, "gone"))
        assert await move(bench, other(source), "clicks", 0) == {0: ErrorCode.kafka_storage_error}

    with_broker(story, **BOTH)


def test_others_have_the_loop_while_thousands_of_replicas_are_described() -> None:
    sizes = {TopicPartition("clicks", number): number for number in range(2_000)}
    report = DirectoryReport(Path("/data"), True, -1, -1, sizes, {})
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def story() -> None:
        counting = asyncio.create_task(count_turns())
        topics = await describe_log_dirs._encode_topics(report, None, 4, Slices(300))
        counting.cancel()
        assert len(topics.elements) == 1
        assert turns >= 5

    asyncio.run(story())
