"""Latency of a small record on an idle broker: until it is acknowledged, until it is consumed.

One request at a time. Held against a plain server that echoes a frame of the same size: what it
shows beyond a median is the machine's own unrest.
"""

from __future__ import annotations

import gc
import struct
import time
from collections.abc import Callable

from bench.frames import Prepared, fetch, make_batch, produce
from bench.measure import percentile
from bench.processes import running_broker, serving_module
from bench.raw_client import RawClient
from bench.report import Goal, Outcome, Table
from bench.scale import Scale

GOAL_P99_MS = 0.5
_RECORD_BYTES = 100
_PAUSE_S = 0.001
_LONG_POLL_MS = 10_000
_FETCH_MAX_BYTES = 1 << 20


def run(scale: Scale) -> Outcome:
    table = Table(
        title="Latency in milliseconds, one record of 100 B, idle broker",
        columns=("what", "samples", "p50", "p99", "p99.9", "worst"),
        note="rested: a millisecond of silence before each. Echo is a plain server in Python.",
    )
    with (
        running_broker() as broker,
        serving_module("bench.plain_server", "echo") as plain,
        RawClient(broker) as producer,
        RawClient(broker) as consumer,
        RawClient(plain) as echo,
    ):
        topic = producer.create_topic("produced")
        prepared = produce(topic, make_batch(1, _RECORD_BYTES))
        echoed = Prepared(struct.pack(">i", len(prepared.frame)) + prepared.frame, 0, 0)
        rested = scale.latencies // 2
        p99_ms = _add(table, "produce to ack", scale.latencies, lambda: _time(producer, prepared))
        _add(table, "echo", scale.latencies, lambda: _time_echo(echo, echoed))
        _add(table, "produce to ack, rested", rested, lambda: _time(producer, prepared), _PAUSE_S)
        _add(table, "echo, rested", rested, lambda: _time_echo(echo, echoed), _PAUSE_S)
        follow = _Follower(producer, consumer, topic)
        _add(table, "produce to consume, long poll", rested, follow.time_one)
    goal = Goal(figure="produce latency, idle, p99 in ms", to_reach=GOAL_P99_MS, measured=p99_ms)
    return Outcome(tables=[table], goals=[goal])


def _add(
    table: Table, name: str, samples: int, time_one: Callable[[], float], pause_s: float = 0.0
) -> float:
    """Measure and add a row; returns the 99th percentile in milliseconds."""
    for _ in range(samples // 10):
        time_one()
    times = []
    gc.disable()  # the client's own pauses are not the broker's
    try:
        for _ in range(samples):
            if pause_s:
                time.sleep(pause_s)
            times.append(time_one() * 1000)
    finally:
        gc.enable()
    times.sort()
    p99 = percentile(times, 0.99)
    table.add(name, samples, percentile(times, 0.5), p99, percentile(times, 0.999), times[-1])
    return p99


def _time(client: RawClient, prepared: Prepared) -> float:
    before = time.perf_counter()
    client.exchange(prepared)
    return time.perf_counter() - before


def _time_echo(client: RawClient, prepared: Prepared) -> float:
    before = time.perf_counter()
    client.send(prepared.frame)
    client.receive()
    return time.perf_counter() - before


class _Follower:
    """A consumer that waits at the end of the log while a record is produced."""

    def __init__(self, producer: RawClient, consumer: RawClient, topic: str) -> None:
        self._producer = producer
        self._consumer = consumer
        self._topic = topic
        self._prepared = produce(topic, make_batch(1, _RECORD_BYTES))
        answer = producer.exchange(self._prepared)
        base_offset_at = self._prepared.error_at + 2
        self._next_offset = 1 + int.from_bytes(answer[base_offset_at : base_offset_at + 8], "big")

    def time_one(self) -> float:
        poll = fetch(
            self._topic,
            self._next_offset,
            max_bytes=_FETCH_MAX_BYTES,
            max_wait_ms=_LONG_POLL_MS,
        )
        self._consumer.send(poll.frame)
        time.sleep(_PAUSE_S)  # until it waits
        before = time.perf_counter()
        self._producer.send(self._prepared.frame)
        answer = self._consumer.receive()
        after = time.perf_counter()
        if len(answer) < _RECORD_BYTES:
            raise RuntimeError("the long poll ended without the record")
        self._producer.receive()
        self._next_offset += 1
        return after - before
