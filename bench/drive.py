"""The load generator: any number of connections, each with requests in flight, in one thread.

It sends prepared bytes, counts answers, looks at every error, and does nothing else, so that the
server is measured and not the client. Closed loop (`drive`): an answer makes room for a request.
Open loop (`drive_at_rate`): requests leave when the clock says so, whatever the answers do, and a
latency is counted from the moment that was planned; a server that stalls cannot hide it.
"""

from __future__ import annotations

import gc
import select
import selectors
import ssl
import time
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from bench.processes import ServerProcess
from bench.wires import Request, Wire, connect

_BUFFER_BYTES = 64 << 10
_COALESCED_BYTES = 64 << 10
_STALL_SECONDS = 60.0


class StalledError(RuntimeError):
    """No answer for a minute."""


class Driven(NamedTuple):
    requests: int
    records: int
    payload_bytes: int
    seconds: float


class Stream:
    """One connection with its requests, over and over, or once where they are given once."""

    def __init__(
        self,
        wire: Wire,
        server: ServerProcess,
        requests: Sequence[Request],
        in_flight: int = 1,
        *,
        once: bool = False,
    ) -> None:
        if not requests:
            raise ValueError("a stream without requests")
        self.socket = connect(server)
        self._tls = self.socket if isinstance(self.socket, ssl.SSLSocket) else None
        address = wire.greet(self.socket)
        self._frames = [address(one.frame) for one in requests]
        self.request = requests[0]
        self._in_flight = in_flight
        self._once = once
        self._scan = requests[0].scan
        self._next = 0
        self._buffer = bytearray(max(_BUFFER_BYTES, 2 * requests[0].payload_bytes + 4096))
        self._view = memoryview(self._buffer)
        self._filled = 0
        self.sent = self.answered = 0
        first = self._frames[0]
        self._at_once = max(1, min(in_flight, _COALESCED_BYTES // len(first)))
        self._block = memoryview(first * self._at_once) if len(requests) == 1 else None

    def close(self) -> None:
        self.socket.close()

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, count: int) -> None:
        if self._once:
            count = min(count, len(self._frames) - self.sent)
        if self._block is not None:
            size = len(self._block) // self._at_once
            for start in range(0, count, self._at_once):
                self.socket.sendall(self._block[: min(self._at_once, count - start) * size])
        else:
            for _ in range(count):
                self.socket.sendall(self._frames[self._next])
                self._next = (self._next + 1) % len(self._frames)
        self.sent += count

    def begin(self) -> None:
        self.send(self._in_flight)

    def receive(self) -> int:
        """Take what has arrived; how many answers are whole now."""
        answers = self._receive()
        while self._tls is not None and self._tls.pending():  # of which the selector does not know
            answers += self._receive()
        return answers

    def _receive(self) -> int:
        received = self.socket.recv_into(self._view[self._filled :])
        if not received:
            raise ConnectionError("the server closed the connection")
        self._filled += received
        answers, end = self._scan(self._buffer, self._filled)
        if end:
            self._buffer[: self._filled - end] = self._buffer[end : self._filled]
            self._filled -= end
        elif self._filled == len(self._buffer):
            self._grow()
        self.answered += answers
        return answers

    def _grow(self) -> None:
        self._view.release()
        self._buffer.extend(bytes(len(self._buffer)))
        self._view = memoryview(self._buffer)

    @property
    def is_over(self) -> bool:
        return self._once and self.answered >= len(self._frames)


def drive(
    streams: Sequence[Stream],
    *,
    seconds: float,
    requests: int | None = None,
    payload_bytes: int | None = None,
) -> Driven:
    """Until so many seconds are over, or so much was sent; every answer is waited for.

    Without a number of requests or bytes it is the time alone that ends it.
    """
    one = streams[0].request
    limit = requests
    if payload_bytes is not None and one.payload_bytes:
        limit = max(2 * len(streams), payload_bytes // one.payload_bytes)
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            selector.register(stream.socket, selectors.EVENT_READ, stream)
        before = time.perf_counter()
        sent_before = sum(stream.sent for stream in streams)
        answered_before = sum(stream.answered for stream in streams)
        for stream in streams:
            stream.begin()
        _exchange(selector, streams, before + seconds, limit, sent_before, answered_before)
        after = time.perf_counter()
    answered = sum(stream.answered for stream in streams) - answered_before
    return Driven(answered, answered * one.records, answered * one.payload_bytes, after - before)


def _exchange(
    selector: selectors.BaseSelector,
    streams: Sequence[Stream],
    deadline: float,
    limit: int | None,
    sent_before: int,
    answered_before: int,
) -> None:
    outstanding = sum(stream.sent for stream in streams) - sent_before
    left = None if limit is None else max(0, limit - outstanding)
    while outstanding > 0:
        ready = selector.select(_STALL_SECONDS)
        if not ready:
            raise StalledError(f"{outstanding} requests without an answer for a minute")
        is_over = time.perf_counter() > deadline
        for key, _ in ready:
            stream: Stream = key.data
            answers = stream.receive()
            outstanding -= answers
            if is_over or not answers:
                continue
            more = answers if left is None else min(answers, left)
            if more:
                before = stream.sent
                stream.send(more)
                sent = stream.sent - before
                outstanding += sent
                if left is not None:
                    left -= sent


class Latencies(NamedTuple):
    """In milliseconds, in order of size."""

    ordered: Sequence[float]
    seconds: float

    def percentile(self, share: float) -> float:
        return self.ordered[min(len(self.ordered) - 1, int(len(self.ordered) * share))]


class Follower(Protocol):
    """A consumer at the end of the log."""

    def fileno(self) -> int: ...

    def receive(self) -> int:
        """Take what has arrived, and ask for more; how many records it was."""
        ...

    def close(self) -> None: ...


def drive_at_rate(
    stream: Stream, rate: float, seconds: float, followers: Sequence[Follower] = ()
) -> Latencies:
    """Requests at a fixed rate. A latency ends with the answer, or when all followers have it."""
    total = max(1, int(rate * seconds))
    watched: list[Stream | Follower] = [stream, *followers]
    counts = dict.fromkeys(followers or [stream], 0)
    planned: deque[float] = deque()
    latencies: list[float] = []
    gc.disable()  # the client's own pauses are not the server's
    try:
        begin = time.perf_counter()
        sent = answered = 0
        while len(latencies) < total or answered < total:
            now, due = time.perf_counter(), begin + sent / rate
            if sent < total and now >= due:
                stream.send(1)
                planned.append(due)
                sent += 1
                continue
            wait = due - now if sent < total else _STALL_SECONDS
            ready, _, _ = select.select(watched, (), (), wait)
            if not ready and sent >= total:
                raise StalledError("a request without an answer for a minute")
            for one in ready:
                arrived = one.receive()
                answered += arrived if one is stream else 0
                if one in counts:
                    counts[one] += arrived
            arrived_at, whole = time.perf_counter(), min(counts.values())
            while planned and len(latencies) < whole:
                latencies.append((arrived_at - planned.popleft()) * 1000)
        return Latencies(sorted(latencies), time.perf_counter() - begin)
    finally:
        gc.enable()
