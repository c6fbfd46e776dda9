"""A worker that copies one topic to another exactly once, with one of several clients; a process,
which tests may kill.

    python -m support.transform_worker CLIENT BOOTSTRAP SOURCE TARGET NAME NUMBER WORKERS SEED

NAME is the group. Each transaction has a few records, and some are aborted. Whatever fails, the
worker begins anew, until it is killed. It never asks twice how far its group is: while it has its
partitions, nobody else moves the offsets, and brokers tell them to old clients a moment before the
last transaction is complete (KIP-447).
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

BATCH = 10
SESSION_MS = 3_000
HEARTBEAT_MS = 500
TRANSACTION_MS = 20_000
_SECONDS = 30.0
_LOST_SECONDS = 15
_WORK_SECONDS = 0.2
"""Before it fails: what it has sent of a transaction reaches brokers meanwhile, and is aborted."""


class Work(NamedTuple):
    bootstrap: str
    source: str
    target: str
    group: str
    number: int
    workers: int
    chance: Random

    @property
    def transactional_id(self) -> str:
        return f"{self.group}-{self.number}"

    def aborts(self) -> bool:
        return self.chance.random() < 0.2


class _StumbleError(Exception):
    """The program changes its mind."""


def with_moldau(work: Work) -> None:
    import moldau

    def copy(record: moldau.ConsumerRecord) -> Iterator[moldau.OutgoingRecord]:
        if work.chance.random() < 0.2 / BATCH:
            time.sleep(_WORK_SECONDS)
            raise _StumbleError
        yield moldau.OutgoingRecord(work.target, record.value, key=record.key)

    moldau.transform(
        work.bootstrap,
        work.source,
        copy,
        group=work.group,
        transactional_id=work.transactional_id,
        stop=threading.Event(),
        consumer_options={
            "max_poll_records": BATCH,
            "session_timeout_ms": SESSION_MS,
            "heartbeat_interval_ms": HEARTBEAT_MS,
        },
        producer_options={"transaction_timeout_ms": TRANSACTION_MS, "linger_ms": 0},
    )


def with_confluent(work: Work) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    base = {"bootstrap.servers": work.bootstrap, "log_level": 0}
    consumer = Consumer(
        {
            **base,
            "group.id": work.group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
        }
    )
    try:
        producer = Producer(
            {
                **base,
                "transactional.id": work.transactional_id,
                "transaction.timeout.ms": TRANSACTION_MS,
            }
        )
        producer.init_transactions(_SECONDS)
        consumer.subscribe([work.source])
        while True:
            messages = [one for one in consumer.consume(BATCH, 0.5) if one.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            first: dict[int, int] = {}
            ends: dict[int, int] = {}
            for one in messages:
                producer.produce(work.target, one.value(), one.key())
                first.setdefault(one.partition(), one.offset())
                ends[one.partition()] = one.offset() + 1
            offsets = [TopicPartition(work.source, *place) for place in ends.items()]
            whom = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(offsets, whom, _SECONDS)
            if not work.aborts():
                producer.commit_transaction(_SECONDS)
                continue
            producer.flush(_SECONDS)
            producer.abort_transaction(_SECONDS)
            for place in first.items():
                consumer.seek(TopicPartition(work.source, *place))
    finally:
        consumer.close()


def with_kafka_python(work: Work) -> None:
    """Its producer loses requests of a transaction whose coordinator dies at that moment, and waits
    for them for ever (3.0.12): the program gives up for it."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import OffsetAndMetadata

    with contextlib.ExitStack() as stack:
        consumer = KafkaConsumer(
            bootstrap_servers=work.bootstrap,
            group_id=work.group,
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        stack.callback(consumer.close)
        producer = KafkaProducer(
            bootstrap_servers=work.bootstrap,
            transactional_id=work.transactional_id,
            transaction_timeout_ms=TRANSACTION_MS,
            acks="all",
        )
        stack.callback(producer.close, timeout=1)
        stack.callback(signal.alarm, 0)
        signal.alarm(_LOST_SECONDS)
        producer.init_transactions()
        consumer.subscribe([work.source])
        while True:
            signal.alarm(0)
            found = consumer.poll(timeout_ms=500, max_records=BATCH)
            if not found:
                continue
            signal.alarm(_LOST_SECONDS)
            producer.begin_transaction()
            sent = [
                producer.send(work.target, row.value, row.key)
                for rows in found.values()
                for row in rows
            ]
            ends = {
                place: OffsetAndMetadata(rows[-1].offset + 1, "", -1)
                for place, rows in found.items()
            }
            producer.send_offsets_to_transaction(ends, consumer.group_metadata())
            if not work.aborts():
                producer.commit_transaction()
                continue
            for one in sent:
                one.get(timeout=_SECONDS)
            producer.abort_transaction()
            for place, rows in found.items():
                consumer.seek(place, rows[0].offset)


def with_aiokafka(work: Work) -> None:
    asyncio.run(_with_aiokafka(work))


async def _with_aiokafka(work: Work) -> None:
    """It does not tell a transaction which member commits. So each worker has partitions of its
    own, and whoever has its transactional id has these partitions."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    consumer = AIOKafkaConsumer(
        bootstrap_servers=work.bootstrap,
        group_id=work.group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=work.bootstrap,
        transactional_id=work.transactional_id,
        transaction_timeout_ms=TRANSACTION_MS,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(consumer.stop)
        await consumer.start()
        stack.push_async_callback(producer.stop)
        await producer.start()  # whatever its predecessor left is over now
        numbers = await producer.partitions_for(work.source)
        mine = [one for one in sorted(numbers) if one % work.workers == work.number]
        await _copy_with_aiokafka(work, consumer, producer, mine)


async def _copy_with_aiokafka(work: Work, consumer: Any, producer: Any, mine: list[int]) -> None:
    from aiokafka import TopicPartition

    places = [TopicPartition(work.source, number) for number in mine]
    consumer.assign(places)
    for place in places:
        consumer.seek(place, await consumer.committed(place) or 0)
    while True:
        found = await consumer.getmany(timeout_ms=500, max_records=BATCH)
        if not found:
            continue
        await producer.begin_transaction()
        for rows in found.values():
            for row in rows:
                await producer.send_and_wait(work.target, row.value, row.key)
        ends = {place: rows[-1].offset + 1 for place, rows in found.items()}
        await producer.send_offsets_to_transaction(ends, work.group)
        if not work.aborts():
            await producer.commit_transaction()
            continue
        await producer.abort_transaction()
        for place, rows in found.items():
            consumer.seek(place, rows[0].offset)


CLIENTS: dict[str, Callable[[Work], None]] = {
    "moldau": with_moldau,
    "confluent": with_confluent,
    "kafka-python": with_kafka_python,
    "aiokafka": with_aiokafka,
}


def _give_up(*_: object) -> None:
    raise TimeoutError("the client waits for ever")


def main(client: str, *words: str) -> None:
    bootstrap, source, target, group, number, workers, seed = words
    chance = Random(f"{group} {number} {seed}")
    work = Work(bootstrap, source, target, group, int(number), int(workers), chance)
    logging.disable()
    faulthandler.register(signal.SIGUSR1)  # where it is, for a test that waits in vain
    signal.signal(signal.SIGALRM, _give_up)
    while True:
        try:
            CLIENTS[client](work)
        except Exception as error:  # noqa: BLE001 fenced, or a broker that is not there
            print(f"{work.transactional_id} begins anew: {error!r}", flush=True)  # noqa: T201
            time.sleep(0.2)  # others want their turn


if __name__ == "__main__":
    main(*sys.argv[1:])
