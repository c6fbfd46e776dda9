"""Reading on: across leaders, through failures, without losing or repeating a record."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from client.scripted_broker import (
    FETCH,
    HANG_UP,
    METADATA,
    SILENCE,
    Instead,
    Request,
    Stage,
    metadata,
)
from moldau.client.partition_reader import PartitionReader
from moldau.errors import OffsetOutOfRangeError
from moldau.model import TopicPartition
from moldau.records.batch_builder import build_batch
from moldau.records.batch_header import read_header
from moldau.records.record import NewRecord

TOPIC_ID = UUID(int=9)
ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
OFFSET_OUT_OF_RANGE, NOT_LEADER = 1, 6


def batch(base_offset: int, count: int) -> bytes:
    rows = [NewRecord(0, None, b"%d" % (base_offset + n)) for n in range(count)]
    return bytes(build_batch(rows, base_offset=base_offset))


class Log:
    """Answers fetches from batches in memory; can be told to fail first.

    Where there is nothing to say it says nothing, which is what a long poll looks like.
    """

    def __init__(self, partitions: Mapping[int, list[bytes]]) -> None:
        self.partitions = partitions
        self.codes: dict[int, int] = {}  # the error of a partition
        self.instead: list[Instead] = []

    def __call__(self, request: Request) -> Mapping[str, object] | Instead:
        if self.instead:
            return self.instead.pop(0)
        (topic,) = request.topics
        rows = [self._row(asked) for asked in topic.partitions]
        if not any(row["records"] or row["error_code"] for row in rows):
            return SILENCE
        responses = [{"topic": "clicks", "topic_id": TOPIC_ID, "partitions": rows}]
        return {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": responses}

    def _row(self, asked: Request) -> Mapping[str, object]:
        batches = self.partitions.get(asked.partition, ())
        found = [one for one in batches if read_header(one).last_offset >= asked.fetch_offset]
        code = self.codes.get(asked.partition, 0)
        return {
            "partition_index": asked.partition,
            "error_code": code,
            "high_watermark": 100,
            "last_stable_offset": 100,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": found[0] if found and not code else b"",
        }


async def read_all(reader: PartitionReader) -> dict[TopicPartition, list[int]]:
    """Offsets by partition, until nothing more comes."""
    offsets: dict[TopicPartition, list[int]] = {}
    while arrived := await reader.read(5.0):
        for fetched in arrived:
            offsets.setdefault(fetched.partition, []).extend(r.offset for r in fetched.records)
    return offsets


def play(
    stage: Stage, positions: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, list[int]], Mapping[TopicPartition, int]]:
    """Read all there is; gives the offsets that came, and the positions after them."""

    async def story() -> tuple[dict[TopicPartition, list[int]], Mapping[TopicPartition, int]]:
        client = stage.make_client()
        reader = PartitionReader(client, positions)
        try:
            return await read_all(reader), dict(reader.positions)
        finally:
            await reader.close()
            await client.close()

    return stage.play(story)


def set_up(stage: Stage, leaders: list[int], log: Log) -> None:
    for broker in stage.brokers:
        broker.scripts[METADATA] = metadata(
            {"clicks": leaders}, brokers=len(stage.brokers), topic_ids={"clicks": TOPIC_ID}
        )
        broker.scripts[FETCH] = log


def test_all_batches_are_read_in_order() -> None:
    stage = Stage()
    set_up(stage, [1], Log({0: [batch(0, 3), batch(3, 2), batch(5, 1)]}))
    offsets, positions = play(stage, {ZERO: 0})
    assert offsets == {ZERO: [0, 1, 2, 3, 4, 5]}
    assert positions == {ZERO: 6}


def test_reading_begins_at_the_offset_also_inside_a_batch() -> None:
    stage = Stage()
    set_up(stage, [1], Log({0: [batch(0, 3), batch(3, 3)]}))
    assert play(stage, {ZERO: 4})[0] == {ZERO: [4, 5]}


def test_partitions_are_read_from_their_leaders() -> None:
    stage = Stage(broker_count=2)
    set_up(stage, [1, 2], Log({0: [batch(0, 2), batch(2, 2)], 1: [batch(0, 5)]}))
    assert play(stage, {ZERO: 0, ONE: 0})[0] == {ZERO: [0, 1, 2, 3], ONE: [0, 1, 2, 3, 4]}
    for broker, index in zip(stage.brokers, (0, 1), strict=True):
        asked = {row.partition for request in broker.asked(FETCH) for row in _rows(request)}
        assert asked == {index}


def _rows(request: Request) -> list[Request]:
    return [row for topic in request.topics for row in topic.partitions]


def test_a_leader_that_moves_is_followed_without_loss_or_repetition() -> None:
    stage = Stage(broker_count=2)
    log = Log({0: [batch(0, 2), batch(2, 2), batch(4, 2)]})
    set_up(stage, [1], log)
    calls = 0

    def first_leader(request: Request) -> Mapping[str, object] | Instead:
        nonlocal calls
        calls += 1
        if calls < 2:
            return log(request)
        for broker in stage.brokers:
            broker.scripts[METADATA] = metadata(
                {"clicks": [2]}, brokers=2, topic_ids={"clicks": TOPIC_ID}
            )
        moved = Log({0: []})
        moved.codes[0] = NOT_LEADER
        return moved(request)

    stage.brokers[0].scripts[FETCH] = first_leader
    assert play(stage, {ZERO: 0})[0] == {ZERO: [0, 1, 2, 3, 4, 5]}


def test_a_lost_connection_is_survived() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2), batch(2, 2)]})
    log.instead = [HANG_UP, HANG_UP]
    set_up(stage, [1], log)
    assert play(stage, {ZERO: 0})[0] == {ZERO: [0, 1, 2, 3]}


def test_the_error_of_one_partition_does_not_cost_the_records_of_another() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2), batch(2, 2)], 1: [batch(0, 3)]})
    log.codes[1] = NOT_LEADER
    set_up(stage, [1, 1], log)

    async def story() -> dict[TopicPartition, list[int]]:
        client = stage.make_client()
        reader = PartitionReader(client, {ZERO: 0, ONE: 0})
        first = await reader.read(5.0)
        assert [(one.partition, len(one.records)) for one in first] == [(ZERO, 2)]
        log.codes.clear()
        rest = await read_all(reader)
        await reader.close()
        await client.close()
        return rest

    assert stage.play(story) == {ZERO: [2, 3], ONE: [0, 1, 2]}


def test_an_offset_that_is_gone_is_raised_after_what_came_with_it() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2)]})
    log.codes[1] = OFFSET_OUT_OF_RANGE
    set_up(stage, [1, 1], log)

    async def story() -> None:
        client = stage.make_client()
        reader = PartitionReader(client, {ZERO: 0, ONE: 99})
        assert [one.partition for one in await reader.read(5.0)] == [ZERO]
        with pytest.raises(OffsetOutOfRangeError, match="clicks-1"):
            await reader.read(5.0)
        await reader.close()
        await client.close()

    stage.play(story)


def test_nothing_new_ends_the_wait_in_time() -> None:
    stage = Stage()
    set_up(stage, [1], Log({0: []}))
    assert play(stage, {ZERO: 0}) == ({}, {ZERO: 0})
    assert stage.clock.monotonic() == 5.0


def test_a_forgotten_partition_is_not_read_any_more() -> None:
    stage = Stage()
    set_up(stage, [1, 1], Log({0: [batch(0, 1), batch(1, 1)], 1: [batch(0, 1), batch(1, 1)]}))

    async def story() -> dict[TopicPartition, list[int]]:
        client = stage.make_client()
        reader = PartitionReader(client, {ZERO: 0, ONE: 0})
        await reader.read(5.0)
        reader.forget(ZERO)
        rest = await read_all(reader)
        await reader.close()
        await client.close()
        return rest

    assert stage.play(story) == {ONE: [1]}


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_of_the_request_can_be_sent(version: int) -> None:
    stage = Stage()
    stage.brokers[0].versions[FETCH] = (4, version)
    set_up(stage, [1], Log({0: [batch(0, 2)]}))
    assert play(stage, {ZERO: 0})[0] == {ZERO: [0, 1]}
    assert {asked for key, asked, _ in stage.brokers[0].requests if key == FETCH} == {version}


def test_topics_without_an_id_are_fetched_by_name() -> None:
    stage = Stage()
    set_up(stage, [1], Log({0: [batch(0, 2)]}))
    stage.brokers[0].scripts[METADATA] = metadata({"clicks": [1]})
    assert play(stage, {ZERO: 0})[0] == {ZERO: [0, 1]}
    assert {asked for key, asked, _ in stage.brokers[0].requests if key == FETCH} == {12}


def test_the_leader_epoch_of_the_metadata_is_sent_along() -> None:
    stage = Stage()
    set_up(stage, [1], Log({0: [batch(0, 2)]}))
    play(stage, {ZERO: 0})
    assert _rows(stage.brokers[0].asked(FETCH)[0])[0].current_leader_epoch == 4
