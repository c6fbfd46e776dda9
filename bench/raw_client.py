"""A client that costs as little as Python allows: one blocking socket, prepared requests.

It keeps a number of requests in flight, counts the answers by their size and looks at every error
code, and does nothing else, so that the broker and not the client is measured.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

from bench.frames import Prepared, create_topic
from moldau.wire.messages import parse_response

_NO_CONFIGS: Mapping[str, str] = MappingProxyType({})
_LENGTH = struct.Struct(">i")
_BUFFER_BYTES = 4 << 20  # more than the largest answer
_COALESCED_BYTES = 1 << 16
"""Small requests in flight leave together, as those of a pipelining client do."""


class Address(Protocol):
    """Where a server listens."""

    host: str
    port: int


class RawClient:
    """One connection to one server."""

    def __init__(self, server: Address) -> None:
        self._socket = socket.create_connection((server.host, server.port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(_BUFFER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    # One at a time

    def send(self, frame: bytes | bytearray) -> None:
        self._socket.sendall(frame)

    def receive(self) -> memoryview:
        """One answer with its length; good until the next one."""
        self._receive_into(memoryview(self._buffer)[:4])
        end = 4 + int(_LENGTH.unpack_from(self._buffer)[0])
        if end > len(self._buffer):
            raise RuntimeError(f"an answer of {end} bytes")
        answer = memoryview(self._buffer)[:end]
        self._receive_into(answer[4:])
        return answer

    def exchange(self, prepared: Prepared) -> memoryview:
        self.send(prepared.frame)
        answer = self.receive()
        _require_success(answer, prepared)
        return answer

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        configs: Mapping[str, str] = _NO_CONFIGS,
        *,
        replication_factor: int = 1,
    ) -> str:
        frame, api_key, version = create_topic(name, partitions, configs, replication_factor)
        self.send(frame)
        _, response = parse_response(api_key, version, self.receive()[4:])
        topic = response.topics[0]  # type: ignore[attr-defined]
        if topic.error_code:
            raise RuntimeError(f"cannot create {name}: {topic.error_code} {topic.error_message}")
        return name

    def _receive_into(self, view: memoryview) -> None:
        while view:
            count = self._socket.recv_into(view)
            if not count:
                raise ConnectionError("the server closed the connection")
            view = view[count:]

    # Many in flight

    def repeat(self, prepared: Prepared, count: int, in_flight: int) -> None:
        """Send one request many times over; its answers are small and all of one size."""
        self.cycle([prepared], count, in_flight)

    def cycle(self, prepared: Sequence[Prepared], count: int, in_flight: int) -> None:
        """As `repeat`, with several requests in turns, whose answers look alike."""
        size = len(self.exchange(prepared[0]))
        error_at = prepared[0].error_at
        take = _feeder(prepared, in_flight)
        buffer = bytearray(size * in_flight)
        view = memoryview(buffer)
        sent, answered, filled = 1, 1, 0
        while answered < count:
            room = min(count, answered + in_flight) - sent
            while room > 0:
                taken, data = take(room)
                self._socket.sendall(data)
                sent += taken
                room -= taken
            received = self._socket.recv_into(view[filled:])
            if not received:
                raise ConnectionError("the server closed the connection")
            filled += received
            whole = filled // size
            end = whole * size
            if any(buffer[error_at:end:size]) or any(buffer[error_at + 1 : end : size]):
                raise RuntimeError("a request was answered with an error")
            answered += whole
            if filled > end:
                buffer[: filled - end] = buffer[end:filled]
            filled -= end

    def pull(self, prepared: Sequence[Prepared], in_flight: int) -> None:
        """Send requests whose answers are large, and read every byte of these."""
        ahead = min(in_flight, len(prepared))
        for one in prepared[:ahead]:
            self.send(one.frame)
        for number, one in enumerate(prepared):
            answer = self.receive()
            _require_success(answer, one)
            if len(answer) < one.payload_bytes:
                raise RuntimeError(f"{len(answer)} bytes where {one.payload_bytes} were asked for")
            if number + ahead < len(prepared):
                self.send(prepared[number + ahead].frame)


def _feeder(
    prepared: Sequence[Prepared], in_flight: int
) -> Callable[[int], tuple[int, memoryview | bytes]]:
    """Gives out the next requests, at most so many at a time: how many, and their bytes."""
    if len(prepared) > 1:
        place = 0

        def take_next(room: int) -> tuple[int, bytes]:
            nonlocal place
            some = prepared[place : place + room]
            place = (place + len(some)) % len(prepared)
            return len(some), b"".join(one.frame for one in some)

        return take_next
    frame = prepared[0].frame
    at_once = max(1, min(in_flight, _COALESCED_BYTES // len(frame)))
    block = memoryview(frame * at_once)

    def take_same(room: int) -> tuple[int, memoryview]:
        taken = min(room, at_once)
        return taken, block[: taken * len(frame)]

    return take_same


def _require_success(answer: memoryview, prepared: Prepared) -> None:
    code = int.from_bytes(answer[prepared.error_at : prepared.error_at + 2], "big", signed=True)
    if code:
        raise RuntimeError(f"the request was answered with error {code}")
