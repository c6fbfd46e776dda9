"""ListOffsets, DeleteRecords, DescribeProducers, OffsetForLeaderEpoch, DescribeLogDirs and
InitProducerId: good ones, partitions that are not there, and wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.handlers import (
    delete_records,
    describe_log_dirs,
    describe_producers,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
)
from moldau.errors import ErrorCode
from moldau.records.record_batch import build_batch

LATEST, EARLIEST, NEWEST = -1, -2, -3
ELSEWHERE = [("clicks", 9), ("views", 0)]


async def list_offset(bench: HandlerBench, timestamp_ms: int, **more: Any) -> Any:
    row = {"partition_index": more.get("partition", 0), "timestamp": timestamp_ms}
    row["current_leader_epoch"] = more.get("leader_epoch", -1)
    answer = await bench.call(
        list_offsets,
        replica_id=-1,
        isolation_level=more.get("isolation_level", 0),
        topics=[{"name": more.get("topic", "clicks"), "partitions": [row]}],
        timeout=1_000,
    )
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp_ms", "offset"),
    [(EARLIEST, 0), (LATEST, 3), (NEWEST, 2), (1_001, 1), (5_000, -1)],
)
def test_offsets_are_found_by_time(timestamp_ms: int, offset: int) -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"a", b"b", b"c", timestamp_ms=1_000)
        found = await list_offset(bench, timestamp_ms)
        assert (found.error_code, found.offset) == (ErrorCode.none, offset)

    with_broker(story)


@pytest.mark.parametrize(("topic", "partition"), ELSEWHERE)
def test_a_partition_that_is_not_here_has_no_offsets(topic: str, partition: int) -> None:
    async def story(bench: HandlerBench) -> None:
        found = await list_offset(bench, LATEST, topic=topic, partition=partition)
        assert found.error_code is ErrorCode.unknown_topic_or_partition

    with_broker(story)


def test_a_client_with_another_epoch_is_told_so() -> None:
    async def story(bench: HandlerBench) -> None:
        found = await list_offset(bench, LATEST, leader_epoch=7)
        assert found.error_code is ErrorCode.unknown_leader_epoch

    with_broker(story)


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "code", "low_watermark"),
    [
        ("clicks", 0, 2, ErrorCode.none, 2),
        ("clicks", 0, -1, ErrorCode.none, 3),
        ("clicks", 0, 4, ErrorCode.offset_out_of_range, -1),
        ("clicks", 9, 1, ErrorCode.unknown_topic_or_partition, -1),
        ("views", 0, 1, ErrorCode.unknown_topic_or_partition, -1),
    ],
)
def test_records_are_deleted_up_to_an_offset(
    topic: str, partition: int, offset: int, code: ErrorCode, low_watermark: int
) -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"a", b"b", b"c")
        row = {"partition_index": partition, "offset": offset}
        answer = await bench.call(
            delete_records, topics=[{"name": topic, "partitions": [row]}], timeout=1_000
        )
        found = answer.topics[0].partitions[0]
        assert (found.error_code, found.low_watermark) == (code, low_watermark)

    with_broker(story)


@pytest.mark.parametrize(
    ("cleanup_policy", "code"),
    [
        ("compact", ErrorCode.policy_violation),
        ("compact,delete", ErrorCode.none),
        ("", ErrorCode.none),
    ],
)
def test_records_of_a_topic_that_is_compacted_alone_are_not_deleted(
    cleanup_policy: str, code: ErrorCode
) -> None:
    async def story(bench: HandlerBench) -> None:
        rows = [{"partition_index": 0, "offset": 0}]
        answer = await bench.call(
            delete_records, topics=[{"name": "clicks", "partitions": rows}], timeout=1_000
        )
        assert answer.topics[0].partitions[0].error_code is code

    with_broker(story, **{"log.cleanup.policy": cleanup_policy})


def test_producers_of_a_partition_are_described() -> None:
    async def story(bench: HandlerBench) -> None:
        batch = build_batch([(1, None, b"a", ())], producer_id=5, producer_epoch=2, base_sequence=0)
        bench.services.partitions.require_leader("clicks", 0).append_as_leader(memoryview(batch), 1)
        answer = await bench.call(
            describe_producers, topics=[{"name": "clicks", "partition_indexes": (0, 9)}]
        )
        known, missing = answer.topics[0].partitions
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (5, 2, 0)
        assert missing.error_code is ErrorCode.unknown_topic_or_partition

    with_broker(story)


@pytest.mark.parametrize(
    ("topic", "epoch", "current", "code", "end_offset"),
    [
        ("clicks", 0, -1, ErrorCode.none, 2),
        ("clicks", 5, -1, ErrorCode.none, -1),
        ("clicks", 0, 5, ErrorCode.unknown_leader_epoch, -1),
        ("views", 0, -1, ErrorCode.unknown_topic_or_partition, -1),
    ],
)
def test_an_epoch_ends_where_the_log_says(
    topic: str, epoch: int, current: int, code: ErrorCode, end_offset: int
) -> None:
    async def story(bench: HandlerBench) -> None:
        bench.append("clicks", b"a", b"b")
        row = {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}
        answer = await bench.call(
            offset_for_leader_epoch, replica_id=-1, topics=[{"topic": topic, "partitions": [row]}]
        )
        found = answer.topics[0].partitions[0]
        assert (found.error_code, found.end_offset) == (code, end_offset)

    with_broker(story)


@pytest.mark.parametrize(
    ("topics", "partitions"),
    [
        (None, {("clicks", 0), ("clicks", 1)}),
        ([{"topic": "clicks", "partitions": (1,)}], {("clicks", 1)}),
        ([{"topic": "views", "partitions": (0,)}], set()),
    ],
)
def test_log_directories_show_the_partitions_that_were_asked_for(
    topics: Any, partitions: set[tuple[str, int]]
) -> None:
    async def story(bench: HandlerBench) -> None:
        answer = await bench.call(describe_log_dirs, topics=topics)
        (directory,) = answer.results
        assert (directory.error_code, directory.log_dir) == (ErrorCode.none, "/data")
        rows = {
            (row.name, one.partition_index) for row in directory.topics for one in row.partitions
        }
        assert rows == partitions

    with_broker(story)


def test_producer_ids_are_given_once() -> None:
    async def story(bench: HandlerBench) -> None:
        asked = {"transaction_timeout": 1_000, "producer_id": -1, "producer_epoch": -1}
        first = await bench.call(init_producer_id, transactional_id=None, **asked)
        second = await bench.call(init_producer_id, transactional_id=None, **asked)
        assert first.error_code is second.error_code is ErrorCode.none
        assert first.producer_id != second.producer_id
        assert first.producer_epoch == 0

    with_broker(story)
