"""Records at the limits, above them, and larger than what a fetch asks for."""

from __future__ import annotations

import asyncio
from types import ModuleType

import kafka.errors
import pytest
from aiokafka.errors import MessageSizeTooLargeError
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from compat.conftest import CLIENTS
from support import aiokafka_client, confluent_client, kafka_python_client
from support.rows import Row
from support.topics import Topics

MEBIBYTE = 1 << 20
BIG = 20 * MEBIBYTE
RAISED = {"max.message.bytes": str(BIG)}
TIME_MS = 1_700_000_000_000

# What one record of batch format 2 adds to its value here: 61 bytes of header, and around it
# length, attributes, deltas, key and headers.
OVERHEAD_BYTES = 72


def value_of(size: int) -> bytes:
    """Bytes that do not repeat and do not compress to nothing."""
    return bytes((number * 2654435761 >> 13) & 0xFF for number in range(997)) * (size // 997 + 1)


def test_just_under_the_limit_is_taken_and_just_over_it_is_refused(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(config={"max.message.bytes": "100000"})
    client = confluent_client.producer(bootstrap)
    fits = Row(None, b"v" * (100_000 - OVERHEAD_BYTES), (), TIME_MS)
    assert confluent_client.send(client, topic, [fits]) == [0]
    with pytest.raises(KafkaException) as refused:
        confluent_client.send(client, topic, [Row(None, b"v" * 100_000, (), TIME_MS)])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    # The producer goes on after it.
    assert confluent_client.send(client, topic, [fits]) == [1]


def test_the_limit_is_exact(bootstrap: str, topics: Topics) -> None:
    """The batch on the wire counts: one more byte in the limit makes the difference."""
    row = Row(None, b"v" * 50_000, (), TIME_MS)
    probe = topics.create()
    confluent_client.produce(bootstrap, probe, [row])
    size = topics.size_of(probe)
    for limit, is_taken in ((size, True), (size - 1, False)):
        topic = topics.create(config={"max.message.bytes": str(limit)})
        if is_taken:
            assert confluent_client.produce(bootstrap, topic, [row]) == [0]
        else:
            with pytest.raises(KafkaException):
                confluent_client.produce(bootstrap, topic, [row])


def test_each_client_learns_that_a_record_is_too_large(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config={"max.message.bytes": "10000"})
    value = b"v" * 20_000
    with (
        kafka_python_client.producer(bootstrap) as producer,
        pytest.raises(kafka.errors.MessageSizeTooLargeError),
    ):
        producer.send(topic, value).get(30)

    async def run() -> None:
        async with aiokafka_client.producer(bootstrap) as client:
            with pytest.raises(MessageSizeTooLargeError):
                await client.send_and_wait(topic, value)

    asyncio.run(run())


@pytest.mark.parametrize("codec", ["none", "zstd", "gzip"])
def test_several_megabytes_with_raised_limits(bootstrap: str, topics: Topics, codec: str) -> None:
    topic = topics.create(config=RAISED)
    rows = [
        Row(b"before", b"small", (), TIME_MS),
        Row(b"big", value_of(9 * MEBIBYTE), (("h", b"x" * 100_000),), TIME_MS),
        Row(b"after", b"small", (), TIME_MS),
    ]
    confluent_client.produce(bootstrap, topic, rows, codec=codec, message_max_bytes=BIG)
    for reader in CLIENTS:
        got = reader.consume(bootstrap, topic, 3)
        assert [one.key for one in got] == [b"before", b"big", b"after"], reader.NAME
        assert got[1].value == rows[1].value
        assert got[1].headers == rows[1].headers


def test_kafka_python_and_aiokafka_send_several_megabytes(bootstrap: str, topics: Topics) -> None:
    value = value_of(5 * MEBIBYTE)
    topic = topics.create(config=RAISED)
    with kafka_python_client.producer(bootstrap, max_request_size=BIG) as producer:
        assert producer.send(topic, value).get(60).offset == 0

    async def run() -> None:
        async with aiokafka_client.producer(bootstrap, max_request_size=BIG) as client:
            assert (await client.send_and_wait(topic, value)).offset == 1

    asyncio.run(run())
    got = confluent_client.consume(bootstrap, topic, 2)
    assert [one.value for one in got] == [value, value]


def test_a_record_larger_than_the_fetch_limits_is_delivered_all_the_same(
    bootstrap: str, topics: Topics
) -> None:
    """The first batch of an answer comes whole, however small the limits are (KIP-74)."""
    topic = topics.create(config=RAISED)
    rows = [Row(b"%d" % number, value_of(2 * MEBIBYTE), (), TIME_MS) for number in range(3)]
    for row in rows:
        confluent_client.produce(bootstrap, topic, [row], message_max_bytes=BIG)
    small: dict[ModuleType, dict[str, object]] = {
        confluent_client: {
            "max_partition_fetch_bytes": 1_000,
            "fetch_max_bytes": 1_000_000,
            "message_max_bytes": 1_000_000,
        },
        aiokafka_client: {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 2_000},
        kafka_python_client: {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 2_000},
    }
    for reader, limits in small.items():
        got = reader.consume(bootstrap, topic, 3, **limits)
        assert [one.value for one in got] == [row.value for row in rows], reader.NAME


def test_small_limits_still_bring_everything(bootstrap: str, topics: Topics) -> None:
    topic = topics.create()
    rows = [Row(None, b"%04d" % number * 100, (), TIME_MS) for number in range(2_000)]
    confluent_client.produce(bootstrap, topic, rows, batch_num_messages=10)
    for reader in (aiokafka_client, kafka_python_client):
        got = reader.consume(bootstrap, topic, 2_000, max_partition_fetch_bytes=9_000)
        assert [one.value for one in got] == [row.value for row in rows], reader.NAME
    with confluent_client.consumer(bootstrap, max_partition_fetch_bytes=9_000) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        assert len(confluent_client.poll(client, 2_000)) == 2_000
