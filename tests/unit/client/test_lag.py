"""Lag of positions: in records, and in the age of the oldest record that is still to be read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from client.scripted_broker import FETCH, LIST_OFFSETS, METADATA, Request, Stage, metadata
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import PartitionLag
from moldau.errors import KafkaError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.records.record import NewRecord
from moldau.records.record_batch import build_batch

FIRST = TopicPartition("clicks", 0)
NOW_MS = Stage().clock.now_ms()
START_OFFSET, END_OFFSET = 5, 20


def batch(base_offset: int, timestamp_ms: int, count: int = 10, **options: bool) -> bytes:
    records = [NewRecord(timestamp_ms + index, None, b"v", ()) for index in range(count)]
    return bytes(build_batch(records, base_offset=base_offset, **options))


def lag_stage(*batches: bytes) -> Stage:
    """A log of these batches, from offset 5 to 20; a fetch gets the one that holds its offset."""
    stage = Stage()
    stage.brokers[0].scripts[METADATA] = metadata({"clicks": [1]})
    stage.brokers[0].scripts[LIST_OFFSETS] = _list_offset
    found = {int.from_bytes(one[:8], "big"): one for one in batches}

    def fetch(request: Request) -> Mapping[str, object]:
        (topic,) = request.topics
        (row,) = topic.partitions
        held = [base for base in found if base <= row.fetch_offset]
        answer = {
            "partition_index": row.partition,
            "error_code": 0 if row.fetch_offset >= START_OFFSET else 1,
            "high_watermark": END_OFFSET,
            "last_stable_offset": END_OFFSET,
            "log_start_offset": START_OFFSET,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": found[max(held)] if held else b"",
        }
        responses = [{"topic": "clicks", "topic_id": None, "partitions": [answer]}]
        return {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": responses}

    stage.brokers[0].versions[FETCH] = (4, 12)
    stage.brokers[0].scripts[FETCH] = fetch
    return stage


def _list_offset(request: Request) -> Mapping[str, object]:
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": row.partition_index,
                    "error_code": 0,
                    "timestamp": -1,
                    "offset": START_OFFSET if row.timestamp == -2 else END_OFFSET,
                    "leader_epoch": 4,
                }
                for row in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"throttle_time": 0, "topics": topics}


def measure(stage: Stage, position: int | None) -> PartitionLag:
    found = measure_all(stage, {FIRST: position})[FIRST]
    assert isinstance(found, PartitionLag)
    return found


def measure_all(
    stage: Stage, positions: Mapping[TopicPartition, int | None]
) -> Mapping[TopicPartition, PartitionLag | KafkaError]:
    async def story() -> Mapping[TopicPartition, PartitionLag | KafkaError]:
        network = stage.network.host("client")
        async with AsyncAdmin("b1:9092", network=network, clock=stage.clock) as admin:
            return await admin.measure_lag(positions)

    return stage.play(story)


def test_lag_is_counted_in_records_and_in_the_age_of_the_oldest() -> None:
    stage = lag_stage(batch(5, NOW_MS - 90_000), batch(15, NOW_MS - 30_000, count=5))
    assert measure(stage, 12) == PartitionLag(
        log_end_offset=20, records=8, seconds=pytest.approx(90 - 0.007)
    )
    stage = lag_stage(batch(5, NOW_MS - 90_000), batch(15, NOW_MS - 30_000, count=5))
    assert measure(stage, 15) == PartitionLag(log_end_offset=20, records=5, seconds=30.0)


def test_at_the_end_there_is_no_lag_and_nothing_is_fetched() -> None:
    stage = lag_stage()
    assert measure(stage, 20) == PartitionLag(log_end_offset=20, records=0, seconds=0.0)
    assert stage.brokers[0].asked(FETCH) == []


def test_a_position_past_the_end_is_not_behind() -> None:
    assert measure(lag_stage(), 99) == PartitionLag(log_end_offset=20, records=0, seconds=0.0)


def test_without_a_position_only_the_end_is_known() -> None:
    assert measure(lag_stage(), None) == PartitionLag(log_end_offset=20)


def test_a_position_before_the_start_is_as_old_as_the_first_record_that_is_left() -> None:
    stage = lag_stage(batch(5, NOW_MS - 60_000, count=15))
    assert measure(stage, 2) == PartitionLag(log_end_offset=20, records=18, seconds=60.0)


def test_markers_are_not_the_oldest_record() -> None:
    marker = batch(5, NOW_MS - 60_000, count=1, transactional=True, control=True)
    stage = lag_stage(marker, batch(6, NOW_MS - 30_000, count=14))
    assert measure(stage, 5).seconds == 30.0


def test_when_only_markers_are_left_nothing_is_late() -> None:
    marker = batch(19, 0, count=1, transactional=True, control=True)
    assert measure(lag_stage(marker), 19) == PartitionLag(log_end_offset=20, records=1, seconds=0.0)


def test_records_without_a_time_have_no_age() -> None:
    stage = lag_stage(batch(5, -1, count=1))
    assert measure(stage, 5) == PartitionLag(log_end_offset=20, records=15, seconds=None)


def test_a_record_from_the_future_is_not_late() -> None:
    stage = lag_stage(batch(5, NOW_MS + 60_000))
    assert measure(stage, 5).seconds == 0.0


def test_a_topic_that_is_gone_does_not_spoil_the_answer_about_others() -> None:
    stage = lag_stage()
    gone = TopicPartition("gone", 0)
    answers = measure_all(stage, {gone: 1, FIRST: 20})
    assert isinstance(answers[gone], UnknownTopicError)
    assert answers[FIRST] == PartitionLag(log_end_offset=20, records=0, seconds=0.0)
