"""Exactly once with other people's clients: consume, transform, produce, with random aborts.

The output, read with `read_committed`, is exactly the input, in order; `read_uncommitted` shows the
aborted attempts beside it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata

from support import confluent_client
from support.rows import Row
from support.topics import Topics, fresh_name
from support.waiting import PATIENCE_SECONDS

COUNT = 60
BATCH = 7
INPUT = [b"record-%d" % number for number in range(COUNT)]
OUTPUT = [value.upper() for value in INPUT]

Aborts = Callable[[], bool]


def aborts_of(seed: int) -> Aborts:
    """About every third attempt is given up."""
    random = Random(seed)
    return lambda: random.random() < 0.35


def transform_by_confluent(bootstrap: str, source: str, target: str, aborts: Aborts) -> None:
    group = fresh_name("group")
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": fresh_name("confluent"),
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE_SECONDS)
    done = 0
    try:
        while done < COUNT:
            consumer.assign([TopicPartition(source, 0, done)])
            messages = consumer.consume(min(BATCH, COUNT - done), PATIENCE_SECONDS)
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, (message.value() or b"").upper(), partition=0)
            end = done + len(messages)
            offsets = [TopicPartition(source, 0, end)]
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(offsets, metadata, PATIENCE_SECONDS)
            if aborts():
                producer.flush(PATIENCE_SECONDS)
                producer.abort_transaction(PATIENCE_SECONDS)
            else:
                producer.commit_transaction(PATIENCE_SECONDS)
            (committed,) = consumer.committed([TopicPartition(source, 0)], PATIENCE_SECONDS)
            done = max(committed.offset, 0)
    finally:
        consumer.close()


def transform_by_kafka_python(bootstrap: str, source: str, target: str, aborts: Aborts) -> None:
    group = fresh_name("group")
    here = PythonPartition(source, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=fresh_name("kafka-python"), acks="all"
    )
    producer.init_transactions()
    consumer.assign([here])
    done = 0
    deadline = time.monotonic() + 4 * PATIENCE_SECONDS
    try:
        while done < COUNT:
            assert time.monotonic() < deadline, f"{done} records are through"
            consumer.seek(here, done)
            rows = consumer.poll(timeout_ms=1000, max_records=BATCH).get(here, [])
            if not rows:
                continue
            producer.begin_transaction()
            sent = [producer.send(target, row.value.upper(), partition=0) for row in rows]
            offsets = {here: OffsetAndMetadata(rows[-1].offset + 1, "", -1)}
            producer.send_offsets_to_transaction(offsets, group)
            if aborts():
                for one in sent:
                    one.get(timeout=PATIENCE_SECONDS)
                producer.abort_transaction()
            else:
                producer.commit_transaction()
            done = consumer.committed(here) or 0
    finally:
        producer.close()
        consumer.close()


def transform_by_aiokafka(bootstrap: str, source: str, target: str, aborts: Aborts) -> None:
    asyncio.run(_transform_by_aiokafka(bootstrap, source, target, aborts))


async def _transform_by_aiokafka(bootstrap: str, source: str, target: str, aborts: Aborts) -> None:
    group = fresh_name("group")
    here = AioPartition(source, 0)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=fresh_name("aiokafka")
    )
    await consumer.start()
    await producer.start()
    consumer.assign([here])
    done = 0
    try:
        while done < COUNT:
            consumer.seek(here, done)
            found = await asyncio.wait_for(
                consumer.getmany(here, timeout_ms=1000, max_records=BATCH), PATIENCE_SECONDS
            )
            rows = found.get(here, [])
            if not rows:
                continue
            await producer.begin_transaction()
            for row in rows:
                await producer.send_and_wait(target, (row.value or b"").upper(), partition=0)
            await producer.send_offsets_to_transaction({here: rows[-1].offset + 1}, group)
            if aborts():
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
                done = rows[-1].offset + 1
            async with asyncio.timeout(PATIENCE_SECONDS):
                # It does not ask for stable offsets: it may be told the former one for a moment.
                while (await consumer.committed(here) or 0) != done:
                    await asyncio.sleep(0.01)
    finally:
        await producer.stop()
        await consumer.stop()


TRANSFORMS = [transform_by_confluent, transform_by_kafka_python, transform_by_aiokafka]


def read_all(bootstrap: str, topic: str, isolation_level: str) -> list[bytes]:
    with confluent_client.consumer(
        bootstrap, isolation_level=isolation_level, enable_partition_eof=True
    ) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while True:
            message = consumer.poll(PATIENCE_SECONDS)
            assert message is not None, f"no end of {topic} after {len(values)} records"
            if message.error():
                return values
            values.append(message.value() or b"")


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("seed", [1, 2])
def test_the_output_is_exactly_the_input(
    bootstrap: str, topics: Topics, transform: Callable[..., None], seed: int
) -> None:
    source, target = topics.create(), topics.create()
    rows = [Row(None, value, (), 1_700_000_000_000) for value in INPUT]
    confluent_client.produce(bootstrap, source, rows)
    transform(bootstrap, source, target, aborts_of(seed))
    assert read_all(bootstrap, target, "read_committed") == OUTPUT
    everything = read_all(bootstrap, target, "read_uncommitted")
    assert len(everything) > COUNT
    assert set(everything) == set(OUTPUT)
