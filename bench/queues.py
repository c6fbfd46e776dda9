"""Queues: a share group beside a consumer group, and beside a consumer group of Redis Streams.

One taker deals with a topic that is full: records per second, and what each costs the server and
the taker. Then records come one at a time to a taker that waits: from before it is sent until the
taker has it. The takers are Moldau's own client for all brokers, and for Redis a socket that does
what its client would. All of it in one run, and the ratios with it.
"""

from __future__ import annotations

import socket
import statistics
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.report import Outcome, Table
from bench.scale import Scale
from bench.systems import SYSTEMS, Running
from moldau.client.admin.values import ConfigResource, NewTopic
from moldau.client.blocking import Admin, Consumer, Producer
from moldau.client.queue.queue import Queue
from moldau.config.alterations import ConfigChange
from moldau.wire.apis import NO_VERSION, SHARE_FETCH

_RECORD_BYTES = 100
_AT_ONCE = 500
_WAIT_SECONDS = 60.0
_BROKERS = ("moldau", "kafka-256m")


class _Figures(NamedTuple):
    records_per_second: float
    server_seconds: float  # CPU, for all records
    taker_seconds: float
    latencies_ms: list[float]


def run(scale: Scale) -> Outcome:
    count = max(scale.client_bytes // (8 * _RECORD_BYTES), 1000)
    singles = min(scale.latencies // 10, 300)
    table = Table(
        title=f"Queues: {count:,} records of {_RECORD_BYTES} bytes, one taker",
        columns=(
            "system",
            "taken by",
            "records/s",
            "of the first",
            "server µs/record",
            "taker µs/record",
            "p50 ms",
            "p99 ms",
        ),
    )
    left_out: list[str] = []
    for name in (*_BROKERS, "redis"):
        obstacle = SYSTEMS[name].find_obstacle()
        if obstacle is None and name == "moldau" and SHARE_FETCH.served == NO_VERSION:
            obstacle = "does not serve share groups"
        if obstacle is not None:
            left_out.append(f"{name}: {obstacle}")
            continue
        with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            running = SYSTEMS[name].start(Path(folder))
            try:
                _measure(table, running, count, singles)
            finally:
                running.close()
    table.note = "; ".join(
        ["of the first: against the consumer group of the system in the first row", *left_out]
    )
    return Outcome(tables=[table])


def _measure(table: Table, running: Running, count: int, singles: int) -> None:
    takers: dict[str, Callable[[Running, int, int], _Figures]]
    if running.system.protocol == "redis":
        takers = {"consumer group, 500 at once": _redis_at_once, "one by one": _redis_singly}
    else:
        takers = {
            "consumer group": _consume,
            "share group, 500 at once": _take_batches,
            "share group, one by one": _take_singly,
        }
    for taken_by, take in takers.items():
        found = take(running, count, singles)
        ordered = sorted(found.latencies_ms)
        first = table.rows[0][2] if table.rows else found.records_per_second
        assert isinstance(first, float)
        table.add(
            running.system.title,
            taken_by,
            found.records_per_second,
            found.records_per_second / first,
            found.server_seconds / count * 1e6,
            found.taker_seconds / count * 1e6,
            statistics.median(ordered),
            ordered[int(len(ordered) * 0.99)],
        )


# --- Kafka's protocol ---------------------------------------------------------------------------


def _fill(running: Running, topic: str, count: int) -> None:
    with Admin(running.bootstrap) as admin:
        for error in admin.create_topics([NewTopic(name=topic, partitions=1)]).values():
            if isinstance(error, Exception):
                raise error
    with Producer(running.bootstrap, linger_ms=5) as producer:
        producer.send_many(topic, [bytes(_RECORD_BYTES)] * count)


def _consume(running: Running, count: int, singles: int) -> _Figures:
    topic = uuid.uuid4().hex
    _fill(running, topic, count)
    with (
        Consumer(
            running.bootstrap, group=topic, topics=topic, auto_offset_reset="earliest"
        ) as consumer,
        Producer(running.bootstrap) as producer,
    ):

        def take_all() -> None:
            left = count - len(first)
            while left:
                left -= len(consumer.poll(_WAIT_SECONDS))
            consumer.commit()

        first = consumer.poll(_WAIT_SECONDS, 1)
        seconds, server, taker = _timed(running, take_all)
        latencies = [
            _time_one(
                lambda: producer.send(topic, b"x").result(),
                lambda: consumer.poll(_WAIT_SECONDS),
            )
            for _ in range(singles)
        ]
    return _Figures(count / seconds, server, taker, latencies)


def _take_batches(running: Running, count: int, singles: int) -> _Figures:
    def take(queue: Queue, left: int) -> int:
        with queue.next_batch(min(left, _AT_ONCE), _WAIT_SECONDS) as jobs:
            return len(jobs)

    return _take(running, count, singles, take)


def _take_singly(running: Running, count: int, singles: int) -> _Figures:
    def take(queue: Queue, left: int) -> int:
        with queue.next(_WAIT_SECONDS):
            return 1

    return _take(running, count, singles, take)


def _take(
    running: Running, count: int, singles: int, take: Callable[[Queue, int], int]
) -> _Figures:
    topic = uuid.uuid4().hex
    _fill(running, topic, count)
    change = ConfigChange(name="share.auto.offset.reset", value="earliest")
    with Admin(running.bootstrap) as admin:
        admin.alter_configs({ConfigResource.group(topic): [change]})
    with (
        Queue(running.bootstrap, group=topic, topic=topic) as queue,
        Producer(running.bootstrap) as producer,
    ):

        def take_all() -> None:
            left = count - 1
            while left:
                left -= take(queue, left)

        take(queue, 1)  # the group is there
        seconds, server, taker = _timed(running, take_all)
        latencies = [
            _time_one(lambda: producer.send(topic, b"x").result(), lambda: take(queue, 1))
            for _ in range(singles)
        ]
    return _Figures(count / seconds, server, taker, latencies)


def _timed(running: Running, work: Callable[[], None]) -> tuple[float, float, float]:
    """Seconds, and CPU seconds of the server and of this process."""
    server, taker, begun = running.cpu_seconds(), time.process_time(), time.perf_counter()
    work()
    return (
        time.perf_counter() - begun,
        running.cpu_seconds() - server,
        time.process_time() - taker,
    )


def _time_one(send: Callable[[], object], take: Callable[[], object]) -> float:
    begun = time.perf_counter()
    send()
    take()
    return (time.perf_counter() - begun) * 1000


# --- Redis --------------------------------------------------------------------------------------


class _Redis:
    """Commands out, replies in; one after the other."""

    def __init__(self, running: Running) -> None:
        self._socket = socket.create_connection((running.first.host, running.first.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._socket.makefile("rb")

    def ask(self, *commands: tuple[object, ...]) -> list[object]:
        self._socket.sendall(b"".join(map(_encode, commands)))
        return [self._read() for _ in commands]

    def _read(self) -> object:
        line = self._replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self._replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if rest == b"-1" else [self._read() for _ in range(int(rest))]
        return rest


def _encode(command: tuple[object, ...]) -> bytes:
    words = [one if isinstance(one, bytes) else str(one).encode() for one in command]
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


def _redis_at_once(running: Running, count: int, singles: int) -> _Figures:
    return _take_from_redis(running, count, singles, _AT_ONCE)


def _redis_singly(running: Running, count: int, singles: int) -> _Figures:
    return _take_from_redis(running, count, singles, 1)


def _take_from_redis(running: Running, count: int, singles: int, at_once: int) -> _Figures:
    stream = uuid.uuid4().hex
    taker, sender = _Redis(running), _Redis(running)
    value = bytes(_RECORD_BYTES)
    for first in range(0, count, 1000):
        sender.ask(*[("XADD", stream, "*", "v", value)] * min(1000, count - first))
    taker.ask(("XGROUP", "CREATE", stream, "g", "0"))

    def take(limit: int) -> int:
        read = ("XREADGROUP", "GROUP", "g", "me", "COUNT", limit, "BLOCK", 60_000)
        ((found,),) = taker.ask((*read, "STREAMS", stream, ">"))  # type: ignore[misc]
        ids = [entry[0] for entry in found[1]]
        taker.ask(("XACK", stream, "g", *ids))
        return len(ids)

    def take_all() -> None:
        left = count
        while left:
            left -= take(at_once)

    seconds, server, client = _timed(running, take_all)
    latencies = [
        _time_one(lambda: sender.ask(("XADD", stream, "*", "v", value)), lambda: take(1))
        for _ in range(singles)
    ]
    return _Figures(count / seconds, server, client, latencies)
