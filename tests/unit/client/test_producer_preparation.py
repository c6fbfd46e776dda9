"""Serializers, partitioners, interceptors and rows: what happens before a record is sent."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator

import pytest

from client.producer_stage import TOPIC, ProducerStage
from moldau.client.producer.produce_result import OutgoingRecord, RecordMetadata
from moldau.client.producer.producer import AsyncProducer
from moldau.errors import ConfigurationError, ErrorCode, InvalidRecordError, UnknownTopicError
from moldau.records.codec import partition_for_key
from moldau.records.record import NewRecord


async def send_all(producer: AsyncProducer, *values: object, **options: object) -> None:
    futures = [await producer.send(TOPIC, value, **options) for value in values]  # type: ignore[arg-type]
    await asyncio.gather(*futures)


# Serializers


def test_serializers_turn_keys_and_values_into_bytes() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, {"km": 430}, "Moldau"))
        await (await producer.send_many(TOPIC, [{"km": 1094}], ["Elbe"]))

    stage.run(story, key_serializer=str.encode, value_serializer=lambda v: json.dumps(v).encode())
    assert [(one.key, one.value) for one in stage.logs[0]] == [
        (b"Moldau", b'{"km": 430}'),
        (b"Elbe", b'{"km": 1094}'),
    ]


def test_what_a_serializer_raises_is_raised_by_send() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(ZeroDivisionError):
            await producer.send(TOPIC, 0)

    stage.run(story, value_serializer=lambda v: 1 // v)


@pytest.mark.parametrize(("value", "advice"), [("text", "str.encode"), (5, "value_serializer")])
def test_what_is_not_bytes_is_refused_with_advice(value: object, advice: str) -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(TypeError, match=advice):
            await producer.send(TOPIC, value)
        with pytest.raises(TypeError, match="value 1 is"):
            await producer.send_many(TOPIC, [b"fine", value])

    stage.run(story)


def test_a_buffer_is_copied_so_that_its_owner_may_go_on_using_it() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        buffer = bytearray(b"before")
        first = await producer.send(TOPIC, buffer)
        second = await producer.send_many(TOPIC, [memoryview(buffer)])
        buffer[:] = b"after!"
        await asyncio.gather(first, second)

    stage.run(story)
    assert stage.values() == [b"before", b"before"]


@pytest.mark.parametrize("timestamp_ms", [-1, 1 << 63, 1.5])
def test_a_timestamp_is_a_number_of_milliseconds(timestamp_ms: int) -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(ValueError, match="milliseconds since 1970"):
            await producer.send(TOPIC, b"v", timestamp_ms=timestamp_ms)

    stage.run(story)


def test_headers_are_pairs_or_a_mapping() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"1", headers=[("a", b"1"), ("a", None)]))
        await (await producer.send(TOPIC, b"2", headers={"b": bytearray(b"2")}))
        with pytest.raises(TypeError, match="name is text"):
            await producer.send(TOPIC, b"3", headers=[(b"a", b"1")])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="header is str"):
            await producer.send(TOPIC, b"3", headers={"a": "1"})  # type: ignore[dict-item]

    stage.run(story)
    assert [one.headers for one in stage.logs[0]] == [
        (("a", b"1"), ("a", None)),
        (("b", b"2"),),
    ]


# Partitioners


def test_keys_go_where_java_puts_them() -> None:
    stage = ProducerStage(leaders=[1] * 8)
    keys = [b"key-%d" % number for number in range(200)]

    async def story(producer: AsyncProducer) -> None:
        futures = [await producer.send(TOPIC, b"one", key) for key in keys]
        await asyncio.gather(*futures)
        await (await producer.send_many(TOPIC, [b"many"] * 200, keys))

    stage.run(story)
    for partition, records in stage.logs.items():
        assert {partition_for_key(one.key or b"", 8) for one in records} == {partition}
    assert sum(len(records) for records in stage.logs.values()) == 400


def test_records_without_a_key_stick_to_a_partition_for_a_batch() -> None:
    stage = ProducerStage(leaders=[1] * 4)

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_many(TOPIC, [bytes(80)] * 400))
        futures = [await producer.send(TOPIC, bytes(80)) for _ in range(400)]
        await asyncio.gather(*futures)

    stage.run(story, batch_size=1_000)
    assert set(stage.logs) == {0, 1, 2, 3}
    assert max(header.record_count for header in stage.headers) == 10
    assert len(stage.headers) < 100


def test_records_in_turn_are_spread_evenly() -> None:
    stage = ProducerStage(leaders=[1] * 4)

    async def story(producer: AsyncProducer) -> None:
        await send_all(producer, *[b"one"] * 40)
        await (await producer.send_many(TOPIC, [b"many"] * 40))

    stage.run(story, partitioner="round_robin")
    for records in stage.logs.values():
        assert Counter(one.value for one in records) == {b"one": 10, b"many": 10}
    assert len(stage.headers) <= 8


def test_keys_are_ignored_on_request() -> None:
    stage = ProducerStage(leaders=[1] * 4)

    async def story(producer: AsyncProducer) -> None:
        await send_all(producer, *[b"v"] * 40, key=b"always the same")

    stage.run(story, partitioner="round_robin", partitioner_ignore_keys=True)
    assert [len(stage.logs[partition]) for partition in range(4)] == [10] * 4


def test_a_function_chooses_the_partition() -> None:
    stage = ProducerStage(leaders=[1] * 4)

    def by_length(topic: str, key: bytes | None, value: bytes | None, count: int) -> int:
        return len(value or b"") % count

    async def story(producer: AsyncProducer) -> None:
        await send_all(producer, b"", b"1", b"22", b"333", b"4444")
        await (await producer.send_many(TOPIC, [b"1", b"22"]))
        assert (await (await producer.send(TOPIC, b"22", partition=3))).partition == 3

    stage.run(story, partitioner=by_length)
    assert stage.values(0) == [b"", b"4444"]
    assert stage.values(1) == [b"1", b"1"]
    assert stage.values(2) == [b"22", b"22"]
    assert stage.values(3) == [b"333", b"22"]


def test_a_function_that_chooses_nonsense_is_told_so() -> None:
    stage = ProducerStage(leaders=[1] * 4)

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(UnknownTopicError, match="no partition 17"):
            await producer.send(TOPIC, b"v")

    stage.run(story, partitioner=lambda topic, key, value, count: 17)


def test_an_unknown_partitioner_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no partitioner is called 'best'"):
        AsyncProducer("b1:9092", partitioner="best")


# Interceptors


class Diary:
    """Notes what it sees, and changes what it may."""

    def __init__(self) -> None:
        self.acknowledged: list[RecordMetadata] = []
        self.errors: list[BaseException] = []

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return record._replace(headers=(*record.headers, ("seen", b"yes")))

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        if metadata is not None:
            self.acknowledged.append(metadata)
        if error is not None:
            self.errors.append(error)


class Troublemaker:
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        raise RuntimeError("in on_send")

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        raise RuntimeError("in on_acknowledgement")


def test_interceptors_see_every_record_and_every_outcome() -> None:
    stage = ProducerStage()
    diary = Diary()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"1", headers={"first": b"1"}))
        await (await producer.send_many(TOPIC, [b"2", b"3"], [b"k", b"k"]))
        stage.mishaps.append(ErrorCode.invalid_record)
        with pytest.raises(InvalidRecordError):
            await (await producer.send(TOPIC, b"4"))

    stage.run(story, interceptors=[diary])
    assert [one.offset for one in diary.acknowledged] == [0, 1, 2]
    assert len(diary.errors) == 1
    assert stage.logs[0][0].headers == (("first", b"1"), ("seen", b"yes"))


def test_an_interceptor_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    stage = ProducerStage()
    diary = Diary()

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send(TOPIC, b"1"))

    stage.run(story, interceptors=[Troublemaker(), diary])
    assert len(diary.acknowledged) == 1
    assert "in on_send" in caplog.text
    assert "in on_acknowledgement" in caplog.text


# Rows


def test_rows_have_everything_of_their_own() -> None:
    stage = ProducerStage()
    rows = [
        NewRecord(5, b"k", b"v", (("h", b"1"),)),
        NewRecord(6, None, b"w"),
        (7, b"k", None, ()),
    ]

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_many(TOPIC, rows, headers={"for": b"those without"}))

    stage.run(story)
    assert [one[1:] for one in stage.logs[0]] == [
        (5, b"k", b"v", (("h", b"1"),)),
        (6, None, b"w", (("for", b"those without"),)),
        (7, b"k", None, (("for", b"those without"),)),
    ]


def test_what_is_no_row_is_refused() -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(TypeError, match="a row is a tuple that ends with"):
            await producer.send_many(TOPIC, [(b"key", b"value")])

    stage.run(story)


def test_values_may_come_from_a_generator() -> None:
    stage = ProducerStage()

    def numbers() -> Iterator[bytes]:
        for number in range(10_000):
            yield b"%d" % number

    async def story(producer: AsyncProducer) -> None:
        await (await producer.send_many(TOPIC, numbers(), numbers()))

    stage.run(story, batch_size=10_000, buffer_memory=50_000)
    assert stage.values() == list(numbers())


@pytest.mark.parametrize(("values", "keys"), [(2, 3), (3, 2)])
def test_keys_stand_beside_values(values: int, keys: int) -> None:
    stage = ProducerStage()

    async def story(producer: AsyncProducer) -> None:
        with pytest.raises(ValueError, match="keys"):
            await producer.send_many(TOPIC, [b"v"] * values, [b"k"] * keys)

    stage.run(story)
