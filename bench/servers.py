"""The least that a server in Python can do, as a process of its own: what the broker is held to.

    python -m bench.servers echo               sends each frame back
    python -m bench.servers sink               reads frames, acknowledges each
    python -m bench.servers store FILE         reads frames, writes each behind the last
    python -m bench.servers sendfile FILE      answers each frame with a range of a file
    python -m bench.servers mock               librdkafka's mock broker

The first four: blocking sockets, one connection at a time, no protocol but a length in front. The
mock broker comes with confluent-kafka and is written in C; it keeps the last five megabytes of each
partition, checks nothing, and writes nothing to a disk.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable

_LENGTH = struct.Struct(">i")
_ACKNOWLEDGEMENT = struct.pack(">ii", 4, 0)
_BUFFER_BYTES = 4 << 20
_MSG_MORE = getattr(socket, "MSG_MORE", 0)

RANGE_REQUEST = struct.Struct(">iqi")
"""A frame that asks for a range: its own length, position, how many bytes."""


def echo(connection: socket.socket) -> None:
    """Finds each frame and answers it; the answers to all that came at once leave at once."""
    buffer = bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    filled = 0
    while count := connection.recv_into(view[filled:]):
        filled += count
        position = 0
        answers = []
        while filled - position >= 4:
            end = position + 4 + _LENGTH.unpack_from(buffer, position)[0]
            if end > filled:
                break
            answers.append(view[position:end])
            position = end
        connection.sendmsg(answers)
        buffer[: filled - position] = buffer[position:filled]
        filled -= position


def sink(connection: socket.socket) -> None:
    _read_frames(connection, lambda frame: None)


def store(connection: socket.socket, path: str) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    position = 0

    def write(frame: memoryview) -> None:
        nonlocal position
        position += os.pwrite(descriptor, frame, position)

    try:
        _read_frames(connection, write)
    finally:
        os.close(descriptor)


def sendfile(connection: socket.socket, path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    buffer = bytearray(RANGE_REQUEST.size)
    while connection.recv_into(buffer, 0, socket.MSG_WAITALL):
        _, position, length = RANGE_REQUEST.unpack_from(buffer)
        connection.sendall(struct.pack(">ii", 4 + length, 0), _MSG_MORE)
        while length:
            sent = os.sendfile(connection.fileno(), descriptor, position, length)
            position += sent
            length -= sent
    os.close(descriptor)


def _read_frames(connection: socket.socket, on_frame: Callable[[memoryview], None]) -> None:
    buffer = bytearray(_BUFFER_BYTES)
    view = memoryview(buffer)
    while connection.recv_into(view[:4], 0, socket.MSG_WAITALL):
        (size,) = _LENGTH.unpack_from(buffer)
        at = 4
        while at < 4 + size:
            at += connection.recv_into(view[at : 4 + size])
        on_frame(view[4 : 4 + size])
        connection.sendall(_ACKNOWLEDGEMENT)


_MODES: dict[str, Callable[..., None]] = {
    "echo": echo,
    "sink": sink,
    "store": store,
    "sendfile": sendfile,
}


def serve_mock() -> None:
    from confluent_kafka import Producer

    quiet = logging.getLogger("bench.servers")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    holder = Producer({"test.mock.num.brokers": 1}, logger=quiet)
    broker = next(iter(holder.list_topics(timeout=10).brokers.values()))
    print(f"listening on {broker.host}:{broker.port}", flush=True)
    signal.pause()


def main() -> None:
    if sys.argv[1] == "mock":
        serve_mock()
        return
    serve, arguments = _MODES[sys.argv[1]], sys.argv[2:]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"listening on 127.0.0.1:{listening.getsockname()[1]}", flush=True)
        while True:
            connection, _ = listening.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                serve(connection, *arguments)


if __name__ == "__main__":
    main()
