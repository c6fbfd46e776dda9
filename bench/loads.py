"""What is done to a system: each load is opened on a running system and then sampled many times.

A load is a context manager that gives a function; every call of it is one sample, the figures of
which stand in the order that the load declares beside it. Time bounds a sample, and bytes do, so
that no disk has to keep up. CPU is that of all processes of the system, coordination included.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench.drive import Driven, Stream, drive, drive_at_rate
from bench.follow import follow
from bench.processes import temporary_folder
from bench.systems import Running, System, wait_until
from bench.wires import KafkaWire, RefusedError, Request, Wire

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

KIB = 1 << 10
MIB = 1 << 20
_BYTES_AT_MOST = 256 * MIB
_PRODUCE_IN_FLIGHT = 5
_FETCH_IN_FLIGHT = 2
_CLIENT_PARTITIONS = 4
_FLUSH_SECONDS = 60.0
_SETTLE_SECONDS = 5.0
_names = (f"bench-{number}" for number in itertools.count(1))
_quiet = logging.getLogger("bench.loads")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


class Figure(NamedTuple):
    """What a number is, and whether more of it is better."""

    name: str
    more_is_better: bool = False


MB_PER_SECOND = Figure("MB/s", True)
CPU_PER_GB = Figure("CPU s/GB")
REQUESTS_PER_SECOND = Figure("requests/s", True)
CPU_PER_REQUEST = Figure("CPU µs/request")
THROUGHPUT = (MB_PER_SECOND, CPU_PER_GB)
RATE = (REQUESTS_PER_SECOND, CPU_PER_REQUEST)
LATENCY = (Figure("p50 ms"), Figure("p99 ms"), Figure("p99.9 ms"), Figure("CPU µs/record"))
START = (Figure("s to the first acknowledged record"), Figure("MB idle"))
RESTART = (Figure("s to the first acknowledged record"),)
IDLE = (Figure("cores idle"), Figure("MB idle"))
FAILOVER = (Figure("s until acknowledged again"),)

Sample = Callable[[], Sequence[float]]
"""One measurement: its figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a load is opened."""

    system: System
    wire: Wire
    find_running: Callable[[], Running]
    """The one that stands for many rows. Loads that kill start their own."""
    seconds: float
    """Of one sample."""

    @property
    def running(self) -> Running:
        return self.find_running()

    @contextmanager
    def topic(self, partitions: int = 1) -> Iterator[str]:
        """A new one, deleted with the block."""
        name = next(_names)
        self.wire.create_topic(self.running, name, partitions)
        try:
            yield name
        finally:
            with contextlib.suppress(Exception):  # a broken system has failed its row already
                self.wire.delete_topic(self.running, name)


Load = Callable[[Site], AbstractContextManager[Sample]]


def _measure(running: Running, work: Callable[[], Driven]) -> tuple[Driven, float]:
    """And the CPU seconds of the system."""
    before = running.cpu_seconds()
    driven = work()
    return driven, running.cpu_seconds() - before


def _throughput(driven: Driven, cpu: float) -> Sequence[float]:
    return driven.payload_bytes / driven.seconds / 1e6, cpu / driven.payload_bytes * 1e9


def _rate(driven: Driven, cpu: float) -> Sequence[float]:
    return driven.requests / driven.seconds, cpu / driven.requests * 1e6


# --- closed loops -----------------------------------------------------------------------------


@contextmanager
def append(
    site: Site,
    *,
    record_bytes: int = 100,
    batch_bytes: int = 1,
    acks: int = 1,
    connections: int = 1,
    in_flight: int = _PRODUCE_IN_FLIGHT,
    partitions: int = 1,
    others: int = 0,
    counts_bytes: bool = True,
) -> Iterator[Sample]:
    """Append batches; `others` are partitions that are there and that nobody writes to."""
    with ExitStack() as stack:
        if others:
            stack.enter_context(site.topic(others))
            time.sleep(_SETTLE_SECONDS)  # checkpoints are written, sessions come to rest
        topic = stack.enter_context(site.topic(partitions))
        wire, running = site.wire, site.running
        requests = [
            wire.append(topic, record_bytes, batch_bytes, acks=acks, partition=number)
            for number in range(partitions)
        ]
        leader = wire.leader(running, topic)
        streams = [
            stack.enter_context(closing(Stream(wire, leader, requests, in_flight)))
            for _ in range(connections)
        ]
        yield lambda: (_throughput if counts_bytes else _rate)(
            *_measure(
                running, lambda: drive(streams, seconds=site.seconds, payload_bytes=_BYTES_AT_MOST)
            )
        )


@contextmanager
def read(
    site: Site,
    *,
    record_bytes: int = KIB,
    batch_bytes: int = 16 * KIB,
    answer_bytes: int = 128 * KIB,
    connections: int = 1,
) -> Iterator[Sample]:
    """Read what is in the page cache from the beginning, over and over."""
    with site.topic() as topic:
        wire, running = site.wire, site.running
        wire.fill(running, topic, record_bytes, batch_bytes, 64 * MIB)
        leader = wire.leader(running, topic)

        def lap() -> Driven:
            with ExitStack() as stack:
                streams = [
                    Stream(wire, leader, requests, _FETCH_IN_FLIGHT, once=True)
                    for requests in [
                        wire.reads(running, topic, record_bytes, batch_bytes, answer_bytes)
                        for _ in range(connections)
                    ]
                ]
                for stream in streams:
                    stack.enter_context(closing(stream))
                return drive(streams, seconds=600.0)

        def sample() -> Sequence[float]:
            before, cpu_before = time.perf_counter(), running.cpu_seconds()
            laps = [lap()]
            while time.perf_counter() - before < site.seconds:
                laps.append(lap())
            cpu = running.cpu_seconds() - cpu_before
            seconds = sum(one.seconds for one in laps)  # making the requests does not count
            size = sum(one.payload_bytes for one in laps)
            return _throughput(Driven(0, 0, size, seconds), cpu)

        yield sample


@contextmanager
def fetch_at_end(site: Site, *, connections: int = 1, in_flight: int = 1) -> Iterator[Sample]:
    """Fetches of an empty partition that do not wait: the price of asking."""
    wire = _require_kafka(site)
    with site.topic() as topic, ExitStack() as stack:
        leader, request = wire.leader(site.running, topic), wire.read(topic, 0, MIB)
        streams = [
            stack.enter_context(closing(Stream(wire, leader, [request], in_flight)))
            for _ in range(connections)
        ]
        yield lambda: _rate(*_measure(site.running, lambda: drive(streams, seconds=site.seconds)))


@contextmanager
def spread(
    site: Site,
    *,
    connections: int,
    partitions: int,
    record_bytes: int = 100,
    batch_bytes: int = 1,
    in_flight: int = 1,
    fetches: bool = False,
) -> Iterator[Sample]:
    """Connections that have a partition each, at the broker that leads it, in turns."""
    wire = _require_kafka(site)
    with site.topic(partitions) as topic, ExitStack() as stack:
        running = site.running
        places = [
            (
                wire.leader(running, topic, number),
                _spread_request(wire, topic, number, fetches, record_bytes, batch_bytes),
            )
            for number in range(partitions)
        ]
        streams = []
        for number in range(connections):
            leader, request = places[number % partitions]
            streams.append(stack.enter_context(closing(Stream(wire, leader, [request], in_flight))))
        figures = _rate if batch_bytes == 1 else _throughput
        yield lambda: figures(
            *_measure(
                running, lambda: drive(streams, seconds=site.seconds, payload_bytes=_BYTES_AT_MOST)
            )
        )


def _spread_request(
    wire: KafkaWire,
    topic: str,
    partition: int,
    fetches: bool,
    record_bytes: int,
    batch_bytes: int,
) -> Request:
    if fetches:
        return wire.read(topic, 0, MIB, partition=partition)
    return wire.append(topic, record_bytes, batch_bytes, partition=partition)


def _require_kafka(site: Site) -> KafkaWire:
    if not isinstance(site.wire, KafkaWire):
        raise NotImplementedError
    return site.wire


# --- open loops -------------------------------------------------------------------------------


@contextmanager
def at_rate(
    site: Site, *, rate: float, record_bytes: int = 100, acks: int = 1, consumers: int = 0
) -> Iterator[Sample]:
    """Latency at a fixed rate: to the acknowledgement, or to the last of some consumers."""
    with site.topic() as topic, ExitStack() as stack:
        wire, running = site.wire, site.running
        request: Request = wire.append(topic, record_bytes, acks=acks)
        stream = Stream(wire, wire.leader(running, topic), [request], 1)
        stack.enter_context(closing(stream))
        followers = [
            stack.enter_context(closing(follow(wire, running, topic, record_bytes)))
            for _ in range(consumers)
        ]

        def sample() -> Sequence[float]:
            before = running.cpu_seconds()
            found = drive_at_rate(stream, rate, site.seconds, followers)
            cpu = running.cpu_seconds() - before
            shares = (found.percentile(share) for share in (0.5, 0.99, 0.999))
            return *shares, cpu / len(found.ordered) / max(1, consumers) * 1e6

        yield sample


# --- a real client ----------------------------------------------------------------------------


@contextmanager
def client_produce(
    site: Site,
    *,
    record_bytes: int = KIB,
    codec: str = "none",
    acks: int | str = 1,
    partitions: int = _CLIENT_PARTITIONS,
    others: int = 0,
) -> Iterator[Sample]:
    """confluent-kafka's producer; with acks=all it is idempotent."""
    _require_kafka(site)
    with ExitStack() as stack:
        if others:
            stack.enter_context(site.topic(others))
            time.sleep(_SETTLE_SECONDS)
        topic = stack.enter_context(site.topic(partitions))
        producer = _producer(site.running, codec, acks)
        value = _text(record_bytes)

        def send() -> Driven:
            before, count = time.perf_counter(), 0
            while time.perf_counter() - before < site.seconds and count * record_bytes < (
                _BYTES_AT_MOST
            ):
                for number in range(1000):
                    _send(producer, topic, value, number % partitions)
                count += 1000
            if producer.flush(_FLUSH_SECONDS):
                raise RefusedError("not everything was acknowledged")
            return Driven(count, count, count * record_bytes, time.perf_counter() - before)

        yield lambda: _throughput(*_measure(site.running, send))


