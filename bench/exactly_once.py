"""What transactions cost: throughput beside the same records without them, and how long a record
takes to a reader of committed records when a transaction is committed every 100 ms.

Plain producers wait for all acknowledgements after as many records as a transaction has, so that
both have as many round trips of data. Turn by turn in one run: the ratios are what counts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple
from uuid import uuid4

from bench.measure import percentile, take_turns
from bench.processes import ServerProcess, running_broker
from bench.raw_client import RawClient
from bench.report import Outcome, Table
from bench.scale import KIB, Scale

_PARTITIONS = 4
_SIZES = (100, 10_000)
_SECONDS = 30.0
_INTERVAL_SECONDS = 0.1
_RECORDS_PER_SECOND = 200

Writer = Callable[[int], None]
"""Writes so many records, and returns when they count."""


class Written(NamedTuple):
    """One round."""

    seconds: float
    broker_seconds: float  # CPU
    client_seconds: float
    records: int
    transactions: int


def run(scale: Scale) -> Outcome:
    rates = Table(
        title=f"Transactions beside plain records of 1 KiB, {_PARTITIONS} partitions",
        columns=(
            "client",
            "records each",
            "written",
            "records/s",
            "of plain",
            "broker µs/record",
            "of plain",
            "broker µs/transaction",
            "client µs/record",
        ),
        note="Plain: as many records, then a wait for all acknowledgements. µs are of CPU.",
    )
    with running_broker() as broker:
        for name, open_writer in (("confluent-kafka", _confluent), ("moldau", _moldau)):
            for size in _SIZES:
                _compare(rates, broker, name, partial(open_writer, broker), size, scale)
        latencies = _measure_latencies(broker, scale)
    return Outcome(tables=[rates, latencies])


def _compare(
    table: Table,
    broker: ServerProcess,
    client: str,
    open_writer: Callable[[str, bool], contextlib.AbstractContextManager[Writer]],
    size: int,
    scale: Scale,
) -> None:
    count = max(scale.client_bytes // (KIB * size), 1)
    topic = uuid4().hex
    with RawClient(broker) as raw:
        raw.create_topic(topic, partitions=_PARTITIONS)
    with open_writer(topic, False) as plain, open_writer(topic, True) as in_transactions:
        found = take_turns(
            scale.rounds,
            {
                "plain": partial(_write, broker, plain, size, count),
                "in transactions": partial(_write, broker, in_transactions, size, count),
            },
        )
    best = {name: min(rounds, key=lambda one: one.seconds) for name, rounds in found.items()}
    cost = {
        name: min(one.broker_seconds / one.records for one in rounds)
        for name, rounds in found.items()
    }
    for name, one in best.items():
        rate = one.records / one.seconds
        of_plain = rate / (best["plain"].records / best["plain"].seconds)
        table.add(
            client,
            size,
            name,
            rate,
            of_plain,
            cost[name] * 1e6,
            cost[name] / cost["plain"],
            None if name == "plain" else cost[name] * size * 1e6,
            one.client_seconds / one.records * 1e6,
        )


def _write(broker: ServerProcess, write: Writer, size: int, count: int) -> Written:
    cpu, own, begun = broker.cpu_seconds(), time.process_time(), time.perf_counter()
    for _ in range(count):
        write(size)
    return Written(
        time.perf_counter() - begun,
        broker.cpu_seconds() - cpu,
        time.process_time() - own,
        size * count,
        count,
    )


@contextlib.contextmanager
def _confluent(broker: ServerProcess, topic: str, in_transactions: bool) -> Iterator[Writer]:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0}
    if in_transactions:
        settings["transactional.id"] = f"bench-{topic}"
    producer = Producer(settings)
    if in_transactions:
        producer.init_transactions(_SECONDS)
    value = bytes(KIB)

    def write(count: int) -> None:
        if in_transactions:
            producer.begin_transaction()
        for number in range(count):
            producer.produce(topic, value, partition=number % _PARTITIONS)
            if number % 1000 == 0:
                producer.poll(0)
        if in_transactions:
            producer.commit_transaction(_SECONDS)
        else:
            producer.flush(_SECONDS)

    yield write


@contextlib.contextmanager
def _moldau(broker: ServerProcess, topic: str, in_transactions: bool) -> Iterator[Writer]:
    from moldau.client.blocking import Producer

    name = f"bench-moldau-{topic}" if in_transactions else None
    with Producer(broker.bootstrap, transactional_id=name, linger_ms=5) as producer:
        value = bytes(KIB)

        def write(count: int) -> None:
            if not in_transactions:
                producer.send_many(topic, [value] * count).result()
                return
            with producer.transaction():
                producer.send_many(topic, [value] * count)

        yield write


# --- latency ------------------------------------------------------------------------------------


def _measure_latencies(broker: ServerProcess, scale: Scale) -> Table:
    count = max(scale.latencies // 5, 50)
    table = Table(
        title=f"From send to a reader, ms: {_RECORDS_PER_SECOND} records/s, a transaction is "
        f"committed every {_INTERVAL_SECONDS * 1000:.0f} ms",
        columns=("reader", "p50 ms", "p99 ms", "at most"),
    )
    for isolation in ("read_uncommitted", "read_committed"):
        ordered = sorted(_follow(broker, isolation, count))
        table.add(isolation, percentile(ordered, 0.5), percentile(ordered, 0.99), ordered[-1])
    return table


def _follow(broker: ServerProcess, isolation: str, count: int) -> list[float]:
    """How long each of so many records was under way, in milliseconds."""
    from moldau.client.blocking import Consumer

    topic = uuid4().hex
    with RawClient(broker) as raw:
        raw.create_topic(topic, partitions=1)
    found: list[float] = []
    with Consumer(
        broker.bootstrap, topics=topic, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        consumer.poll(0.1)
        writer = threading.Thread(target=_write_steadily, args=(broker, topic, count))
        writer.start()
        while len(found) < count:
            records = consumer.poll(_SECONDS)
            now = time.perf_counter()
            found += [(now - float(record.value or b"0")) * 1000 for record in records]
        writer.join()
    return found


def _write_steadily(broker: ServerProcess, topic: str, count: int) -> None:
    from moldau.client.blocking import Producer

    each = int(_RECORDS_PER_SECOND * _INTERVAL_SECONDS)
    with Producer(broker.bootstrap, transactional_id=f"bench-{topic}", linger_ms=0) as producer:
        begun = time.perf_counter()
        for first in range(0, count, each):
            with producer.transaction():
                for number in range(first, min(first + each, count)):
                    pause = begun + number / _RECORDS_PER_SECOND - time.perf_counter()
                    time.sleep(max(pause, 0.0))
                    producer.send(topic, b"%r" % time.perf_counter())
