"""Reading ranges to their ends: every wanted batch once, whatever happens to leaders and logs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest

from client.scripted_broker import (
    FETCH,
    HANG_UP,
    LIST_OFFSETS,
    METADATA,
    Instead,
    Request,
    Stage,
    metadata,
    settle,
)
from moldau.client.cluster import ClusterClient
from moldau.client.range_fetch import RangeReader, RangeSettings
from moldau.client.rules.offsets import OffsetRange
from moldau.errors import CorruptBatchError, OffsetOutOfRangeError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record import NewRecord
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_batch,
    build_marker_batch,
)

TOPIC_ID = UUID(int=9)
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC, NOT_LEADER = 1, 3, 6
Seen = dict[int, list[int]]


def one(number: int) -> TopicPartition:
    return TopicPartition("clicks", number)


def batch(base_offset: int, count: int, value: bytes = b"v", *, producer_id: int = -1) -> bytes:
    rows = [NewRecord(0, None, value)] * count
    transactional = producer_id >= 0
    made = build_batch(
        rows, base_offset=base_offset, producer_id=producer_id, transactional=transactional
    )
    return bytes(made)


class Log:
    """Answers fetches with one batch at a time; the test may change anything on the way."""

    def __init__(self, batches: Mapping[int, Sequence[bytes]], end: int = 100) -> None:
        self.batches = {number: list(found) for number, found in batches.items()}
        self.end = end
        self.starts: dict[int, int] = {}
        self.codes: dict[int, int] = {}  # the error of a partition
        self.aborted: list[Mapping[str, int]] | None = None
        self.instead: list[Instead | Mapping[str, object]] = []
        self.on_fetch: Callable[[], None] = lambda: None

    def fetch(self, request: Request) -> Mapping[str, object] | Instead:
        self.on_fetch()
        if self.instead:
            return self.instead.pop(0)
        (topic,) = request.topics
        rows = [self._row(asked) for asked in topic.partitions]
        return answer([{"topic": "clicks", "topic_id": TOPIC_ID, "partitions": rows}])

    def _row(self, asked: Request) -> Mapping[str, object]:
        code = self.codes.get(asked.partition, 0)
        if asked.fetch_offset < self.starts.get(asked.partition, 0):
            code = OFFSET_OUT_OF_RANGE
        found = [
            data
            for data in self.batches[asked.partition]
            if read_header(data).last_offset >= asked.fetch_offset
        ]
        return {
            "partition_index": asked.partition,
            "error_code": code,
            "high_watermark": self.end,
            "last_stable_offset": self.end,
            "log_start_offset": 0,
            "aborted_transactions": self.aborted,
            "preferred_read_replica": -1,
            "records": found[0] if found and not code else b"",
        }

    def list_offsets(self, request: Request) -> Mapping[str, object]:
        (topic,) = request.topics
        rows = [
            {
                "partition_index": asked.partition_index,
                "error_code": 0,
                "timestamp": -1,
                "offset": self.starts.get(asked.partition_index, 0),
                "leader_epoch": 0,
            }
            for asked in topic.partitions
        ]
        return {"throttle_time": 0, "topics": [{"name": "clicks", "partitions": rows}]}


def answer(responses: list[Mapping[str, object]]) -> Mapping[str, object]:
    return {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": responses}


def set_up(log: Log, leaders: Sequence[int] = (1,), broker_count: int = 1) -> Stage:
    stage = Stage(broker_count=broker_count)
    for broker in stage.brokers:
        broker.scripts[METADATA] = metadata(
            {"clicks": leaders}, brokers=broker_count, topic_ids={"clicks": TOPIC_ID}
        )
        broker.scripts[FETCH] = log.fetch
        broker.scripts[LIST_OFFSETS] = log.list_offsets
    return stage


def play(
    stage: Stage,
    story: Callable[[RangeReader], Coroutine[Any, Any, None]],
    ranges: Mapping[int, tuple[int, int]],
    *,
    read_committed: bool = False,
    buffered_bytes: int = 1 << 20,
) -> None:
    async def whole() -> None:
        client: ClusterClient = stage.make_client()
        wanted = {one(number): OffsetRange(*offsets) for number, offsets in ranges.items()}
        settings = RangeSettings(read_committed=read_committed)
        reader = RangeReader(client, wanted, settings, buffered_bytes=buffered_bytes)
        try:
            await story(reader)
        finally:
            await reader.close()
            await client.close()

    stage.play(whole)


def read(
    stage: Stage, ranges: Mapping[int, tuple[int, int]], *, read_committed: bool = False
) -> Seen:
    """The base offsets of the batches that came, by partition."""
    seen: Seen = {}

    async def story(reader: RangeReader) -> None:
        while batches := await reader.take_batches():
            assert len({found.partition for found in batches}) == 1
            for found in batches:
                seen.setdefault(found.partition.partition, []).append(found.header.base_offset)

    play(stage, story, ranges, read_committed=read_committed)
    return seen


def test_a_range_is_read_to_its_end_and_not_further() -> None:
    log = Log({0: [batch(0, 5), batch(5, 5), batch(10, 5), batch(15, 5)]})
    stage = set_up(log)

    assert read(stage, {0: (3, 12)}) == {0: [0, 5, 10]}
    asked = [row.topics[0].partitions[0].fetch_offset for row in stage.brokers[0].asked(FETCH)]
    assert asked == [3, 5, 10]


def test_the_batches_know_which_of_their_records_are_wanted() -> None:
    async def story(reader: RangeReader) -> None:
        (found,) = await reader.take_batches()
        assert (found.partition, found.from_offset, found.next_offset) == (one(0), 3, 4)

    play(set_up(Log({0: [batch(0, 5)]})), story, {0: (3, 4)})


def test_more_partitions_than_workers_are_all_read() -> None:
    log = Log({number: [batch(0, 2), batch(2, 2)] for number in range(11)})

    seen = read(set_up(log, [1] * 11), dict.fromkeys(range(11), (0, 4)))

    assert seen == {number: [0, 2] for number in range(11)}


def test_each_partition_is_read_from_its_leader() -> None:
    log = Log({0: [batch(0, 2)], 1: [batch(0, 2)]})
    stage = set_up(log, [1, 2], broker_count=2)

    assert read(stage, {0: (0, 2), 1: (0, 2)}) == {0: [0], 1: [0]}
    for number, broker in enumerate(stage.brokers):
        (asked,) = broker.asked(FETCH)
        assert [row.partition for row in asked.topics[0].partitions] == [number]


def test_empty_ranges_are_not_asked_for() -> None:
    stage = set_up(Log({0: [], 1: []}), [1, 1])

    assert read(stage, {0: (5, 5), 1: (7, 3)}) == {}
    assert stage.brokers[0].asked(FETCH) == []


def test_a_leader_that_moves_is_followed() -> None:
    log = Log({0: [batch(0, 2), batch(2, 2), batch(4, 2)]})
    stage = set_up(log, [1], broker_count=2)

    def move() -> None:
        if len(stage.brokers[0].asked(FETCH)) == 2:
            for broker in stage.brokers:
                broker.scripts[METADATA] = metadata(
                    {"clicks": [2]}, brokers=2, topic_ids={"clicks": TOPIC_ID}
                )
            moved = Log({0: []})
            moved.codes[0] = NOT_LEADER
            stage.brokers[0].scripts[FETCH] = moved.fetch

    log.on_fetch = move
    assert read(stage, {0: (0, 6)}) == {0: [0, 2, 4]}
    assert stage.brokers[1].asked(FETCH)


def test_lost_connections_are_survived() -> None:
    log = Log({0: [batch(0, 2), batch(2, 2)]})
    log.instead = [HANG_UP, HANG_UP]

    assert read(set_up(log), {0: (0, 4)}) == {0: [0, 2]}


def test_what_is_deleted_on_the_way_is_passed_over() -> None:
    log = Log({0: [batch(0, 5), batch(20, 5), batch(25, 5)]})
    log.starts[0] = 0
    stage = set_up(log)

    def delete() -> None:
        if len(stage.brokers[0].asked(FETCH)) == 2:
            log.starts[0] = 20

    log.on_fetch = delete
    assert read(stage, {0: (0, 30)}) == {0: [0, 20, 25]}


def test_a_range_that_was_deleted_as_a_whole_is_empty() -> None:
    log = Log({0: [batch(50, 5)]})
    log.starts[0] = 50

    assert read(set_up(log), {0: (0, 30)}) == {}


def test_an_offset_that_is_out_of_range_for_no_visible_reason_is_told() -> None:
    log = Log({0: []})
    log.codes[0] = OFFSET_OUT_OF_RANGE

    with pytest.raises(OffsetOutOfRangeError):
        read(set_up(log), {0: (5, 30)})


def test_what_compaction_removed_at_the_end_is_not_waited_for() -> None:
    log = Log({0: [batch(0, 5)]}, end=30)
    stage = set_up(log)

    assert read(stage, {0: (0, 30)}) == {0: [0]}
    assert stage.clock.monotonic() == 0.0


def test_a_log_that_has_become_shorter_is_told_when_patience_ends() -> None:
    stage = set_up(Log({0: [batch(0, 5)]}, end=5))

    with pytest.raises(OffsetOutOfRangeError, match="to offset 30, but nothing follows 5"):
        read(stage, {0: (0, 30)})
    assert 60 <= stage.clock.monotonic() <= 62


def test_a_broker_that_slows_us_down_is_asked_again() -> None:
    log = Log({0: [batch(0, 5)]})
    log.instead = [answer([])]

    assert read(set_up(log), {0: (0, 5)}) == {0: [0]}


def test_aborted_transactions_are_left_out_for_those_who_read_committed_records() -> None:
    marker = EndTransactionMarker(ControlType.ABORT, 0)
    end = build_marker_batch(marker, timestamp_ms=0, producer_id=7, producer_epoch=0, base_offset=2)
    log = Log({0: [batch(0, 2, producer_id=7), bytes(end), batch(3, 2)]})
    log.aborted = [{"producer_id": 7, "first_offset": 0}]
    stage = set_up(log)

    assert read(stage, {0: (0, 5)}, read_committed=True) == {0: [3]}
    assert {request.isolation_level for request in stage.brokers[0].asked(FETCH)} == {1}


def test_all_records_are_read_by_those_who_do_not_ask() -> None:
    stage = set_up(Log({0: [batch(0, 2, producer_id=7)]}))

    assert read(stage, {0: (0, 2)}) == {0: [0]}
    assert {request.isolation_level for request in stage.brokers[0].asked(FETCH)} == {0}


def test_a_topic_that_goes_away_is_told_after_what_came_before() -> None:
    log = Log({0: [batch(0, 2), batch(2, 2)]})
    stage = set_up(log)

    def delete() -> None:
        if len(stage.brokers[0].asked(FETCH)) == 2:
            log.codes[0] = UNKNOWN_TOPIC
            stage.brokers[0].scripts[METADATA] = metadata({})

    async def story(reader: RangeReader) -> None:
        assert [found.header.base_offset for found in await reader.take_batches()] == [0]
        for _ in range(2):
            with pytest.raises(UnknownTopicError, match="clicks"):
                await reader.take_batches()

    log.on_fetch = delete
    play(stage, story, {0: (0, 4)})


def test_damage_is_told() -> None:
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1

    with pytest.raises(CorruptBatchError, match="offset 0 fails its CRC"):
        read(set_up(Log({0: [bytes(damaged)]})), {0: (0, 2)})


def test_reading_runs_ahead_but_not_without_end() -> None:
    log = Log({0: [batch(n, 1, bytes(1000)) for n in range(50)]})
    stage = set_up(log)

    async def story(reader: RangeReader) -> None:
        await reader.take_batches()
        await settle()
        ahead = len(stage.brokers[0].asked(FETCH))
        assert 3 <= ahead <= 5
        await settle()
        assert len(stage.brokers[0].asked(FETCH)) == ahead
        await reader.take_batches()
        await settle()
        assert len(stage.brokers[0].asked(FETCH)) == ahead + 1
        rest = [await reader.take_batches() for _ in range(49)]
        assert [len(batches) for batches in rest] == [1] * 48 + [0]

    play(stage, story, {0: (0, 50)}, buffered_bytes=3000)


def test_closing_ends_what_is_under_way() -> None:
    log = Log({number: [batch(n, 1) for n in range(50)] for number in range(9)})
    stage = set_up(log, [1] * 9)

    async def story(reader: RangeReader) -> None:
        await reader.take_batches()
        await reader.close()
        asked = len(stage.brokers[0].asked(FETCH))
        await settle()
        assert len(stage.brokers[0].asked(FETCH)) == asked
        assert {
            task.get_name() for task in asyncio.all_tasks() if "read " in task.get_name()
        } == set()

    play(stage, story, dict.fromkeys(range(9), (0, 50)), buffered_bytes=1)
