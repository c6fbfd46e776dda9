"""Producers of four client libraries against one broker: records per second, and what they cost.

Each has the same work: values of one size, no key, one topic of four partitions, idempotent with
acks=all, batches of 128 KiB, 5 ms of lingering; a round ends when everything is confirmed. The
clients take turns in one process; the CPU time is that of the client, all its threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple

import moldau
from bench.measure import CPU_US_PER_REQUEST, REQUESTS_PER_SECOND, Measured, least, most, take_turns
from bench.processes import running_broker
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import Scale
from bench.throughput import record_name

_TOPIC = "producers"
_PARTITIONS = 4
_BATCH_BYTES = 128 * 1024
_LINGER_MS = 5
_BUFFER_BYTES = 64 << 20
_AT_ONCE = 1_000
"""Records in one call of `send_many` or `send_arrow`."""
_FLUSH_SECONDS = 60.0
_SLOW_SHARE = 4
"""The slower clients send a part of the records only: it is costs for each one that count."""

_CONFLUENT = "confluent-kafka produce"
_AIOKAFKA = "aiokafka send"
_KAFKA_PYTHON = "kafka-python send"
_SEND = "moldau send"
_SEND_MANY = "moldau send_many"
_SEND_ARROW = "moldau send_arrow"
_ASYNC_SEND = "moldau async send"
_ASYNC_SEND_MANY = "moldau async send_many"

Work = Callable[[bytes, int], None]
"""Sends so many records of one value and returns when all are confirmed."""


class Subject(NamedTuple):
    """One way to produce."""

    work: Work
    share: int = 1


def run(scale: Scale) -> Outcome:
    table = Table(
        title="Producers side by side, one client, 4 partitions, no compression",
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
        found = _measure_all(scale, record_bytes)
        _fill(table, goals, record_bytes, found)
    return Outcome(tables=[table], goals=goals)


class Figures(NamedTuple):
    """The best of a subject's rounds."""

    records_per_second: float
    cpu_us_per_record: float


