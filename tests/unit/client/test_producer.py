"""The producer on a loop: what it sends, how it takes mishaps, how long it waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

from client.producer_stage import (
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    TOPIC,
    ProducerStage,
    refuse_records,
)
from client.scripted_broker import HANG_UP, SILENCE, settle
from moldau.client.producer.produce_result import RecordMetadata, RecordRange
from moldau.client.producer.producer import AsyncProducer
from moldau.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    BufferFullError,
    ClosedClientError,
    ClusterAuthorizationError,
    DeliveryTimeoutError,
    ErrorCode,
    InvalidRecordError,
    InvalidTopicError,
    InvariantViolation,
    RecordTooLargeError,
    TopicNotReadyError,
    TransactionStateError,
    UnknownTopicError,
    UnsupportedVersionError,
)
from moldau.model import TopicPartition
from moldau.records.compression import Codec
from moldau.records.lines import TextLines

RETRIABLE = [
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.not_enough_replicas,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.request_timed_out,
    ErrorCode.kafka_storage_error,
    ErrorCode.corrupt_message,
]


def test_a_record_is_sent_and_its_future_tells_where_it_is() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send(
            TOPIC, b"Moldau", b"Praha", timestamp_ms=5, headers={"length": b"430 km"}
        )
        assert await sent == RecordMetadata(TOPIC, 0, 0, 5)

    stage.run(story)
    (record,) = stage.logs[0]
    assert record == (0, 5, b"Praha", b"Moldau", (("length", b"430 km"),))


def test_records_that_come_within_the_linger_time_share_a_batch() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        first = await producer.send(TOPIC, b"1")
        await stage.clock.sleep(0.05)
        second = await producer.send(TOPIC, b"2")
        await asyncio.gather(first, second)
        assert stage.clock.monotonic() == pytest.approx(0.1)

    stage.run(story, linger_ms=100)
    assert [header.record_count for header in stage.headers] == [2]


def test_a_full_batch_does_not_linger() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        first = await producer.send(TOPIC, bytes(900))
        await producer.send(TOPIC, bytes(900))
        await first
        assert stage.clock.monotonic() == 0.0

    stage.run(story, linger_ms=100_000, batch_size=1_000)


@pytest.mark.parametrize("code", RETRIABLE)
def test_an_error_that_passes_is_waited_for(code: ErrorCode) -> None:
    stage = ProducerStage()
    stage.mishaps += [code, code]

    async def story(producer: AsyncProducer) -> RecordMetadata:
        return await (await producer.send(TOPIC, b"v"))

    assert stage.run(story).offset == 0
    assert stage.values() == [b"v"]
    assert stage.clock.monotonic() > 0.2
    assert {header.base_sequence for header in stage.headers} == {0}


@pytest.mark.parametrize("mishap", [HANG_UP, SILENCE])
def test_a_lost_request_is_sent_again_with_the_same_number(mishap: object) -> None:
    stage = ProducerStage()
    stage.mishaps.append(mishap)  # type: ignore[arg-type]

    async def story(producer: AsyncProducer) -> None:
        assert (await (await producer.send(TOPIC, b"v"))).offset == 0

    stage.run(story, request_timeout_ms=1_000)
    assert stage.values() == [b"v"]
    assert len(stage.produce_requests()) == 2


def test_a_moved_leader_is_found() -> None:
    stage = ProducerStage(broker_count=2)

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"1"))
        stage.topics[TOPIC] = [2]
        stage.mishaps.append(ErrorCode.not_leader_or_follower)
        await (await producer.send(TOPIC, b"2"))

    stage.run(story)
    assert len(stage.brokers[1].asked(0)) == 1
    assert stage.values() == [b"1", b"2"]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    stage = ProducerStage(leaders=[-1])

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send(TOPIC, b"v")
        await stage.clock.sleep(3.0)
        assert not sent.done()
        stage.topics[TOPIC] = [1]
        assert (await sent).offset == 0

    stage.run(story)


def test_order_holds_when_the_first_of_many_batches_fails() -> None:
    stage = ProducerStage()
    values = [b"%d" % number for number in range(20)]

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"first"))
        stage.mishaps += [ErrorCode.not_enough_replicas]
        await asyncio.gather(*[await producer.send(TOPIC, value) for value in values])

    stage.run(story, batch_size=0, linger_ms=0)
    assert stage.values() == [b"first", *values]


def test_what_is_not_confirmed_in_time_fails_and_says_why() -> None:
    stage = ProducerStage()
    stage.mishaps += [ErrorCode.not_enough_replicas] * 1_000

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send(TOPIC, b"v")
        with pytest.raises(DeliveryTimeoutError, match=r"within 10 seconds.*in-sync set"):
            await sent
        assert stage.clock.monotonic() == pytest.approx(10.0)

    stage.run(story, delivery_timeout_ms=10_000)


def test_the_producer_id_is_asked_for_once() -> None:
    stage = ProducerStage(leaders=[1, 1])
    stage.producer_id_errors.append(ErrorCode.coordinator_load_in_progress)

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"v", partition=0))
        await (await producer.send(TOPIC, b"v", partition=1))

    stage.run(story)
    assert len(stage.broker.asked(INIT_PRODUCER_ID)) == 2
    assert {(one.producer_id, one.producer_epoch) for one in stage.headers} == {(7, 0)}


def test_without_a_producer_id_everything_fails_with_the_cause() -> None:
    stage = ProducerStage()
    stage.producer_id_errors.append(ErrorCode.cluster_authorization_failed)

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send(TOPIC, b"v")
        with pytest.raises(ClusterAuthorizationError):
            await sent
        with pytest.raises(ClusterAuthorizationError):
            await producer.send(TOPIC, b"w")

    stage.run(story)


def test_without_idempotence_no_producer_id_is_needed() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"v"))

    stage.run(story, enable_idempotence=False)
    assert stage.broker.asked(INIT_PRODUCER_ID) == []
    assert stage.headers[0].producer_id == -1


def test_with_acks_0_a_record_is_done_when_it_has_left() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        futures = [await producer.send(TOPIC, b"%d" % number) for number in range(3)]
        assert [one.offset for one in await asyncio.gather(*futures)] == [-1, -1, -1]
        await settle()

    stage.run(story, acks=0)
    assert stage.values() == [b"0", b"1", b"2"]


def test_a_batch_that_is_too_large_is_divided() -> None:
    stage = ProducerStage()
    stage.mishaps += [ErrorCode.message_too_large] * 2

    async def story(producer: AsyncProducer) -> None:
        futures = [await producer.send(TOPIC, b"%d" % number) for number in range(4)]
        assert [one.offset for one in await asyncio.gather(*futures)] == [0, 1, 2, 3]

    stage.run(story)
    assert [header.record_count for header in stage.headers] == [4, 2, 1, 1, 2]
    assert stage.values() == [b"0", b"1", b"2", b"3"]


def test_a_record_that_is_too_large_for_the_broker_is_named() -> None:
    stage = ProducerStage()
    stage.mishaps.append(ErrorCode.message_too_large)

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(BatchTooLargeError, match=r"max\.message\.bytes"):
            await (await producer.send(TOPIC, bytes(100)))

    stage.run(story)


def test_a_record_that_is_too_large_for_the_producer_is_refused_at_once() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size is 1000"):
            await producer.send(TOPIC, bytes(1_000))
        with pytest.raises(RecordTooLargeError):
            await producer.send_many(TOPIC, [bytes(1_000)])

    stage.run(story, max_request_size=1_000)


def test_records_to_blame_are_told_apart_from_their_neighbours() -> None:
    stage = ProducerStage()
    stage.mishaps.append(refuse_records(ErrorCode.invalid_record, {1: "it has no key"}))

    async def story(producer: AsyncProducer) -> None:
        futures = [await producer.send(TOPIC, b"%d" % number) for number in range(2)]
        with pytest.raises(InvalidRecordError, match="another record of the same batch"):
            await futures[0]
        with pytest.raises(InvalidRecordError, match="it has no key"):
            await futures[1]
        await (await producer.send(TOPIC, b"the next one goes through"))

    stage.run(story)
    assert stage.values() == [b"the next one goes through"]


def test_the_time_of_the_log_is_told_where_it_counts() -> None:
    stage = ProducerStage()
    stage.log_append_time_ms = 99

    async def story(producer: AsyncProducer) -> None:
        assert (await (await producer.send(TOPIC, b"v", timestamp_ms=5))).timestamp_ms == 99

    stage.run(story)


def test_no_more_requests_are_under_way_than_allowed() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"first"))
        stage.mishaps += [SILENCE] * 100
        for _ in range(10):
            await producer.send(TOPIC, b"v")
        await settle()
        queue = producer._sender._machine.queue_of(TopicPartition(TOPIC, 0))
        assert (len(queue.under_way), len(queue.waiting)) == (3, 7)
        stage.mishaps.clear()

    options = {"batch_size": 0, "linger_ms": 0, "max_in_flight_requests_per_connection": 3}
    stage.run(story, **options)
    assert len(stage.values()) == 11


def test_a_broker_that_asks_for_a_pause_gets_it() -> None:
    stage = ProducerStage()
    stage.throttle_ms = 4_000

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"1"))
        stage.throttle_ms = 0
        begun = stage.clock.monotonic()
        await (await producer.send(TOPIC, b"2"))
        assert stage.clock.monotonic() - begun == pytest.approx(4.0, abs=0.02)

    stage.run(story)


def test_a_pause_ends_even_when_its_timer_is_early_by_a_hair(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = ProducerStage()
    stage.throttle_ms = 4_000
    call_later = stage.clock.call_later
    monkeypatch.setattr(
        stage.clock, "call_later", lambda seconds, act: call_later(seconds * (1 - 1e-9), act)
    )

    async def story(producer: AsyncProducer) -> None:
        for value in (b"1", b"2", b"3"):
            await (await producer.send(TOPIC, value))
        assert stage.clock.monotonic() == pytest.approx(8.0, abs=0.02)

    stage.run(story)


@pytest.mark.parametrize("version", range(3, 13))
def test_every_version_of_the_request_can_be_sent(version: int) -> None:
    stage = ProducerStage()
    stage.broker.versions[PRODUCE] = (version, version)
    stage.broker.versions[INIT_PRODUCER_ID] = (version % 6, version % 6)

    async def story(producer: AsyncProducer) -> None:
        assert (await (await producer.send(TOPIC, b"a"))).offset == 0

    stage.run(story)
    assert stage.values() == [b"a"]


def test_zstd_is_not_sent_to_brokers_that_do_not_know_it() -> None:
    stage = ProducerStage()
    stage.broker.versions[PRODUCE] = (3, 6)

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(UnsupportedVersionError, match="zstd"):
            await (await producer.send(TOPIC, b"a"))

    stage.run(story, compression_type="zstd")
    assert not stage.produce_requests()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_as_asked(codec: str) -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send_many(TOPIC, [b"water " * 100] * 50)
        # Real time passes while a worker compresses: virtual time has to wait for it.
        while not sent.done():
            await asyncio.sleep(0.001)

    async def whole() -> None:
        await stage.listen()
        async with stage.make_producer(compression_type=codec, linger_ms=0) as producer:
            await story(producer)

    asyncio.run(whole())
    assert stage.headers[0].codec == Codec.parse(codec)
    assert stage.values() == [b"water " * 100] * 50


# Topics and partitions


def test_an_unknown_topic_is_waited_for_a_while_and_then_named() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(UnknownTopicError, match="'lakes'"):
            await producer.send("lakes", b"v")
        # A pause of up to 1.2 s, jitter included, that would pass the limit is not begun.
        assert 3.8 <= stage.clock.monotonic() <= 5.0
        assert all(one.allow_auto_topic_creation for one in stage.broker.asked(METADATA))

    stage.run(story)


def test_a_topic_that_appears_meanwhile_is_used() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        sending = asyncio.ensure_future(producer.send("lakes", b"v"))
        await stage.clock.sleep(2.0)
        stage.topics["lakes"] = [1]
        assert (await (await sending)).topic == "lakes"

    stage.run(story)


def test_many_who_wait_for_the_same_topic_ask_once() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        futures = await asyncio.gather(*[producer.send(TOPIC, b"v") for _ in range(20)])
        await asyncio.gather(*futures)

    stage.run(story)
    assert len(stage.broker.asked(METADATA)) == 1


def test_a_cluster_that_does_not_answer_is_named_after_max_block_ms() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(BrokerUnreachableError, match="no broker answers at nowhere:9092") as it:
            await producer.send(TOPIC, b"v")
        assert 1.5 < stage.clock.monotonic() <= 3.0
        assert "(max.block.ms): start it, or give the producer another address" in str(it.value)

    stage.run(story, bootstrap="nowhere:9092", max_block_ms=3_000)


def test_a_broker_that_says_nothing_is_waited_for_no_longer_than_max_block_ms() -> None:
    stage = ProducerStage()
    stage.broker.scripts[METADATA] = lambda request: SILENCE

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(BrokerUnreachableError, match="no broker has answered within 3 seconds"):
            await producer.send(TOPIC, b"v")
        assert stage.clock.monotonic() == 3.0

    stage.run(story, max_block_ms=3_000)


def test_a_partition_that_was_added_is_found_when_it_is_named() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        assert await producer.partition_count(TOPIC) == 1
        stage.topics[TOPIC] = [1, 1, 1]
        assert (await (await producer.send(TOPIC, b"v", partition=2))).partition == 2
        with pytest.raises(UnknownTopicError, match="no partition 3; it has 3"):
            await producer.send(TOPIC, b"v", partition=3)
        with pytest.raises(UnknownTopicError):
            await producer.send(TOPIC, b"v", partition=-1)

    stage.run(story)


def test_partitions_that_were_added_are_found_by_and_by() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"v"))
        stage.topics[TOPIC] = [1, 1]
        await stage.clock.sleep(301.0)
        assert await producer.partition_count(TOPIC) == 2

    stage.run(story)


def test_a_wrong_topic_name_is_refused_at_once() -> None:
    stage = ProducerStage()

    def refuse(request: object) -> dict[str, object]:
        row = {
            "error_code": 17,
            "name": "a b",
            "topic_id": None,
            "is_internal": False,
            "partitions": [],
        }
        return {**empty_metadata(), "topics": [row]}

    stage.broker.scripts[METADATA] = refuse

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(InvalidTopicError):
            await producer.send("a b", b"v")
        assert stage.clock.monotonic() == 0.0

    stage.run(story)


def empty_metadata() -> dict[str, object]:
    return {
        "throttle_time": 0,
        "error_code": 0,
        "cluster_id": "test",
        "controller_id": 1,
        "brokers": [],
        "topics": [],
    }


# Memory


def test_memory_that_is_used_up_is_waited_for() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        futures = [await producer.send(TOPIC, bytes(500)) for _ in range(50)]
        assert stage.clock.monotonic() < 1.0  # nothing lingers while somebody waits for memory
        assert len(await asyncio.gather(*futures)) == 50

    stage.run(story, buffer_memory=2_000, linger_ms=20_000)


def test_memory_that_stays_used_up_is_an_error_after_max_block_ms() -> None:
    stage = ProducerStage()
    stage.mishaps += [SILENCE] * 10

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, bytes(900))
        await producer.send(TOPIC, bytes(900))
        with pytest.raises(BufferFullError, match=r"2000 bytes of buffer\.memory"):
            await producer.send(TOPIC, bytes(900))
        assert stage.clock.monotonic() == pytest.approx(3.0)
        stage.mishaps.clear()

    stage.run(story, buffer_memory=2_000, max_block_ms=3_000)


def test_memory_that_is_used_up_can_be_an_error_at_once() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, bytes(900))
        with pytest.raises(BufferFullError):
            await producer.send_many(TOPIC, [bytes(900)] * 2)
        assert stage.clock.monotonic() == 0.0

    stage.run(story, buffer_memory=2_000, block_on_buffer_full=False, linger_ms=1_000)
    assert len(stage.values()) == 2


# The end


def test_flush_waits_for_everything_and_lets_nothing_linger() -> None:
    stage = ProducerStage(leaders=[1, 1])

    async def story(producer: AsyncProducer) -> None:
        futures = [await producer.send(TOPIC, b"v", partition=n % 2) for n in range(10)]
        await producer.flush()
        assert all(future.done() for future in futures)
        assert stage.clock.monotonic() < 1.0

    stage.run(story, linger_ms=20_000)


def test_flush_waits_for_the_parts_of_a_batch_that_was_divided() -> None:
    stage = ProducerStage()
    stage.mishaps.append(ErrorCode.message_too_large)

    async def story(producer: AsyncProducer) -> None:
        futures = [await producer.send(TOPIC, b"v") for _ in range(4)]
        await producer.flush()
        assert all(future.done() for future in futures)

    stage.run(story)


def test_flush_looks_at_what_is_left_only_while_nobody_else_can_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = ProducerStage()
    was_locked: list[bool] = []

    async def story(producer: AsyncProducer) -> None:
        machine, lock = producer._sender._machine, producer._sender.accumulator.lock
        is_finished_up_to = machine._unfinished._is_finished_up_to

        def look(serial: int) -> bool:
            was_locked.append(lock.locked())
            return is_finished_up_to(serial)

        monkeypatch.setattr(machine._unfinished, "_is_finished_up_to", look)
        await producer.send(TOPIC, b"v")
        await producer.flush()

    stage.run(story)
    assert was_locked
    assert all(was_locked)


def test_flush_can_be_told_how_long_to_wait() -> None:
    stage = ProducerStage()
    stage.mishaps += [SILENCE] * 2

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, b"v")
        with pytest.raises(TimeoutError, match="within 2 seconds"):
            await producer.flush(timeout_seconds=2.0)
        stage.mishaps.clear()

    stage.run(story)
    assert stage.values() == [b"v"]


def test_closing_sends_what_is_left() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, b"v")

    stage.run(story, linger_ms=20_000)
    assert stage.values() == [b"v"]


def test_closing_in_a_hurry_fails_what_is_left() -> None:
    stage = ProducerStage()
    stage.mishaps += [SILENCE] * 10

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send(TOPIC, b"v")
        await producer.close(timeout_seconds=1.0)
        with pytest.raises(ClosedClientError, match="before the record was confirmed"):
            await sent
        await producer.close()

    stage.run(story)


def test_closing_ends_the_wait_for_a_topic() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        sending = asyncio.ensure_future(producer.send("lakes", b"v"))
        await stage.clock.sleep(1.0)
        await producer.close()
        with pytest.raises(ClosedClientError):
            await sending

    stage.run(story)


def test_a_closed_producer_takes_nothing() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"v"))
        await producer.close()
        with pytest.raises(ClosedClientError):
            await producer.send(TOPIC, b"v")
        with pytest.raises(ClosedClientError):
            await producer.send("another", b"v")
        with pytest.raises(ClosedClientError):
            producer.send_nowait(TOPIC, b"v")

    stage.run(story)


def test_a_bug_fails_everything_instead_of_hanging(caplog: pytest.LogCaptureFixture) -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"v"))
        producer._sender._machine._add_to_request = None  # type: ignore[assignment, method-assign]
        sent = await producer.send(TOPIC, b"w")
        with pytest.raises(InvariantViolation, match="the producer failed"):
            await sent

    stage.run(story)
    assert "failed" in caplog.text


def test_a_waiter_that_goes_away_does_no_harm() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        gone = await producer.send(TOPIC, b"1")
        gone.cancel()
        assert (await (await producer.send(TOPIC, b"2"))).offset == 1

    stage.run(story)


def test_no_timer_is_left_behind() -> None:
    stage = ProducerStage()

    async def whole() -> None:
        before = stage.clock.pending_timers
        async with stage.make_producer() as producer:
            await (await producer.send(TOPIC, b"v"))
        assert stage.clock.pending_timers == before

    stage.play(whole)


# Without waiting


def test_a_topic_must_be_known_to_send_without_waiting() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(TopicNotReadyError, match=r"await producer\.send"):
            producer.send_nowait(TOPIC, b"1")
        await producer.partition_count(TOPIC)
        assert (await producer.send_nowait(TOPIC, b"1")).offset == 0

    stage.run(story)


def test_memory_must_be_free_to_send_without_waiting() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, bytes(900))
        with pytest.raises(BufferFullError):
            producer.send_nowait(TOPIC, bytes(900))

    stage.run(story, buffer_memory=1_000)


# Many at once


def test_many_values_are_sent_and_their_ranges_told() -> None:
    stage = ProducerStage()
    values = [b"%d" % number for number in range(1_000)]

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send_many(TOPIC, values)
        ranges = await sent
        assert sum(one.record_count for one in ranges) == 1_000
        assert ranges[0].base_offset == 0
        assert all(one[:2] == (TOPIC, 0) for one in ranges)

    stage.run(story, batch_size=3_000)
    assert stage.values() == values


def test_lines_are_sent_as_many_values_are() -> None:
    values = [b"%d" % number for number in range(1_000)]
    text = b"".join(value + b"\r\n" for value in values)
    batches: list[list[int]] = []
    for many in (values, TextLines(text)):
        stage = ProducerStage()

        async def story(producer: AsyncProducer, many: Iterable[bytes] = many) -> None:
            ranges = await (await producer.send_many(TOPIC, many))
            assert sum(one.record_count for one in ranges) == 1_000

        stage.run(story, batch_size=3_000)
        assert stage.values() == values
        batches.append([header.record_count for header in stage.headers])
    assert batches[0] == batches[1]  # the same measure for both


def test_lines_and_other_records_share_batches_in_the_order_of_their_calls() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, b"1", key=b"k", headers={"name": b"value"})
        lines = await producer.send_many(TOPIC, TextLines(b"2\n3\n"))
        await producer.send_many(TOPIC, [b"4", b"5"])
        last = await producer.send(TOPIC, b"6")
        assert (await lines, (await last).offset) == ((RecordRange(TOPIC, 0, 1, 2),), 5)

    stage.run(story, linger_ms=1_000)
    assert stage.values() == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert len(stage.headers) == 1
    assert stage.logs[0][0].key == b"k"
    assert stage.logs[0][0].headers == (("name", b"value"),)


@pytest.mark.parametrize(
    "options",
    [
        {"value_serializer": lambda value: value.upper()},
        {"partitioner": lambda topic, key, value, count: 0},
        {"partitioner": "round_robin"},
    ],
)
def test_lines_are_values_for_serializers_and_partitioners(options: dict[str, Any]) -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_many(TOPIC, TextLines(b"A\nB\n"), [b"k", b"l"]))
        await (await producer.send_many(TOPIC, TextLines(b"C\n"), headers={"name": b"value"}))

    stage.run(story, **options)
    assert stage.values() == [b"A", b"B", b"C"]
    assert [record.key for record in stage.logs[0]] == [b"k", b"l", None]
    assert stage.logs[0][2].headers == (("name", b"value"),)


def test_a_batch_of_lines_that_is_too_large_is_divided() -> None:
    stage = ProducerStage()
    stage.mishaps.append(ErrorCode.message_too_large)

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send_many(TOPIC, TextLines(b"1\n2\n3\n"))
        assert await sent == (RecordRange(TOPIC, 0, 0, 1), RecordRange(TOPIC, 0, 1, 2))

    stage.run(story)
    assert stage.values() == [b"1", b"2", b"3"]


def test_a_line_larger_than_a_batch_goes_alone_and_one_larger_than_a_request_is_refused() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_many(TOPIC, TextLines(b"1\n" + b"2" * 500 + b"\n3\n")))
        with pytest.raises(RecordTooLargeError):
            await producer.send_many(TOPIC, TextLines(b"4\n" + b"5" * 5_000 + b"\n6\n"))

    stage.run(story, batch_size=100, max_request_size=2_000)
    assert stage.values() == [b"1", b"2" * 500, b"3", b"4"]


def test_lines_wait_for_memory() -> None:
    stage = ProducerStage()
    values = [b"%d" % number for number in range(3_000)]

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_many(TOPIC, TextLines(b"".join(one + b"\n" for one in values))))

    stage.run(story, batch_size=1_000, buffer_memory=4_000)
    assert stage.values() == values


def test_the_ranges_of_a_divided_batch_are_those_of_its_parts() -> None:
    stage = ProducerStage()
    stage.mishaps.append(ErrorCode.message_too_large)

    async def story(producer: AsyncProducer) -> None:
        await producer.send(TOPIC, b"before")
        sent = await producer.send_many(TOPIC, [b"1", b"2", b"3"])
        assert await sent == (RecordRange(TOPIC, 0, 1, 1), RecordRange(TOPIC, 0, 2, 2))

    stage.run(story)


def test_the_failure_of_one_batch_is_the_failure_of_many() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        stage.mishaps.append(ErrorCode.invalid_record)
        sent = await producer.send_many(TOPIC, [bytes(400)] * 6)
        with pytest.raises(InvalidRecordError):
            await sent

    stage.run(story, batch_size=1_000)
    assert len(stage.values()) == 4


def test_nothing_is_sent_when_there_is_nothing() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        assert await (await producer.send_many(TOPIC, [])) == ()

    stage.run(story)


# What is told while somebody waits


def test_a_full_disk_is_told_at_once_and_when_there_is_room_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = ProducerStage()
    stage.mishaps.extend([ErrorCode.kafka_storage_error] * 3)

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"v"))

    stage.run(story)
    told, over = caplog.messages
    assert told.startswith("rivers-0: the broker cannot use the disk of this partition")
    assert told.endswith("it may be full; the broker's log says more; trying again")
    assert over.startswith("rivers-0 is served again, after ")


@pytest.mark.parametrize("attempts", [2, 6])
def test_a_refusal_is_told_when_it_lasts(attempts: int, caplog: pytest.LogCaptureFixture) -> None:
    stage = ProducerStage()
    stage.mishaps.extend([ErrorCode.not_enough_replicas] * attempts)

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"v"))

    stage.run(story)
    if attempts == 2:
        assert caplog.messages == []
    else:
        told, over = caplog.messages
        assert "min.insync.replicas" in told
        assert told.endswith("; trying again")
        assert over.startswith("rivers-0 is served again, after ")


def test_a_partition_without_a_leader_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    stage = ProducerStage(leaders=[-1])

    async def story(producer: AsyncProducer) -> None:
        sent = await producer.send(TOPIC, b"v")
        await stage.clock.sleep(3.0)
        assert caplog.messages == [
            "rivers-0: no broker leads it at the moment; trying again",
        ]
        stage.topics[TOPIC] = [1]
        await sent

    stage.run(story)
    assert len(caplog.messages) == 2


def test_a_record_before_the_first_transaction_is_refused_at_once() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(TransactionStateError, match="send within a transaction"):
            await producer.send(TOPIC, b"early")

    stage.run(story, transactional_id="payments")
    assert stage.produce_requests() == []


def test_partitions_are_counted_without_a_transaction() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        assert await producer.partition_count(TOPIC) == 1

    stage.run(story, transactional_id="payments")
