"""Where to read from: by offset, by time, at either end, and after records were deleted."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from types import ModuleType

import aiokafka
import kafka
import kafka.errors
import pytest
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import OffsetOutOfRangeError
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kio.schema.errors import ErrorCode

from support import aiokafka_client, confluent_client, kafka_python_client
from support.broker_process import BrokerProcess
from support.requests import full_request
from support.rows import Row, numbered_rows
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS
from support.wire_client import WireClient

ROWS = numbered_rows(100)
FIRST_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def filled(bootstrap: str, topics: Topics) -> str:
    """100 records in batches of ten, a millisecond apart."""
    topic = topics.create()
    confluent_client.produce(bootstrap, topic, ROWS, batch_num_messages=10, codec="lz4")
    return topic


# By offset


@pytest.mark.parametrize("start", [0, 1, 9, 10, 55, 99])
def test_reading_starts_at_the_asked_offset_even_inside_a_batch(
    bootstrap: str, filled: str, client: ModuleType, start: int
) -> None:
    got = client.consume(bootstrap, filled, 100 - start, start=start)
    assert [one.offset for one in got] == list(range(start, 100))
    assert got[0].value == ROWS[start].value


def test_confluent_kafka_seeks(bootstrap: str, filled: str) -> None:
    with confluent_client.consumer(bootstrap) as client:
        client.assign([TopicPartition(filled, 0, 0)])
        assert confluent_client.poll(client, 1)[0].offset == 0
        for offset in (70, 3, 42):
            client.seek(TopicPartition(filled, 0, offset))
            assert confluent_client.poll(client, 1)[0].offset == offset


def test_kafka_python_seeks(bootstrap: str, filled: str) -> None:
    partition = kafka.TopicPartition(filled, 0)
    with kafka_python_client.consumer(bootstrap) as client:
        client.assign([partition])
        client.seek_to_beginning(partition)
        assert kafka_python_client.poll(client, 1)[0].offset == 0
        client.seek(partition, 77)
        assert kafka_python_client.poll(client, 1)[0].offset == 77
        client.seek_to_end(partition)
        assert client.position(partition) == 100


def test_aiokafka_seeks(bootstrap: str, filled: str) -> None:
    async def run() -> None:
        partition = aiokafka.TopicPartition(filled, 0)
        async with aiokafka_client.consumer(bootstrap) as client:
            client.assign([partition])
            await client.seek_to_beginning(partition)
            assert (await aiokafka_client.poll(client, 1))[0].offset == 0
            client.seek(partition, 77)
            assert (await aiokafka_client.poll(client, 1))[0].offset == 77
            await client.seek_to_end(partition)
            assert await client.position(partition) == 100

    asyncio.run(run())


# Ends and times

TIMES = {
    FIRST_MS - 1_000_000: 0,
    FIRST_MS: 0,
    FIRST_MS + 1: 1,
    FIRST_MS + 54: 54,
    FIRST_MS + 99: 99,
    FIRST_MS + 100: None,
}
"""The offset of the first record that is at least so late."""


def test_confluent_kafka_finds_ends_and_times(bootstrap: str, filled: str) -> None:
    with confluent_client.consumer(bootstrap) as client:
        ends = client.get_watermark_offsets(TopicPartition(filled, 0), PATIENCE_SECONDS)
        assert ends == (0, 100)
        for timestamp_ms, offset in TIMES.items():
            wanted = [TopicPartition(filled, 0, timestamp_ms)]
            (found,) = client.offsets_for_times(wanted, PATIENCE_SECONDS)
            assert found.offset == (-1 if offset is None else offset)


def test_kafka_python_finds_ends_and_times(bootstrap: str, filled: str) -> None:
    partition = kafka.TopicPartition(filled, 0)
    with kafka_python_client.consumer(bootstrap) as client:
        assert client.beginning_offsets([partition]) == {partition: 0}
        assert client.end_offsets([partition]) == {partition: 100}
        for timestamp_ms, offset in TIMES.items():
            found = client.offsets_for_times({partition: timestamp_ms})[partition]
            assert (None if found is None else found.offset) == offset
            if found is not None:
                assert found.timestamp == max(timestamp_ms, FIRST_MS)


def test_aiokafka_finds_ends_and_times(bootstrap: str, filled: str) -> None:
    async def run() -> None:
        partition = aiokafka.TopicPartition(filled, 0)
        async with aiokafka_client.consumer(bootstrap) as client:
            assert await client.beginning_offsets([partition]) == {partition: 0}
            assert await client.end_offsets([partition]) == {partition: 100}
            for timestamp_ms, offset in TIMES.items():
                found = (await client.offsets_for_times({partition: timestamp_ms}))[partition]
                assert (None if found is None else found.offset) == offset

    asyncio.run(run())


def test_the_largest_timestamp_is_found(bootstrap: str, topic: str) -> None:
    rows = [Row(None, b"v", (), FIRST_MS + delta) for delta in (5, 900, 17, 3)]
    confluent_client.produce(bootstrap, topic, rows)
    admin = confluent_client.admin_client(bootstrap)
    partition = TopicPartition(topic, 0)
    for wanted, offset in (
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 4),
        (OffsetSpec.for_timestamp(FIRST_MS + 10), 1),
    ):
        found = admin.list_offsets({partition: wanted})[partition].result(PATIENCE_SECONDS)
        assert found.offset == offset, wanted


def test_an_empty_partition_has_ends_and_no_times(bootstrap: str, topic: str) -> None:
    with confluent_client.consumer(bootstrap) as client:
        assert client.get_watermark_offsets(TopicPartition(topic, 0), 30) == (0, 0)
        (found,) = client.offsets_for_times([TopicPartition(topic, 0, FIRST_MS)], 30)
    assert found.offset == -1


def test_times_are_found_across_segments(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config={"internal.segment.bytes": "2000", "index.interval.bytes": "200"})
    confluent_client.produce(bootstrap, topic, ROWS, batch_num_messages=3)
    with confluent_client.consumer(bootstrap) as client:
        for number in range(100):
            wanted = [TopicPartition(topic, 0, FIRST_MS + number)]
            (found,) = client.offsets_for_times(wanted, PATIENCE_SECONDS)
            assert found.offset == number


# Outside


def test_confluent_kafka_is_told_or_reset_when_out_of_range(bootstrap: str, filled: str) -> None:
    for offset in (101, 5_000):
        with confluent_client.consumer(bootstrap, auto_offset_reset="error") as client:
            client.assign([TopicPartition(filled, 0, offset)])
            with pytest.raises(KafkaException) as refused:
                confluent_client.poll(client, 1)
            assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET
    with confluent_client.consumer(bootstrap, auto_offset_reset="earliest") as client:
        client.assign([TopicPartition(filled, 0, 5_000)])
        assert confluent_client.poll(client, 1)[0].offset == 0


def test_kafka_python_is_told_or_reset_when_out_of_range(bootstrap: str, filled: str) -> None:
    partition = kafka.TopicPartition(filled, 0)
    with kafka_python_client.consumer(bootstrap, auto_offset_reset="none") as client:
        client.assign([partition])
        client.seek(partition, 5_000)
        with pytest.raises(kafka.errors.OffsetOutOfRangeError):
            kafka_python_client.poll(client, 1)
    with kafka_python_client.consumer(bootstrap, auto_offset_reset="earliest") as client:
        client.assign([partition])
        client.seek(partition, 5_000)
        assert kafka_python_client.poll(client, 1)[0].offset == 0


def test_aiokafka_is_told_or_reset_when_out_of_range(bootstrap: str, filled: str) -> None:
    async def run() -> None:
        partition = aiokafka.TopicPartition(filled, 0)
        async with aiokafka_client.consumer(bootstrap, auto_offset_reset="none") as client:
            client.assign([partition])
            client.seek(partition, 5_000)
            with pytest.raises(OffsetOutOfRangeError):
                await aiokafka_client.poll(client, 1)
        async with aiokafka_client.consumer(bootstrap, auto_offset_reset="earliest") as client:
            client.assign([partition])
            client.seek(partition, 5_000)
            assert (await aiokafka_client.poll(client, 1))[0].offset == 0

    asyncio.run(run())


@pytest.mark.parametrize("offset", [-1, -5, 101, 1 << 40])
def test_out_of_range_answers_tell_where_the_log_is(
    broker: BrokerProcess, topics: Topics, filled: str, offset: int
) -> None:
    values = {
        "topic": filled,
        "topic_id": topics.id_of(filled),
        "fetch_offset": offset,
        "max_wait": timedelta(minutes=10),  # an error is answered at once
        "min_bytes": 1,
        "partition_max_bytes": 1000,
    }
    with WireClient(broker.port) as wire:
        for version in (4, 11, 12, 13, 17):
            (partition,) = wire.ask(full_request(1, version, values)).responses[0].partitions
            assert partition.error_code is ErrorCode.offset_out_of_range


# DeleteRecords


def delete_before(admin: AdminClient, topic: str, offset: int) -> int:
    wanted = TopicPartition(topic, 0, offset)
    return int(admin.delete_records([wanted])[wanted].result(PATIENCE_SECONDS).low_watermark)


def test_deleted_records_are_gone(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config={"internal.segment.bytes": "2000"})
    confluent_client.produce(bootstrap, topic, ROWS, batch_num_messages=10)
    admin = confluent_client.admin_client(bootstrap)

    assert delete_before(admin, topic, 37) == 37

    with confluent_client.consumer(bootstrap, auto_offset_reset="earliest") as client:
        assert client.get_watermark_offsets(TopicPartition(topic, 0), 30) == (37, 100)
        (found,) = client.offsets_for_times([TopicPartition(topic, 0, FIRST_MS)], 30)
        assert found.offset == 37
        client.assign([TopicPartition(topic, 0, 0)])
        got = confluent_client.poll(client, 63)
    assert [one.offset for one in got] == list(range(37, 100))
    # Backwards it does not go, and nothing comes back.
    assert delete_before(admin, topic, 10) == 37


def test_everything_can_be_deleted_and_writing_goes_on(bootstrap: str, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, ROWS)
    admin = confluent_client.admin_client(bootstrap)
    assert delete_before(admin, topic, -1) == 100
    assert confluent_client.produce(bootstrap, topic, ROWS[:2]) == [100, 101]
    with confluent_client.consumer(bootstrap, auto_offset_reset="earliest") as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert [one.offset for one in confluent_client.poll(client, 2)] == [100, 101]


def test_what_is_not_there_cannot_be_deleted(bootstrap: str, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, ROWS)
    admin = confluent_client.admin_client(bootstrap)
    with pytest.raises(KafkaException) as refused:
        delete_before(admin, topic, 101)
    assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_kafka_python_deletes_records(bootstrap: str, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, ROWS)
    partition = kafka.TopicPartition(topic, 0)
    with kafka_python_client.admin_client(bootstrap) as admin:
        answer = admin.delete_records({partition: 20})
    assert answer[partition]["low_watermark"] == 20
    with kafka_python_client.consumer(bootstrap) as client:
        assert client.beginning_offsets([partition]) == {partition: 20}


def test_aiokafka_deletes_records(bootstrap: str, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, ROWS)

    async def run() -> None:
        partition = aiokafka.TopicPartition(topic, 0)
        async with aiokafka_client.admin_client(bootstrap) as admin:
            await admin.delete_records({partition: RecordsToDelete(before_offset=30)})
        async with aiokafka_client.consumer(bootstrap) as client:
            assert await client.beginning_offsets([partition]) == {partition: 30}

    asyncio.run(run())
