"""Transactions of other people's producers: what is committed is read, and nothing else."""

from __future__ import annotations

import asyncio
import json
import subprocess

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer

from support.command_line import run_process
from support.topics import Topics
from support.waiting import PATIENCE_SECONDS, eventually

BROKER_SETTINGS = {"transaction.state.log.num.partitions": "4"}
ROUNDS = 6
EACH = 5


def payload(round_number: int, number: int) -> bytes:
    return b"%d-%d" % (round_number, number)


COMMITTED = [payload(i, k) for i in range(0, ROUNDS, 2) for k in range(EACH)]
ALL = [payload(i, k) for i in range(ROUNDS) for k in range(EACH)]


def read(bootstrap: str, topic: str, wanted: int, isolation: str = "read_committed") -> list[bytes]:
    """With librdkafka: so many records from the beginning of the topic's partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, PATIENCE_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[bytes] = []

        def enough() -> bool:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value() or b"")
            return len(found) >= wanted

        eventually(enough, lambda: f"{wanted} records of {topic}, found {len(found)}")
        return found
    finally:
        consumer.close()


def confluent_transactions(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"c-{topic}"})
    producer.init_transactions(PATIENCE_SECONDS)
    for round_number in range(ROUNDS):
        producer.begin_transaction()
        for number in range(EACH):
            producer.produce(topic, payload(round_number, number), partition=number % 2)
        if round_number % 2:
            assert producer.flush(PATIENCE_SECONDS) == 0  # so that the broker has them
            producer.abort_transaction(PATIENCE_SECONDS)
        else:
            producer.commit_transaction(PATIENCE_SECONDS)


def kafka_python_transactions(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"k-{topic}")
    try:
        producer.init_transactions()
        for round_number in range(ROUNDS):
            producer.begin_transaction()
            for number in range(EACH):
                producer.send(topic, payload(round_number, number), partition=number % 2)
            producer.flush()
            if round_number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    finally:
        producer.close()


def aiokafka_transactions(bootstrap: str, topic: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"a-{topic}")
        await producer.start()
        try:
            for round_number in range(ROUNDS):
                await producer.begin_transaction()
                for number in range(EACH):
                    value = payload(round_number, number)
                    await producer.send_and_wait(topic, value, partition=number % 2)
                if round_number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        finally:
            await producer.stop()

    asyncio.run(run())


PRODUCERS = (confluent_transactions, kafka_python_transactions, aiokafka_transactions)


@pytest.mark.parametrize("write", PRODUCERS, ids=lambda write: write.__name__)
def test_only_what_was_committed_is_read(bootstrap: str, topics: Topics, write: object) -> None:
    topic = topics.create(2)
    write(bootstrap, topic)  # type: ignore[operator]
    assert sorted(read(bootstrap, topic, len(COMMITTED))) == sorted(COMMITTED)
    everything = read(bootstrap, topic, len(ALL), "read_uncommitted")
    assert sorted(everything) == sorted(ALL)


def test_other_readers_of_committed_records(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(2)
    confluent_transactions(bootstrap, topic)

    async def read_with_aiokafka() -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        await consumer.start()
        try:
            return [(await consumer.getone()).value or b"" for _ in COMMITTED]
        finally:
            await consumer.stop()

    assert sorted(asyncio.run(read_with_aiokafka())) == sorted(COMMITTED)
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=int(PATIENCE_SECONDS * 1000),
    )
    found = [record.value for record, _ in zip(consumer, COMMITTED, strict=False)]
    consumer.close()
    assert sorted(found) == sorted(COMMITTED)


def test_a_second_producer_fences_the_first(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(2)
    settings = {"bootstrap.servers": bootstrap, "transactional.id": f"fenced-{topic}"}
    zombie = Producer(settings)
    zombie.init_transactions(PATIENCE_SECONDS)
    zombie.begin_transaction()
    zombie.produce(topic, b"zombie", partition=0)
    assert zombie.flush(PATIENCE_SECONDS) == 0
    producer = Producer(settings)
    producer.init_transactions(PATIENCE_SECONDS)
    with pytest.raises(KafkaException) as fenced:
        zombie.commit_transaction(PATIENCE_SECONDS)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    producer.begin_transaction()
    producer.produce(topic, b"alive", partition=0)
    producer.commit_transaction(PATIENCE_SECONDS)
    assert read(bootstrap, topic, 1) == [b"alive"]


def test_consume_transform_produce_moves_offsets_with_the_output(
    bootstrap: str, topics: Topics
) -> None:
    source, target = topics.create(2), topics.create(2)
    confluent_transactions(bootstrap, source)
    group = f"group-{source}"
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"copy-{source}"})
    producer.init_transactions(PATIENCE_SECONDS)
    copied = 0

    def copy_one() -> bool:
        nonlocal copied
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            producer.begin_transaction()
            producer.produce(target, message.value(), partition=message.partition())
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()),
                consumer.consumer_group_metadata(),
                PATIENCE_SECONDS,
            )
            producer.commit_transaction(PATIENCE_SECONDS)
            copied += 1
        return copied >= len(COMMITTED)

    eventually(copy_one, lambda: f"{len(COMMITTED)} copied, now {copied}")
    consumer.close()
    assert sorted(read(bootstrap, target, len(COMMITTED))) == sorted(COMMITTED)
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    positions = reader.committed([TopicPartition(source, number) for number in range(2)])
    assert all(one.offset > 0 for one in positions)
    reader.close()


def moldau(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_process(*arguments, "--bootstrap", bootstrap)


def test_the_command_lists_and_describes_transactions(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(2)
    name = f"shown-{topic}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(PATIENCE_SECONDS)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=1)
    assert producer.flush(PATIENCE_SECONDS) == 0
    listed = moldau(bootstrap, "transactions", "list", "--state", "Ongoing", "--json")
    assert name in {one["transactional_id"] for one in json.loads(listed.stdout)}, listed.stderr
    described = moldau(bootstrap, "transactions", "describe", name, "--json")
    (found,) = json.loads(described.stdout)
    assert found["state"] == "Ongoing"
    assert found["partitions"] == [{"topic": topic, "partition": 1}]
    # It is known to its coordinator, however old it is: so it does not hang.
    hanging = moldau(
        bootstrap, "transactions", "find-hanging", "--topic", topic, "--older-than", "1ms", "--json"
    )
    assert json.loads(hanging.stdout) == [], hanging.stderr
    refused = moldau(
        bootstrap, "transactions", "abort", "--topic", topic, "--partition", "0",
        "--start-offset", "7",
    )  # fmt: skip
    assert refused.returncode == 1
    assert "find-hanging" in refused.stderr
    producer.abort_transaction(PATIENCE_SECONDS)
    unknown = moldau(bootstrap, "transactions", "describe", "nobody")
    assert unknown.returncode == 1