@contextmanager
def client_consume(site: Site, *, record_bytes: int = KIB, codec: str = "none") -> Iterator[Sample]:
    """confluent-kafka's consumer, through what librdkafka's mock broker would keep too."""
    _require_kafka(site)
    count = 16 * MIB // record_bytes // 1000 * 1000
    with site.topic(_CLIENT_PARTITIONS) as topic:
        producer = _producer(site.running, codec, 1)
        for number in range(count):
            _send(producer, topic, _text(record_bytes), number % _CLIENT_PARTITIONS)
        if producer.flush(_FLUSH_SECONDS):
            raise RefusedError("not everything was acknowledged")
        consumer = _consumer(site.running)

        def consume() -> Driven:
            before, laps = time.perf_counter(), 0
            while not laps or time.perf_counter() - before < site.seconds:
                _consume_all(consumer, topic, count)
                laps += 1
            seconds = time.perf_counter() - before
            return Driven(laps, laps * count, laps * count * record_bytes, seconds)

        try:
            yield lambda: _throughput(*_measure(site.running, consume))
        finally:
            consumer.close()


def _text(size: int) -> bytes:
    """Lines as a log has them: codecs find something in them, but not everything."""
    lines = (
        f'{{"id": {number * 7919 % 100_003}, "at": {number}}}\n' for number in itertools.count()
    )
    text = ""
    while len(text) < size:
        text += next(lines)
    return text[:size].encode()


