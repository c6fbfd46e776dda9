"""How a consumer fetches: leaders, replicas, sessions, versions, truncation; from scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from client.consumer_stage import read, values
from client.scripted_broker import (
    FETCH,
    HANG_UP,
    LIST_OFFSETS,
    METADATA,
    SILENCE,
    Instead,
    Request,
    Stage,
    metadata,
)
from moldau.client.consumer.consumer import AsyncConsumer
from moldau.errors import KafkaError, LogTruncatedError
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
ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
OFFSET_FOR_LEADER_EPOCH = 23

OFFSET_OUT_OF_RANGE, NOT_LEADER, UNKNOWN_EPOCH = 1, 6, 75
STORAGE_ERROR = 56
TOPIC_AUTHORIZATION_FAILED, SESSION_NOT_FOUND, WRONG_SESSION_EPOCH = 29, 70, 71

Answer = Mapping[str, object] | Instead


def batch(base_offset: int, count: int, *, leader_epoch: int = 4, **options: Any) -> bytes:
    rows = [NewRecord(0, None, b"%d" % (base_offset + n)) for n in range(count)]
    return bytes(build_batch(rows, base_offset=base_offset, leader_epoch=leader_epoch, **options))


class Log:
    """Answers fetches from batches in memory, with a session if it is asked for one."""

    def __init__(self, partitions: Mapping[int, list[bytes]]) -> None:
        self.partitions = dict(partitions)
        self.codes: dict[int, int] = {}  # the error of a partition
        self.instead: dict[int, Answer | Callable[[Request], Answer]] = {}  # by request, from 0
        self.request_count = 0
        self.has_sessions = True
        self.extra: dict[str, object] = {}  # fields of every partition
        self._session: dict[int, int] = {}  # partition to offset

    def __call__(self, request: Request) -> Answer:
        self.request_count += 1
        instead = self.instead.pop(self.request_count - 1, None)
        if instead is not None:
            return instead(request) if callable(instead) else instead
        return self.serve(request)

    def serve(self, request: Request) -> Answer:
        rows = [row for topic in request.topics for row in topic.partitions]
        if getattr(request, "session_epoch", -1) <= 0:
            self._session = {}
        self._session |= {row.partition: row.fetch_offset for row in rows}
        for topic in getattr(request, "forgotten_topics_data", ()):
            for index in topic.partitions:
                del self._session[index]
        found = [self._row(index, offset) for index, offset in self._session.items()]
        if not any(row["records"] or row["error_code"] for row in found):
            return SILENCE
        return self.answer(found)

    def answer(self, rows: list[Mapping[str, object]], error_code: int = 0) -> Answer:
        topic = {"topic": "clicks", "topic_id": TOPIC_ID, "partitions": rows}
        return {
            "throttle_time": 0,
            "error_code": error_code,
            "session_id": 77 if self.has_sessions and not error_code else 0,
            "responses": [topic] if rows else [],
        }

    def _row(self, index: int, offset: int) -> dict[str, object]:
        batches = self.partitions.get(index, ())
        found = [one for one in batches if read_header(one).last_offset >= offset]
        code = self.codes.get(index, 0)
        return {
            "partition_index": index,
            "error_code": code,
            "high_watermark": 100,
            "last_stable_offset": 100,
            "log_start_offset": 0,
            "aborted_transactions": None,
            "preferred_read_replica": -1,
            "records": found[0] if found and not code else b"",
            **self.extra,
        }


def set_up(stage: Stage, leaders: list[int], *logs: Log) -> None:
    for place, broker in enumerate(stage.brokers):
        broker.versions[OFFSET_FOR_LEADER_EPOCH] = (0, 4)
        broker.scripts[METADATA] = metadata(
            {"clicks": leaders}, brokers=len(stage.brokers), topic_ids={"clicks": TOPIC_ID}
        )
        broker.scripts[FETCH] = logs[min(place, len(logs) - 1)]
        broker.scripts[LIST_OFFSETS] = lambda request: {
            "throttle_time": 0,
            "topics": [
                {
                    "name": "clicks",
                    "partitions": [
                        {
                            "partition_index": row.partition_index,
                            "error_code": 0,
                            "timestamp": -1,
                            "offset": 0,
                            "leader_epoch": 4,
                        }
                        for row in request.topics[0].partitions
                    ],
                }
            ],
        }


def make_consumer(stage: Stage, **options: Any) -> AsyncConsumer:
    options.setdefault("auto_offset_reset", "earliest")
    return AsyncConsumer(
        "b1:9092", network=stage.network.host("client"), clock=stage.clock, **options
    )


def play(
    stage: Stage, partitions: list[TopicPartition], count: int, **options: Any
) -> dict[int, list[int]]:
    """The values of so many records, by partition."""

    async def story() -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        async with make_consumer(stage, **options) as consumer:
            consumer.assign(partitions)
            for record in await read(consumer, count):
                found.setdefault(record.partition, []).append(int(record.value or b""))
        return found

    return stage.play(story)


def rows_of(request: Request) -> list[tuple[int, int]]:
    return [
        (row.partition, row.fetch_offset) for topic in request.topics for row in topic.partitions
    ]


def test_partitions_are_read_from_their_leaders() -> None:
    stage = Stage(broker_count=2)
    logs = Log({0: [batch(0, 2), batch(2, 2)]}), Log({1: [batch(0, 3)]})
    set_up(stage, [1, 2], *logs)
    assert play(stage, [ZERO, ONE], 7) == {0: [0, 1, 2, 3], 1: [0, 1, 2]}


def test_a_leader_that_moves_is_followed_without_loss_or_repetition() -> None:
    stage = Stage(broker_count=2)
    log = Log({0: [batch(0, 2), batch(2, 2), batch(4, 2)]})
    old = Log(log.partitions)
    set_up(stage, [1], old, log)

    def move(request: Request) -> Answer:
        for broker in stage.brokers:
            broker.scripts[METADATA] = metadata(
                {"clicks": [2]}, brokers=2, topic_ids={"clicks": TOPIC_ID}
            )
        old.codes[0] = NOT_LEADER
        return old.serve(request)

    old.instead = {1: move}
    assert play(stage, [ZERO], 6) == {0: [0, 1, 2, 3, 4, 5]}


def test_the_error_of_one_partition_does_not_cost_the_records_of_another() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2)], 1: [batch(0, 3)]})
    log.codes[1] = UNKNOWN_EPOCH
    set_up(stage, [1, 1], log)

    async def story() -> None:
        async with make_consumer(stage) as consumer:
            consumer.assign([ZERO, ONE])
            assert values(await read(consumer, 2)) == [0, 1]
            log.codes.clear()
            # The scripted broker leaves a long poll without an answer until it is given up.
            assert values(await read(consumer, 3, timeout_seconds=60.0)) == [0, 1, 2]

    stage.play(story)


def test_a_partition_whose_disk_failed_is_told_of_and_read_on_when_it_is_served_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2)]})
    log.codes[0] = STORAGE_ERROR
    set_up(stage, [1], log)

    async def story() -> None:
        async with make_consumer(stage) as consumer:
            consumer.assign([ZERO])
            assert await consumer.poll(5.0) == []
            (told,) = caplog.messages
            assert told.startswith("clicks-0: the broker cannot use the disk of this partition")
            log.codes.clear()
            assert values(await read(consumer, 2)) == [0, 1]

    stage.play(story)
    assert caplog.messages[1:] == ["clicks-0 is served again, after 5 seconds"]


def test_what_does_not_pass_by_itself_is_raised() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2)]})
    log.codes[0] = TOPIC_AUTHORIZATION_FAILED
    set_up(stage, [1], log)

    async def story() -> None:
        async with make_consumer(stage) as consumer:
            consumer.assign([ZERO])
            for _ in range(2):
                with pytest.raises(KafkaError, match="may not do this to the topic"):
                    await consumer.poll(10.0)
            log.codes.clear()
            assert values(await read(consumer, 2)) == [0, 1]

    stage.play(story)


# --- sessions -----------------------------------------------------------------------------------


def test_a_session_names_only_what_has_changed() -> None:
    stage = Stage()
    set_up(stage, [1, 1], Log({0: [batch(0, 2), batch(2, 2)], 1: []}))
    assert play(stage, [ZERO, ONE], 4) == {0: [0, 1, 2, 3]}
    requests = stage.brokers[0].asked(FETCH)
    assert [(one.session_id, one.session_epoch) for one in requests[:3]] == [
        (0, 0),
        (77, 1),
        (77, 2),
    ]
    assert [rows_of(one) for one in requests[:3]] == [[(0, 0), (1, 0)], [(0, 2)], [(0, 4)]]


def test_without_sessions_every_request_names_everything() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2), batch(2, 2)], 1: []})
    log.has_sessions = False
    set_up(stage, [1, 1], log)
    assert play(stage, [ZERO, ONE], 4) == {0: [0, 1, 2, 3]}
    requests = stage.brokers[0].asked(FETCH)
    assert [rows_of(one) for one in requests[:2]] == [[(0, 0), (1, 0)], [(0, 2), (1, 0)]]
    assert {one.session_epoch for one in requests} == {0}


@pytest.mark.parametrize("code", [SESSION_NOT_FOUND, WRONG_SESSION_EPOCH])
def test_a_lost_session_is_replaced(code: int) -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2), batch(2, 2), batch(4, 2)]})
    log.instead = {1: log.answer([], code)}
    set_up(stage, [1], log)
    assert play(stage, [ZERO], 6) == {0: [0, 1, 2, 3, 4, 5]}
    epochs = [one.session_epoch for one in stage.brokers[0].asked(FETCH)]
    assert epochs[:4] == [0, 1, 0, 1]


def test_a_lost_connection_costs_no_record() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 2), batch(2, 2)]})
    log.instead = {0: HANG_UP, 2: HANG_UP}
    set_up(stage, [1], log)
    assert play(stage, [ZERO], 4) == {0: [0, 1, 2, 3]}


# --- versions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_of_the_request_can_be_sent(version: int) -> None:
    stage = Stage()
    stage.brokers[0].versions[FETCH] = (4, version)
    set_up(stage, [1], Log({0: [batch(0, 2), batch(2, 1)]}))
    assert play(stage, [ZERO], 3) == {0: [0, 1, 2]}
    assert {asked for key, asked, _ in stage.brokers[0].requests if key == FETCH} == {version}


def test_topics_without_an_id_are_fetched_by_name() -> None:
    stage = Stage()
    set_up(stage, [1], Log({0: [batch(0, 2)]}))
    stage.brokers[0].scripts[METADATA] = metadata({"clicks": [1]})
    assert play(stage, [ZERO], 2) == {0: [0, 1]}
    assert {asked for key, asked, _ in stage.brokers[0].requests if key == FETCH} == {12}


def test_the_settings_are_sent_along() -> None:
    stage = Stage()
    set_up(stage, [1], Log({0: [batch(0, 2)]}))
    play(
        stage,
        [ZERO],
        2,
        fetch_min_bytes=5,
        fetch_max_wait_ms=70,
        fetch_max_bytes=1_000,
        max_partition_fetch_bytes=300,
        isolation_level="read_committed",
        client_rack="r1",
    )
    request = stage.brokers[0].asked(FETCH)[0]
    assert (request.min_bytes, request.max_bytes, request.isolation_level) == (5, 1_000, 1)
    assert (request.max_wait.total_seconds(), request.rack_id) == (0.07, "r1")
    (row,) = request.topics[0].partitions
    assert (row.partition_max_bytes, row.current_leader_epoch) == (300, 4)


# --- transactions -------------------------------------------------------------------------------


def test_aborted_records_are_for_nobody_who_reads_committed_ones() -> None:
    transaction = {"producer_id": 5, "producer_epoch": 0, "transactional": True}
    marker = build_marker_batch(
        EndTransactionMarker(ControlType.ABORT, 0),
        timestamp_ms=0,
        producer_id=5,
        producer_epoch=0,
        base_offset=2,
        leader_epoch=4,
    )
    data = batch(0, 2, **transaction) + bytes(marker) + batch(3, 2)
    for options, expected in (
        ({"isolation_level": "read_committed"}, [3, 4]),
        ({}, [0, 1, 3, 4]),
    ):
        stage = Stage()
        log = Log({0: [data]})
        log.partitions = {0: [data]}
        log.extra = {"aborted_transactions": [{"producer_id": 5, "first_offset": 0}]}
        set_up(stage, [1], log)
        assert play(stage, [ZERO], len(expected), **options) == {0: expected}


# --- replicas -----------------------------------------------------------------------------------


def test_a_near_replica_is_read_while_it_has_the_records() -> None:
    stage = Stage(broker_count=2)
    batches = {0: [batch(0, 2), batch(2, 2), batch(4, 2)]}
    leader, follower = Log(batches), Log({0: batches[0][:2]})

    def send_away(request: Request) -> Answer:
        row = leader._row(0, 0) | {"preferred_read_replica": 2, "records": b""}
        return leader.answer([row])

    leader.instead = {0: send_away}
    set_up(stage, [1], leader, follower)
    original = follower._row

    def row(index: int, offset: int) -> dict[str, object]:
        found = original(index, offset)
        return found if offset < 4 else found | {"error_code": OFFSET_OUT_OF_RANGE, "records": b""}

    follower._row = row  # type: ignore[method-assign]
    assert play(stage, [ZERO], 6, client_rack="r2") == {0: [0, 1, 2, 3, 4, 5]}
    assert len(stage.brokers[1].asked(FETCH)) >= 3
    assert rows_of(stage.brokers[0].asked(FETCH)[1]) == [(0, 4)]


# --- truncation (KIP-320) -----------------------------------------------------------------------


def elect(stage: Stage, leader_epoch: int, end_offset: int) -> None:
    """A new leader, whose log of epoch 4 ends at this offset."""

    def describe(request: Request) -> Answer:
        found: Any = metadata({"clicks": [1]}, topic_ids={"clicks": TOPIC_ID})(request)
        for topic in found["topics"]:
            for partition in topic["partitions"]:
                partition["leader_epoch"] = leader_epoch
        return found  # type: ignore[no-any-return]

    broker = stage.brokers[0]
    broker.scripts[METADATA] = describe
    broker.scripts[OFFSET_FOR_LEADER_EPOCH] = lambda request: {
        "throttle_time": 0,
        "topics": [
            {
                "topic": "clicks",
                "partitions": [
                    {
                        "error_code": 0,
                        "partition": 0,
                        "leader_epoch": 4 if end_offset >= 0 else -1,
                        "end_offset": end_offset,
                    }
                ],
            }
        ],
    }


def test_a_new_leader_that_has_all_is_read_on() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 4)]})
    set_up(stage, [1], log)

    async def story() -> None:
        async with make_consumer(stage, metadata_max_age_ms=1_000) as consumer:
            consumer.assign([ZERO])
            await read(consumer, 4)
            elect(stage, 5, 4)
            await consumer.poll(5.0)
            log.partitions[0].append(batch(4, 2, leader_epoch=5))
            stage.network.drop_connections("client")
            assert values(await read(consumer, 2)) == [4, 5]
            (asked, *_) = stage.brokers[0].asked(OFFSET_FOR_LEADER_EPOCH)
            (row,) = asked.topics[0].partitions
            assert (row.leader_epoch, row.current_leader_epoch) == (4, 5)

    stage.play(story)


def test_a_truncated_log_is_read_from_where_it_was_truncated() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 4)]})
    set_up(stage, [1], log)

    async def story() -> None:
        async with make_consumer(stage, metadata_max_age_ms=1_000) as consumer:
            consumer.assign([ZERO])
            await read(consumer, 4)
            elect(stage, 5, 2)
            await stage.clock.sleep(3.0)  # until it hears of the new leader
            log.partitions[0] = [batch(0, 2), batch(2, 3, leader_epoch=5)]
            stage.network.drop_connections("client")
            found = await read(consumer, 3)
            assert [record.leader_epoch for record in found] == [5, 5, 5]
            assert [record.offset for record in found] == [2, 3, 4]

    stage.play(story)


def test_a_truncated_log_is_raised_if_that_is_the_policy() -> None:
    stage = Stage()
    log = Log({0: [batch(0, 4)]})
    set_up(stage, [1], log)

    async def story() -> None:
        async with make_consumer(
            stage, metadata_max_age_ms=1_000, auto_offset_reset="error"
        ) as consumer:
            consumer.assign([ZERO])
            consumer.seek(ZERO, 0)
            await read(consumer, 4)
            elect(stage, 5, 2)
            await stage.clock.sleep(3.0)
            stage.network.drop_connections("client")
            with pytest.raises(LogTruncatedError) as raised:
                await consumer.poll(30.0)
            assert raised.value.offset == 2
            log.partitions[0] = [batch(0, 2), batch(2, 1, leader_epoch=5)]
            consumer.seek(ZERO, 2)
            assert [record.offset for record in await read(consumer, 1)] == [2]

    stage.play(story)
