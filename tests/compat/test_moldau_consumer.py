"""Our consumer reads what every client writes, and shares offsets with all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import ModuleType

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as ConfluentPartition

import moldau
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from support import confluent_client
from support.rows import CREATE_TIME, LOG_APPEND_TIME, VARIED_ROWS, Row, numbered_rows
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def as_rows(records: Sequence[ConsumerRecord]) -> list[Row]:
    return [Row(one.key, one.value, one.headers, one.timestamp_ms) for one in records]


def consume(bootstrap: str, topic: str, count: int, **options: object) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    with moldau.Consumer(bootstrap, auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([moldau.TopicPartition(topic, 0)])
        while len(found) < count:
            some = consumer.poll(PATIENCE_SECONDS)
            assert some, f"only {len(found)} of {count} records came"
            found += some
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_what_any_client_writes_is_read_as_it_was(
    bootstrap: str, topic: str, client: ModuleType, codec: str
) -> None:
    rows = [*VARIED_ROWS, *client.ODD_ROWS, *numbered_rows(300)]
    client.produce(bootstrap, topic, rows, codec=codec)

    records = consume(bootstrap, topic, len(rows))

    assert as_rows(records) == rows
    assert [one.offset for one in records] == list(range(len(rows)))
    assert {one.timestamp_type for one in records} == {CREATE_TIME}


@pytest.mark.parametrize("codec", CODECS)
def test_the_other_ways_to_read_give_the_same(bootstrap: str, topic: str, codec: str) -> None:
    rows = [*VARIED_ROWS, *numbered_rows(300)]
    confluent_client.produce(bootstrap, topic, rows, codec=codec)
    partition = moldau.TopicPartition(topic, 0)
    options = {"auto_offset_reset": "earliest"}

    with moldau.Consumer(bootstrap, **options) as consumer:  # type: ignore[arg-type]
        consumer.assign([partition])
        records = iter(consumer)
        iterated = [next(records) for _ in rows]

    async def read() -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        async with moldau.AsyncConsumer(bootstrap, **options) as consumer:  # type: ignore[arg-type]
            consumer.assign([partition])
            async for record in consumer:
                found.append(record)
                if len(found) == len(rows):
                    break
        return found

    with moldau.SimpleConsumer(bootstrap) as simple:
        fetched: list[ConsumerRecord] = []
        offset = 0
        while len(fetched) < len(rows):
            answer = simple.fetch(topic, 0, offset)
            fetched += answer.records
            offset = answer.next_offset
    for found in (iterated, asyncio.run(read()), fetched):
        assert as_rows(found) == rows


@pytest.mark.parametrize("codec", CODECS)
def test_what_any_client_writes_comes_as_a_table(
    bootstrap: str, topic: str, client: ModuleType, codec: str
) -> None:
    rows = [*VARIED_ROWS, *client.ODD_ROWS, *numbered_rows(300)]
    client.produce(bootstrap, topic, rows, codec=codec)

    tables = []
    with moldau.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([moldau.TopicPartition(topic, 0)])
        while sum(table.num_rows for table in tables) < len(rows):
            tables.append(consumer.poll_arrow(PATIENCE_SECONDS))
            assert tables[-1].num_rows, "nothing more came"
    table = pa.concat_tables(tables)

    assert table["key"].to_pylist() == [row.key for row in rows]
    assert table["value"].to_pylist() == [row.value for row in rows]
    assert table["offset"].to_pylist() == list(range(len(rows)))


def test_the_time_of_appending_is_told(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(config={"message.timestamp.type": "LogAppendTime"})
    confluent_client.produce(bootstrap, topic, numbered_rows(10))
    records = consume(bootstrap, topic, 10)
    assert {one.timestamp_type for one in records} == {LOG_APPEND_TIME}
    assert min(one.timestamp_ms for one in records) > 1_700_000_000_100


def test_a_batch_larger_than_the_limit_is_read_all_the_same(bootstrap: str, topic: str) -> None:
    rows = [Row(None, bytes(200_000), (), 1_700_000_000_000 + number) for number in range(4)]
    confluent_client.produce(bootstrap, topic, rows)
    options = {"max_partition_fetch_bytes": 1_000, "fetch_max_bytes": 1_000}
    assert as_rows(consume(bootstrap, topic, 4, **options)) == rows


def test_offsets_are_common_to_all_clients(bootstrap: str, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, numbered_rows(30))
    group = fresh_name("common")
    ours = moldau.TopicPartition(topic, 0)

    with moldau.Consumer(
        bootstrap, group=group, topics=topic, auto_offset_reset="earliest", commit="manual"
    ) as consumer:
        records = consumer.poll(PATIENCE_SECONDS, max_records=10)
        consumer.commit({ours: moldau.GroupOffset(offset=7, leader_epoch=0, metadata="by us")})
        assert len(records) == 10
    with confluent_client.consumer(bootstrap, group_id=group) as theirs:
        (found,) = theirs.committed([ConfluentPartition(topic, 0)], PATIENCE_SECONDS)
        assert found.offset == 7
        assert (found.metadata or "").startswith("by us")  # it reads on behind the end
        theirs.commit(
            offsets=[ConfluentPartition(topic, 0, 20, metadata="by them")], asynchronous=False
        )
    with moldau.Consumer(bootstrap, group=group, topics=topic) as consumer:
        records = consumer.poll(PATIENCE_SECONDS)
        assert [one.offset for one in records] == list(range(20, 30))
        committed = consumer.committed()[ours]
        assert committed is not None
        assert (committed.offset, committed.metadata.rstrip("\0")) == (20, "by them")


def test_reading_begins_at_a_time(bootstrap: str, topic: str) -> None:
    confluent_client.produce(bootstrap, topic, numbered_rows(30))
    with moldau.Consumer(bootstrap) as consumer:
        partition = moldau.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_time(1_700_000_000_012)
        assert consumer.poll(PATIENCE_SECONDS)[0].offset == 12
        consumer.seek(partition, 3)
        assert consumer.poll(PATIENCE_SECONDS, max_records=1)[0].offset == 3


def test_a_paused_partition_waits_while_others_are_read(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    for partition in range(2):
        confluent_client.produce(bootstrap, topic, numbered_rows(10), partition=partition)
    zero, one = (moldau.TopicPartition(topic, partition) for partition in range(2))
    with moldau.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([zero, one])
        consumer.pause(zero)
        found: list[ConsumerRecord] = []
        while len(found) < 10:
            found += consumer.poll(PATIENCE_SECONDS)
        assert {record.partition for record in found} == {1}
        consumer.resume(zero)
        assert consumer.poll(PATIENCE_SECONDS)[0].partition == 0