def _producer(running: Running, codec: str, acks: int | str) -> Producer:
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": running.bootstrap,
        "acks": acks,
        "enable.idempotence": acks == "all",
        "compression.type": codec,
        "linger.ms": 5,
        "queue.buffering.max.messages": 100_000,
    }
    return Producer(settings, logger=_quiet)


def _send(producer: Producer, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
            return
        except BufferError:
            producer.poll(0.01)


def _consumer(running: Running) -> Consumer:
    from confluent_kafka import Consumer

    settings = {
        "bootstrap.servers": running.bootstrap,
        "group.id": "bench",
        "enable.auto.commit": False,
        # A lap ends with a long poll at the end of the log, and the next one waits for it.
        "fetch.wait.max.ms": 5,
    }
    return Consumer(settings, logger=_quiet)


def _consume_all(consumer: Consumer, topic: str, count: int) -> None:
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(topic, number, 0) for number in range(_CLIENT_PARTITIONS)])
    while count > 0:
        messages = consumer.consume(min(count, 10_000), timeout=30.0)
        if not messages:
            raise StalledReadError(f"{count} records did not arrive")
        count -= sum(message.error() is None for message in messages)
    consumer.unassign()


class StalledReadError(RuntimeError):
    """A consumer got nothing."""


# --- life and death ---------------------------------------------------------------------------