def _measure_all(scale: Scale, record_bytes: int) -> dict[str, Figures]:
    count = max(scale.client_bytes // max(record_bytes, 400), _AT_ONCE)
    value = bytes(record_bytes)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(running_broker())
        with RawClient(broker) as client:
            client.create_topic(_TOPIC, partitions=_PARTITIONS)
        subjects: dict[str, Subject] = {}
        for name, make in _SUBJECTS.items():
            with contextlib.suppress(ImportError):  # that client is not installed
                subjects[name] = stack.enter_context(make(broker.bootstrap))
        rounds = take_turns(
            scale.rounds,
            {
                name: _round_of(subject, value, max(count // subject.share, _AT_ONCE))
                for name, subject in subjects.items()
            },
        )
    return {
        name: Figures(most(found, REQUESTS_PER_SECOND), least(found, CPU_US_PER_REQUEST))
        for name, found in rounds.items()
    }


def _round_of(subject: Subject, value: bytes, count: int) -> Callable[[], Measured]:
    def run_round() -> Measured:
        cpu_before, before = time.process_time(), time.perf_counter()
        subject.work(value, count)
        seconds, cpu = time.perf_counter() - before, time.process_time() - cpu_before
        return Measured(seconds, cpu, count, count * len(value))

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
    for name in (_AIOKAFKA, _KAFKA_PYTHON):
        if name in found:
            ratio = found[name].cpu_us_per_record / found[_SEND_MANY].cpu_us_per_record
            goals.append(
                Goal(
                    figure=f"records per CPU second, send_many against {name}, {size}",
                    to_reach=3.0,
                    measured=ratio,
                    at_most=False,
                )
            )
    if reference:
        goals.append(
            Goal(
                figure=f"CPU for each record, send against {_CONFLUENT}, {size}",
                to_reach=1.5,
                measured=found[_SEND].cpu_us_per_record / reference.cpu_us_per_record,
            )
        )


# --- ours -------------------------------------------------------------------------------------

_OPTIONS: dict[str, object] = {
    "batch_size": _BATCH_BYTES,
    "linger_ms": _LINGER_MS,
    "buffer_memory": _BUFFER_BYTES,
}


@contextlib.contextmanager
def _moldau_send(bootstrap: str) -> Iterator[Subject]:
    with moldau.Producer(bootstrap, **_OPTIONS) as producer:

        def work(value: bytes, count: int) -> None:
            send = producer.send
            for _ in range(count):
                send(_TOPIC, value)
            producer.flush(_FLUSH_SECONDS)

        yield Subject(work)


@contextlib.contextmanager
def _moldau_send_many(bootstrap: str) -> Iterator[Subject]:
    with moldau.Producer(bootstrap, **_OPTIONS) as producer:

        def work(value: bytes, count: int) -> None:
            values = [value] * _AT_ONCE
            for _ in range(count // _AT_ONCE):
                producer.send_many(_TOPIC, values)
            producer.flush(_FLUSH_SECONDS)

        yield Subject(work)


@contextlib.contextmanager
def _moldau_send_arrow(bootstrap: str) -> Iterator[Subject]:
    import pyarrow as pa

    with moldau.Producer(bootstrap, **_OPTIONS) as producer:

        def work(value: bytes, count: int) -> None:
            table = pa.table({"value": [value] * _AT_ONCE})
            for _ in range(count // _AT_ONCE):
                producer.send_arrow(_TOPIC, table)
            producer.flush(_FLUSH_SECONDS)

        yield Subject(work)


@contextlib.contextmanager
def _moldau_async_send(bootstrap: str) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        producer = moldau.AsyncProducer(bootstrap, **_OPTIONS)

        async def work(value: bytes, count: int) -> None:
            send = producer.send
            for _ in range(count):
                await send(_TOPIC, value)
            await producer.flush(_FLUSH_SECONDS)

        try:
            yield Subject(lambda value, count: runner.run(work(value, count)))
        finally:
            runner.run(producer.close())


@contextlib.contextmanager
def _moldau_async_send_many(bootstrap: str) -> Iterator[Subject]:
    with asyncio.Runner() as runner:
        producer = moldau.AsyncProducer(bootstrap, **_OPTIONS)

        async def work(value: bytes, count: int) -> None:
            values = [value] * _AT_ONCE
            for _ in range(count // _AT_ONCE):
                await producer.send_many(_TOPIC, values)
            await producer.flush(_FLUSH_SECONDS)

        try:
            yield Subject(lambda value, count: runner.run(work(value, count)))
        finally:
            runner.run(producer.close())


# --- theirs -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _confluent(bootstrap: str) -> Iterator[Subject]:
    from confluent_kafka import Producer

    quiet = logging.getLogger("bench.clients_produce")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "batch.size": _BATCH_BYTES,
            "linger.ms": _LINGER_MS,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": _BUFFER_BYTES // 1024,
        },
        logger=quiet,
    )

    def work(value: bytes, count: int) -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce(_TOPIC, value)
                    break
                except BufferError:
                    producer.poll(0.01)
        if producer.flush(_FLUSH_SECONDS):
            raise RuntimeError("not everything was confirmed")

    yield Subject(work)


@contextlib.contextmanager
def _aiokafka(bootstrap: str) -> Iterator[Subject]:
    from aiokafka import AIOKafkaProducer

    with asyncio.Runner() as runner:

        async def begin() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap,
                enable_idempotence=True,
                max_batch_size=_BATCH_BYTES,
                linger_ms=_LINGER_MS,
            )
            await producer.start()
            return producer

        producer = runner.run(begin())

        async def work(value: bytes, count: int) -> None:
            sent: Awaitable[object] | None = None
            for _ in range(count):
                sent = await producer.send(_TOPIC, value)
            await producer.flush()
            if sent is not None:
                await sent

        try:
            yield Subject(lambda value, count: runner.run(work(value, count)), _SLOW_SHARE)
        finally:
            runner.run(producer.stop())


@contextlib.contextmanager
def _kafka_python(bootstrap: str) -> Iterator[Subject]:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        enable_idempotence=True,
        batch_size=_BATCH_BYTES,
        linger_ms=_LINGER_MS,
    )

    def work(value: bytes, count: int) -> None:
        for _ in range(count):
            producer.send(_TOPIC, value)
        producer.flush(_FLUSH_SECONDS)

    with contextlib.closing(producer):
        yield Subject(work, _SLOW_SHARE)


_SUBJECTS: dict[str, Callable[[str], contextlib.AbstractContextManager[Subject]]] = {
    _SEND: _moldau_send,
    _SEND_MANY: _moldau_send_many,
    _SEND_ARROW: _moldau_send_arrow,
    _ASYNC_SEND: _moldau_async_send,
    _ASYNC_SEND_MANY: _moldau_async_send_many,
    _CONFLUENT: _confluent,
    _AIOKAFKA: _aiokafka,
    _KAFKA_PYTHON: _kafka_python,
}
