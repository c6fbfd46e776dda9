"""Consumers of four client libraries against one broker: records per second, and what they cost.

Each has the same work: read a topic of four partitions from its beginning, a thousand records at a
time where it takes several, and look at every value. The topic holds batches of 128 KiB. The
clients take turns in one process; the CPU time is that of the client, all its threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import moldau
from bench.measure import CPU_US_PER_REQUEST, REQUESTS_PER_SECOND, Measured, least, most, take_turns
from bench.processes import ServerProcess, running_broker
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import Scale
from bench.throughput import record_name

_TOPIC = "consumers"
_PARTITIONS = 4
_BATCH_BYTES = 128 * 1024
_AT_ONCE = 1_000
_POLL_SECONDS = 10.0
_WAIT_MS = 5  # a round ends with a long poll at the end of the log, and the next waits for it
_SLOW_SHARE = 4
"""The slower clients read a part of the records only: it is costs for each one that count."""

_CONFLUENT = "confluent-kafka consume"
_AIOKAFKA = "aiokafka getmany"
_KAFKA_PYTHON = "kafka-python poll"
_POLL = "moldau poll"
_ITERATE = "moldau iteration"
_POLL_ARROW = "moldau poll_arrow"
_ASYNC_POLL = "moldau async poll"
_ASYNC_ITERATE = "moldau async iteration"

Work = Callable[[int], int]
"""Reads so many records from the beginning; gives the bytes of their values."""


class Subject(NamedTuple):
    """One way to consume."""

    work: Work
    share: int = 1


class Figures(NamedTuple):
    """The best of a subject's rounds."""

    records_per_second: float
    cpu_us_per_record: float


def run(scale: Scale) -> Outcome:
    table = Table(
        title="Consumers side by side, one client, 4 partitions, no compression",
        columns=(
            "client",
            "records",
            "records/s",
            "client CPU µs per record",
            "speed against confluent-kafka",
            "CPU against confluent-kafka",
        ),
        note="moldau's are the client of this package; the best round of each counts.",
    )
    goals: list[Goal] = []
    for record_bytes in scale.record_sizes:
        _fill(table, goals, record_bytes, _measure_all(scale, record_bytes))
    return Outcome(tables=[table], goals=goals)