@contextmanager
def start(site: Site) -> Iterator[Sample]:
    """A first start with an empty folder. What is made before the process runs does not count."""

    def sample() -> Sequence[float]:
        with temporary_folder() as folder, closing(_open(site.system, folder)) as running:
            before = time.perf_counter()
            _launch_all(running)
            idle = running.resident_bytes()
            site.wire.create_topic(running, "first")
            _append_one(site.wire, running, "first")
            return time.perf_counter() - before, idle / 1e6

    yield sample


@contextmanager
def restart(site: Site, *, log_bytes: int = 256 * MIB) -> Iterator[Sample]:
    """After kill -9 in the middle of appends, with so much in the log."""
    with temporary_folder() as folder, closing(_open(site.system, folder)) as running:
        _launch_all(running)
        site.wire.create_topic(running, "kept")
        site.wire.fill(running, "kept", KIB, 128 * KIB, log_bytes)

        def sample() -> Sequence[float]:
            request = site.wire.append("kept", KIB, 16 * KIB)
            with closing(Stream(site.wire, running.first, [request], 32)) as stream:
                stream.begin()
                running.kill(1)
            before = time.perf_counter()
            _launch_all(running)
            _append_one(site.wire, running, "kept")
            return (time.perf_counter() - before,)

        yield sample


@contextmanager
def idle(site: Site, *, partitions: int = 1) -> Iterator[Sample]:
    """What a system uses while nobody asks it anything."""
    with site.topic(partitions):
        time.sleep(_SETTLE_SECONDS)

        def sample() -> Sequence[float]:
            running = site.running
            before, cpu = time.perf_counter(), running.cpu_seconds()
            time.sleep(max(2.0, site.seconds))
            used = (running.cpu_seconds() - cpu) / (time.perf_counter() - before)
            return used, running.resident_bytes() / 1e6

        yield sample


@contextmanager
def failover(site: Site) -> Iterator[Sample]:
    """kill -9 of the leader, with every system's own defaults, to a record with acks=all."""
    with temporary_folder() as folder, closing(_open(site.system, folder)) as running:
        _launch_all(running)
        site.wire.create_topic(running, "led")

        def sample() -> Sequence[float]:
            leader = site.wire.leader(running, "led")
            dead = next(node for node, one in running.nodes.items() if one is leader)
            before = time.perf_counter()
            running.kill(dead)
            _append_one(site.wire, running, "led", acks=-1)
            seconds = time.perf_counter() - before
            running.launch(dead).wait_until_ready()
            wait_until(lambda: _is_whole(running, "led"), "all replicas are in sync")
            return (seconds,)

        yield sample


def _open(system: System, folder: Path) -> Running:
    running = system.run(system, folder)
    running.open()
    return running


def _launch_all(running: Running) -> None:
    for node in range(1, running.system.nodes + 1):
        if node not in running.nodes:
            running.launch(node)
    for process in running.nodes.values():
        if not process.is_ready:
            process.wait_until_ready()


def _append_one(wire: Wire, running: Running, topic: str, acks: int = 1) -> None:
    """Until it is accepted: a server may listen before it leads."""

    def is_accepted() -> bool:
        try:
            stream = Stream(wire, wire.leader(running, topic), [wire.append(topic, 100, acks=acks)])
            with closing(stream):
                drive([stream], seconds=0.0, requests=1)
        except (RefusedError, ConnectionError, KeyError):
            return False
        return True

    wait_until(is_accepted, "a record is acknowledged")


def _is_whole(running: Running, topic: str) -> bool:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": running.bootstrap}, logger=_quiet)
    found = admin.list_topics(topic, timeout=10.0).topics[topic].partitions.values()
    return all(part.leader >= 0 and len(part.isrs) == running.system.nodes for part in found)
