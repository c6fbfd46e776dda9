"""A member of a group in a process of its own: `python -m support.mixed_group_member CLIENT ...`.

It reads until it is asked to stop (SIGTERM), and writes what happens to it, one JSON object on a
line: which partitions it got and gave up, and every record when it has dealt with it. A line is
written before the offset is committed, and a partition is given up after its offsets are: so what
is in the file holds also when the process is killed. Times are of the machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

SESSION_MS = 6_000
"""Whoever is late by more has its partitions given to others while it still works on them."""

HEARTBEAT_MS = 300
POLL_SECONDS = 0.1


class Diary:
    """The file that a member writes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: str, **fields: object) -> None:
        line = json.dumps({"at": time.monotonic(), "event": event, **fields})
        os.write(self._file, line.encode() + b"\n")

    def got(self, partitions: Iterable[int]) -> None:
        self.write("got", partitions=sorted(partitions))

    def gave_up(self, partitions: Iterable[int]) -> None:
        self.write("gave up", partitions=sorted(partitions))

    def dealt_with(self, partition: int, offset: int, value: bytes | None) -> None:
        self.write("record", partition=partition, offset=offset, value=(value or b"").decode())


def run_moldau(arguments: argparse.Namespace, diary: Diary, stopping: threading.Event) -> None:
    from moldau.client.blocking import Consumer

    def note(write: Callable[[Iterable[int]], None]) -> Callable[[Any], None]:
        return lambda partitions: write(one.partition for one in partitions)

    with Consumer(
        arguments.bootstrap,
        group=arguments.group,
        topics=arguments.topic,
        assignors=[arguments.assignor],
        on_assigned=note(diary.got),
        on_revoked=note(diary.gave_up),
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        auto_commit_interval_ms=200,
        max_poll_records=50,
    ) as consumer:
        while not stopping.is_set():
            for record in consumer.poll(POLL_SECONDS):
                diary.dealt_with(record.partition, record.offset, record.value)


def run_confluent(arguments: argparse.Namespace, diary: Diary, stopping: threading.Event) -> None:
    from confluent_kafka import Consumer, KafkaException

    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": arguments.group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **_librdkafka_protocol(arguments),
        }
    )

    def got(_: Consumer, partitions: list[Any]) -> None:
        diary.got(one.partition for one in partitions)

    def gave_up(_: Consumer, partitions: list[Any]) -> None:
        diary.gave_up(one.partition for one in partitions)

    consumer.subscribe([arguments.topic], on_assign=got, on_revoke=gave_up)
    try:
        while not stopping.is_set():
            messages = [one for one in consumer.consume(50, POLL_SECONDS) if one.error() is None]
            for message in messages:
                diary.dealt_with(message.partition(), message.offset(), message.value())
            if messages:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:
                    diary.write("not committed", why=str(error))
    finally:
        consumer.close()


def _librdkafka_protocol(arguments: argparse.Namespace) -> dict[str, object]:
    """Members of the consumer protocol (KIP-848) leave assignors and time-outs to the broker."""
    if arguments.client == "confluent-consumer":
        return {"group.protocol": "consumer"}
    return {
        "partition.assignment.strategy": arguments.assignor,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
    }


def run_kafka_python(
    arguments: argparse.Namespace, diary: Diary, stopping: threading.Event
) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.errors import KafkaError

    assignors = {
        "range": RangePartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=arguments.bootstrap,
        group_id=arguments.group,
        partition_assignment_strategy=[assignors[arguments.assignor]],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )

    class Listener(ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Any) -> None:
            diary.got(one.partition for one in assigned)

        def on_partitions_revoked(self, revoked: Any) -> None:
            diary.gave_up(one.partition for one in revoked)

    consumer.subscribe([arguments.topic], listener=Listener())
    try:
        while not stopping.is_set():
            batches = consumer.poll(int(POLL_SECONDS * 1000), max_records=50)
            for records in batches.values():
                for record in records:
                    diary.dealt_with(record.partition, record.offset, record.value)
            if batches:
                try:
                    consumer.commit()
                except KafkaError as error:
                    diary.write("not committed", why=str(error))
    finally:
        consumer.close(autocommit=False)


def run_aiokafka(arguments: argparse.Namespace, diary: Diary, stopping: threading.Event) -> None:
    asyncio.run(_run_aiokafka(arguments, diary, stopping))


async def _run_aiokafka(
    arguments: argparse.Namespace, diary: Diary, stopping: threading.Event
) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    assignors = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=arguments.bootstrap,
        group_id=arguments.group,
        partition_assignment_strategy=(assignors[arguments.assignor],),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    working = asyncio.Lock()  # its rebalances do not wait for the program by themselves

    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            async with working:
                diary.got(one.partition for one in assigned)

        async def on_partitions_revoked(self, revoked: Any) -> None:
            async with working:
                diary.gave_up(one.partition for one in revoked)

    consumer.subscribe([arguments.topic], listener=Listener())
    await consumer.start()
    try:
        while not stopping.is_set():
            batches = await consumer.getmany(timeout_ms=int(POLL_SECONDS * 1000), max_records=50)
            async with working:
                mine = {p: some for p, some in batches.items() if p in consumer.assignment()}
                for records in mine.values():
                    for record in records:
                        diary.dealt_with(record.partition, record.offset, record.value)
                if mine:
                    try:
                        await consumer.commit({p: some[-1].offset + 1 for p, some in mine.items()})
                    except KafkaError as error:
                        diary.write("not committed", why=str(error))
    finally:
        await consumer.stop()


RUNNERS = {
    "moldau": run_moldau,
    "confluent": run_confluent,
    "confluent-consumer": run_confluent,
    "kafka-python": run_kafka_python,
    "aiokafka": run_aiokafka,
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("client", choices=RUNNERS)
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--assignor", required=True)
    parser.add_argument("--diary", type=Path, required=True)
    arguments = parser.parse_args()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    diary = Diary(arguments.diary)
    diary.write("started", client=arguments.client)
    RUNNERS[arguments.client](arguments, diary, stopping)
    diary.write("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
