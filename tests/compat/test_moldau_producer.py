"""Every client reads what our producer writes, and brokers that are not ours take it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from types import ModuleType

import confluent_kafka
import pytest

import moldau
import moldau.errors
from compat.conftest import CLIENTS
from support import confluent_client
from support.rows import CREATE_TIME, LOG_APPEND_TIME, VARIED_ROWS, Row, numbered_rows, rows_of
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def as_records(rows: Sequence[Row]) -> list[moldau.NewRecord]:
    return [
        moldau.NewRecord(row.timestamp_ms or 0, row.key, row.value, row.headers) for row in rows
    ]


def send_one_by_one(
    producer: moldau.Producer, topic: str, rows: Sequence[Row], partition: int | None = 0
) -> list[int]:
    futures = [
        producer.send(
            topic,
            row.value,
            row.key,
            partition=partition,
            timestamp_ms=row.timestamp_ms,
            headers=row.headers,
        )
        for row in rows
    ]
    return [future.result(PATIENCE_SECONDS).offset for future in futures]


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_was_sent_record_by_record(
    bootstrap: str, topic: str, codec: str
) -> None:
    rows = [*VARIED_ROWS, Row(None, None, (), 1_700_000_000_009), *numbered_rows(300)]
    with moldau.Producer(bootstrap, compression_type=codec, batch_size=8_000) as producer:
        offsets = send_one_by_one(producer, topic, rows)

    assert offsets == list(range(len(rows)))
    for reader in CLIENTS:
        got = reader.consume(bootstrap, topic, len(rows))
        assert rows_of(got) == rows, f"as {reader.NAME} reads it"
        assert {one.timestamp_type for one in got} == {CREATE_TIME}


@pytest.mark.parametrize("codec", CODECS)
def test_every_client_reads_what_was_sent_many_at_once(
    bootstrap: str, topic: str, codec: str
) -> None:
    rows = [*VARIED_ROWS, *numbered_rows(3_000)]
    with moldau.Producer(bootstrap, compression_type=codec) as producer:
        ranges = producer.send_many(topic, as_records(rows)).result(PATIENCE_SECONDS)

    assert sum(one.record_count for one in ranges) == len(rows)
    for reader in CLIENTS:
        assert rows_of(reader.consume(bootstrap, topic, len(rows))) == rows, reader.NAME


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_kind_of_acks_delivers(
    bootstrap: str, topic: str, client: ModuleType, acks: object
) -> None:
    rows = numbered_rows(200)
    with moldau.Producer(bootstrap, acks=acks) as producer:
        producer.send_many(topic, as_records(rows)).result(PATIENCE_SECONDS)
    assert rows_of(client.consume(bootstrap, topic, 200)) == rows


@pytest.mark.parametrize("level", ["gzip", "lz4", "zstd"])
def test_levels_of_compression_are_read(
    bootstrap: str, topic: str, client: ModuleType, level: str
) -> None:
    rows = numbered_rows(500)
    options: dict[str, object] = {"compression_type": level, f"compression_{level}_level": 1}
    with moldau.Producer(bootstrap, **options) as producer:
        producer.send_many(topic, as_records(rows))
    assert rows_of(client.consume(bootstrap, topic, 500)) == rows


def test_the_asynchronous_producer_writes_the_same(bootstrap: str, topic: str) -> None:
    rows = numbered_rows(500)

    async def run() -> list[int]:
        async with moldau.AsyncProducer(bootstrap, compression_type="lz4") as producer:
            sent = [
                await producer.send(
                    topic, row.value, row.key, timestamp_ms=row.timestamp_ms, headers=row.headers
                )
                for row in rows
            ]
            return [one.offset for one in await asyncio.gather(*sent)]

    assert asyncio.run(run()) == list(range(500))
    for reader in CLIENTS:
        assert rows_of(reader.consume(bootstrap, topic, 500)) == rows, reader.NAME


def test_keys_go_to_the_partitions_where_librdkafka_puts_them_like_java(
    bootstrap: str, topics: Topics
) -> None:
    ours, theirs = topics.create(partitions=7), topics.create(partitions=7)
    keys = [b"", b"21", b"foobar", *(b"key-%d" % number for number in range(300))]
    with moldau.Producer(bootstrap) as producer:
        producer.send_many(ours, keys, keys)
        placed = {
            key: producer.send(ours, key, key).result(PATIENCE_SECONDS).partition for key in keys
        }
    found: dict[bytes, int] = {}
    client = confluent_client.producer(bootstrap, partitioner="murmur2")
    for key in keys:
        client.produce(
            theirs,
            key,
            key,
            on_delivery=lambda error, sent: found.update({sent.key(): sent.partition()}),
        )
    assert not client.flush(PATIENCE_SECONDS)
    assert placed == found


def test_the_time_of_the_log_is_told(bootstrap: str, topics: Topics, client: ModuleType) -> None:
    topic = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    with moldau.Producer(bootstrap) as producer:
        told = producer.send(topic, b"v", timestamp_ms=5).result(PATIENCE_SECONDS).timestamp_ms
    (got,) = client.consume(bootstrap, topic, 1)
    assert (got.timestamp_type, got.timestamp_ms) == (LOG_APPEND_TIME, told)
    assert told > 5


def test_batches_too_large_for_the_topic_arrive_in_parts(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config={"max.message.bytes": "2000"})
    rows = numbered_rows(500, padding=100)
    with moldau.Producer(bootstrap) as producer:
        ranges = producer.send_many(topic, as_records(rows)).result(PATIENCE_SECONDS)
        with pytest.raises(moldau.errors.BatchTooLargeError, match=r"max\.message\.bytes"):
            producer.send(topic, bytes(3_000)).result(PATIENCE_SECONDS)
        producer.send(topic, b"and on it goes").result(PATIENCE_SECONDS)
    assert sum(one.record_count for one in ranges) == 500
    got = confluent_client.consume(bootstrap, topic, 501)
    assert rows_of(got)[:500] == rows


def test_a_record_without_a_key_on_a_compacted_topic_is_refused(
    bootstrap: str, topics: Topics
) -> None:
    topic = topics.create(config={"cleanup.policy": "compact"})
    with moldau.Producer(bootstrap, linger_ms=50) as producer:
        futures = [producer.send(topic, b"v", key) for key in (b"k", None)]
        for future in futures:
            with pytest.raises(moldau.errors.InvalidRecordError):
                future.result(PATIENCE_SECONDS)
        producer.send(topic, b"v", b"k").result(PATIENCE_SECONDS)


def test_a_missing_topic_is_made_where_that_is_allowed(bootstrap: str) -> None:
    with moldau.Producer(bootstrap) as producer:
        assert producer.send(fresh_name(), b"v").result(PATIENCE_SECONDS).offset == 0


def test_a_bad_topic_name_is_refused(bootstrap: str) -> None:
    with (
        moldau.Producer(bootstrap) as producer,
        pytest.raises(moldau.errors.InvalidTopicError),
    ):
        producer.send("not a name", b"v")


# Brokers that are not ours


@pytest.fixture(scope="module")
def foreign_bootstrap() -> Iterator[str]:
    """librdkafka's mock cluster of three brokers."""
    owner = confluent_kafka.Producer(
        {"bootstrap.servers": "", "test.mock.num.brokers": 3, "log_level": 0}
    )
    brokers = owner.list_topics(timeout=60).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    owner.flush(0)


# Not acks=0: it promises nothing, and the mock answers such requests, which the protocol forbids.
@pytest.mark.parametrize("options", [{}, {"acks": 1}, {"compression_type": "zstd"}])
def test_a_foreign_cluster_of_three_takes_our_records(
    foreign_bootstrap: str, options: dict[str, object]
) -> None:
    topic = fresh_name()
    values = [b"%d" % number for number in range(2_000)]
    with moldau.Producer(foreign_bootstrap, batch_size=1_000, **options) as producer:
        count = producer.partition_count(topic)
        assert count > 1
        for partition in range(count):
            producer.send_many(topic, values, partition=partition).result(PATIENCE_SECONDS)
        futures = [producer.send(topic, value, partition=0) for value in values]
        assert all(future.exception(PATIENCE_SECONDS) is None for future in futures)
    for partition in range(count):
        got = confluent_client.consume(foreign_bootstrap, topic, 2_000, partition=partition)
        assert [one.value for one in got] == values