def _measure_all(scale: Scale, record_bytes: int) -> dict[str, Figures]:
    count = max(scale.client_bytes // max(record_bytes, 200), _AT_ONCE) // _AT_ONCE * _AT_ONCE
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running_broker())
        _write_records(broker, record_bytes, count)
        subjects: dict[str, Subject] = {}
        for name, make in _SUBJECTS.items():
            with contextlib.suppress(ImportError):  # that client, or Arrow, is not installed
                subjects[name] = stack.enter_context(make(broker.bootstrap))
        rounds = take_turns(
            scale.rounds,
            {
                name: _round_of(subject, record_bytes, max(count // subject.share, _AT_ONCE))
                for name, subject in subjects.items()
            },
        )
    return {
        name: Figures(most(found, REQUESTS_PER_SECOND), least(found, CPU_US_PER_REQUEST))
        for name, found in rounds.items()
    }


def _write_records(broker: ServerProcess, record_bytes: int, count: int) -> None:
    with RawClient(broker) as client:
        client.create_topic(_TOPIC, partitions=_PARTITIONS)
    with moldau.Producer(broker.bootstrap, batch_size=_BATCH_BYTES) as producer:
        values = [bytes(record_bytes)] * _AT_ONCE
        for number in range(count // _AT_ONCE):
            producer.send_many(_TOPIC, values, partition=number % _PARTITIONS)
        producer.flush(60.0)


def _round_of(subject: Subject, record_bytes: int, count: int) -> Callable[[], Measured]:
    def run_round() -> Measured:
        cpu_before, before = time.process_time(), time.perf_counter()
        value_bytes = subject.work(count)
        seconds, cpu = time.perf_counter() - before, time.process_time() - cpu_before
        if value_bytes < count * record_bytes:
            raise RuntimeError(f"{value_bytes} bytes came of {count * record_bytes}")
        return Measured(seconds, cpu, count, count * record_bytes)

    return run_round


def _fill(table: Table, goals: list[Goal], record_bytes: int, found: dict[str, Figures]) -> None:
    reference = found.get(_CONFLUENT)
    for name, (speed, cpu) in found.items():
        table.add(
            name,
            record_name(record_bytes),
            speed,
            cpu,
            speed / reference.records_per_second if reference else None,
            cpu / reference.cpu_us_per_record if reference else None,
        )
    size = record_name(record_bytes)
    goals += [
        Goal(
            figure=f"records per CPU second, {ours} against {name}, {size}",
            to_reach=3.0,
            measured=found[name].cpu_us_per_record / found[ours].cpu_us_per_record,
            at_most=False,
        )
        for name in (_AIOKAFKA, _KAFKA_PYTHON)
        for ours in (_POLL_ARROW, _ITERATE)
        if name in found and ours in found
    ]
    if reference:
        goals += [
            Goal(
                figure=f"CPU for each record, {ours} against {_CONFLUENT}, {size}",
                to_reach=1.5,
                measured=found[ours].cpu_us_per_record / reference.cpu_us_per_record,
            )
            for ours in (_POLL, _ITERATE)
        ]


def _partitions() -> list[moldau.TopicPartition]:
    return [moldau.TopicPartition(_TOPIC, index) for index in range(_PARTITIONS)]


# --- ours -------------------------------------------------------------------------------------


@contextlib.contextmanager
def _moldau(bootstrap: str) -> Iterator[moldau.Consumer]:
    with moldau.Consumer(
        bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=_WAIT_MS
    ) as consumer:
        consumer.assign(_partitions())
        yield consumer


@contextlib.contextmanager
def _moldau_poll(bootstrap: str) -> Iterator[Subject]:
    with _moldau(bootstrap) as consumer:

        def work(count: int) -> int:
            consumer.seek_to_beginning()
            size = 0
            while count > 0:
                records = consumer.poll(_POLL_SECONDS, _AT_ONCE)
                for record in records:
                    size += len(record.value or b"")
                count -= len(records)
            return size

        yield Subject(work)


@contextlib.contextmanager
def _moldau_iterate(bootstrap: str) -> Iterator[Subject]:
    with _moldau(bootstrap) as consumer:

        def work(count: int) -> int:
            consumer.seek_to_beginning()
            size = 0
            for record in consumer:
                size += len(record.value or b"")
                count -= 1
                if not count:
                    break
            return size

        yield Subject(work)


@contextlib.contextmanager
def _moldau_poll_arrow(bootstrap: str) -> Iterator[Subject]:
    import pyarrow.compute as pc

    with _moldau(bootstrap) as consumer:

        def work(count: int) -> int:
            consumer.seek_to_beginning()
            size = 0
            while count > 0:
                table = consumer.poll_arrow(_POLL_SECONDS)
                size += pc.sum(pc.binary_length(table["value"])).as_py() or 0
                count -= table.num_rows
            return size

        yield Subject(work)


@contextlib.contextmanager
def _moldau_async_poll(bootstrap: str) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        consumer = _make_async(bootstrap)

        async def work(count: int) -> int:
            consumer.seek_to_beginning()
            size = 0
            while count > 0:
                records = await consumer.poll(_POLL_SECONDS, _AT_ONCE)
                for record in records:
                    size += len(record.value or b"")
                count -= len(records)
            return size

        try:
            yield Subject(lambda count: runner.run(work(count)))
        finally:
            runner.run(consumer.close())


@contextlib.contextmanager
def _moldau_async_iterate(bootstrap: str) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        consumer = _make_async(bootstrap)

        async def work(count: int) -> int:
            consumer.seek_to_beginning()
            size = 0
            async for record in consumer:
                size += len(record.value or b"")
                count -= 1
                if not count:
                    break
            return size

        try:
            yield Subject(lambda count: runner.run(work(count)))
        finally:
            runner.run(consumer.close())


def _make_async(bootstrap: str) -> moldau.AsyncConsumer:
    consumer = moldau.AsyncConsumer(
        bootstrap, auto_offset_reset="earliest", fetch_max_wait_ms=_WAIT_MS
    )
    consumer.assign(_partitions())
    return consumer


# --- theirs -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _confluent(bootstrap: str) -> Iterator[Subject]:
    from confluent_kafka import Consumer, TopicPartition

    quiet = logging.getLogger("bench.clients_consume")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": _WAIT_MS,
        },
        logger=quiet,
    )

    def work(count: int) -> int:
        consumer.assign([TopicPartition(_TOPIC, index, 0) for index in range(_PARTITIONS)])
        size = 0
        while count > 0:
            messages = consumer.consume(min(count, _AT_ONCE), _POLL_SECONDS)
            for message in messages:
                if message.error() is None:
                    size += len(message.value() or b"")
                    count -= 1
        consumer.unassign()
        return size

    try:
        yield Subject(work)
    finally:
        consumer.close()


@contextlib.contextmanager
def _aiokafka(bootstrap: str) -> Iterator[Subject]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    with asyncio.Runner() as runner:

        async def start() -> AIOKafkaConsumer:
            made = AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=_WAIT_MS)
            await made.start()
            made.assign([TopicPartition(_TOPIC, index) for index in range(_PARTITIONS)])
            return made

        consumer = runner.run(start())

        async def work(count: int) -> int:
            for partition in consumer.assignment():
                consumer.seek(partition, 0)
            size = 0
            while count > 0:
                batches = await consumer.getmany(timeout_ms=10_000, max_records=_AT_ONCE)
                for records in batches.values():
                    for record in records:
                        size += len(record.value)
                    count -= len(records)
            return size

        try:
            yield Subject(lambda count: runner.run(work(count)), _SLOW_SHARE)
        finally:
            runner.run(consumer.stop())


@contextlib.contextmanager
def _kafka_python(bootstrap: str) -> Iterator[Subject]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=_WAIT_MS)
    partitions = [TopicPartition(_TOPIC, index) for index in range(_PARTITIONS)]
    consumer.assign(partitions)

    def work(count: int) -> int:
        for partition in partitions:
            consumer.seek(partition, 0)
        size = 0
        while count > 0:
            batches = consumer.poll(10_000, max_records=_AT_ONCE)
            for records in batches.values():
                for record in records:
                    size += len(record.value)
                count -= len(records)
        return size

    try:
        yield Subject(work, _SLOW_SHARE)
    finally:
        consumer.close(autocommit=False)


_SUBJECTS: dict[str, Callable[[str], contextlib.AbstractContextManager[Subject]]] = {
    _CONFLUENT: _confluent,
    _AIOKAFKA: _aiokafka,
    _KAFKA_PYTHON: _kafka_python,
    _POLL: _moldau_poll,
    _ITERATE: _moldau_iterate,
    _POLL_ARROW: _moldau_poll_arrow,
    _ASYNC_POLL: _moldau_async_poll,
    _ASYNC_ITERATE: _moldau_async_iterate,
}
