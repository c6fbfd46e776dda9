"""Consumers that wait at the end of a log, one connection each, for every peer that has them."""

from __future__ import annotations

import json
import re
import struct

from bench.drive import Follower
from bench.processes import ServerProcess
from bench.systems import Running
from bench.wires import KafkaWire, NatsWire, RedisWire, Wire, connect

_LENGTH = struct.Struct(">i")
_WAIT_MS = 20_000
_MAX_BYTES = 1 << 20
_BUFFER_BYTES = 1 << 16


class _Waiting:
    """One connection, and what has arrived of an answer."""

    def __init__(self, server: ServerProcess) -> None:
        self._socket = connect(server)
        self._buffer = b""

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def _take(self) -> None:
        data = self._socket.recv(_BUFFER_BYTES)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data


class _KafkaFollower(_Waiting):
    """Long polls. Every batch in the topic has the same size, so records are counted by size."""

    def __init__(
        self, wire: KafkaWire, server: ServerProcess, topic: str, batch_bytes: int
    ) -> None:
        super().__init__(server)
        self._wire, self._topic, self._batch_bytes = wire, topic, batch_bytes
        self._offset = 0
        self._socket.sendall(wire.read(topic, 0, _MAX_BYTES).frame)
        while not self._is_whole():
            self._take()
        self._empty_bytes = len(self._buffer)
        self._buffer = b""
        self._ask()

    def _ask(self) -> None:
        frame = self._wire.read(self._topic, self._offset, _MAX_BYTES, wait_ms=_WAIT_MS).frame
        self._socket.sendall(frame)

    def _is_whole(self) -> bool:
        have = len(self._buffer)
        return have >= 4 and have >= 4 + int(_LENGTH.unpack_from(self._buffer)[0])

    def receive(self) -> int:
        self._take()
        if not self._is_whole():
            return 0
        count = (len(self._buffer) - self._empty_bytes) // self._batch_bytes
        self._buffer = b""
        self._offset += count
        self._ask()
        return count


class _RedisFollower(_Waiting):
    """Blocking reads behind the last entry."""

    def __init__(self, server: ServerProcess, topic: str, record_bytes: int) -> None:
        super().__init__(server)
        self._topic, self._record_bytes = topic, record_bytes
        self._mark = b"$1\r\nv\r\n$%d\r\n" % record_bytes
        self._ask("0-0")

    def _ask(self, behind: str) -> None:
        words = ("XREAD", "BLOCK", "0", "STREAMS", self._topic, behind)
        parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
        self._socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())

    def receive(self) -> int:
        self._take()
        head = re.match(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]+\r\n\*(\d+)\r\n", self._buffer)
        last = self._buffer.rfind(self._mark)
        whole = last + len(self._mark) + self._record_bytes + 2
        if head is None or last < 0 or len(self._buffer) < whole:
            return 0
        count = int(head[1])
        if self._buffer.count(self._mark) < count:
            return 0
        behind = re.findall(rb"\r\n(\d+-\d+)\r\n", self._buffer)[-1].decode()
        self._buffer = b""
        self._ask(behind)
        return count


class _NatsFollower(_Waiting):
    """A push consumer: nothing to ask for."""

    _MARK = b"$JS.ACK."

    def __init__(self, wire: NatsWire, server: ServerProcess, topic: str) -> None:
        super().__init__(server)
        address = wire.greet(self._socket)
        inbox = address(wire.inbox).decode()
        config = {"deliver_subject": inbox, "ack_policy": "none", "deliver_policy": "new"}
        asked = json.dumps({"stream_name": topic, "config": config}).encode()
        subject = f"$JS.API.CONSUMER.CREATE.{topic}"
        self._socket.sendall(address(wire.publish(subject, asked)))
        while not self._buffer.rstrip().endswith(b"}"):
            self._take()
        self._buffer = b""

    def receive(self) -> int:
        self._take()
        count = self._buffer.count(self._MARK)
        self._buffer = self._buffer[1 - len(self._MARK) :]
        return count


def follow(wire: Wire, running: Running, topic: str, record_bytes: int) -> Follower:
    server = wire.leader(running, topic)
    match wire:
        case KafkaWire():
            batch_bytes = wire.append(topic, record_bytes).payload_bytes
            return _KafkaFollower(wire, server, topic, batch_bytes)
        case RedisWire():
            return _RedisFollower(server, topic, record_bytes)
        case NatsWire():
            return _NatsFollower(wire, server, topic)
        case _:
            raise NotImplementedError
