"""What the peers' protocols have in common: to append records, to read them, to know it was done.

A request is bytes that were made before the clock starts, and a scan that finds whole answers in
what has arrived. So one generator (`bench.drive`) serves every protocol and any number of
connections. A wire that cannot do a thing raises `NotImplementedError`, and the row has no figure.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import ssl
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from bench.frames import Batch, Prepared, make_batch
from bench.frames import fetch as fetch_frame
from bench.frames import produce as produce_frame
from bench.processes import ServerProcess
from bench.systems import Running, wait_until

Scan = Callable[[bytearray, int], tuple[int, int]]
"""Of a buffer and how much of it is filled: how many answers are whole, and where they end."""

_LENGTH = struct.Struct(">i")
_ANSWER_SECONDS = 10.0
_QUIET = {"log_level": 0, "log.connection.close": False}


class RefusedError(RuntimeError):
    """A server answered with an error."""


class Request(NamedTuple):
    frame: bytes
    scan: Scan
    records: int
    payload_bytes: int


class Wire:
    """One protocol. Topics are streams where the peer calls them so."""

    def create_topic(
        self,
        running: Running,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """With as many replicas as the system wants."""
        raise NotImplementedError

    def delete_topic(self, running: Running, topic: str) -> None:
        raise NotImplementedError

    def leader(self, running: Running, topic: str, partition: int = 0) -> ServerProcess:
        return running.first

    def greet(self, connection: socket.socket) -> Callable[[bytes], bytes]:
        """Say what has to be said on a new connection; gives how frames look on this one."""
        return bytes

    def append(
        self,
        topic: str,
        record_bytes: int,
        batch_bytes: int = 1,
        *,
        acks: int = 1,
        partition: int = 0,
    ) -> Request:
        """Of a batch, where the protocol has any; else of one record."""
        raise NotImplementedError

    def reads(
        self, running: Running, topic: str, record_bytes: int, batch_bytes: int, answer_bytes: int
    ) -> Sequence[Request]:
        """In order through what was appended with `fill`."""
        raise NotImplementedError

    def fill(
        self, running: Running, topic: str, record_bytes: int, batch_bytes: int, total_bytes: int
    ) -> None:
        from bench.drive import Stream, drive

        request = self.append(topic, record_bytes, batch_bytes)
        count = max(1, total_bytes // request.payload_bytes)
        self.filled = count * request.records
        stream = Stream(self, self.leader(running, topic), [request], 64)
        with contextlib.closing(stream):
            drive([stream], seconds=600.0, requests=count)

    filled = 0
    """How many records the last `fill` wrote."""


def connect(server: ServerProcess) -> socket.socket:
    connection = socket.create_connection((server.host, server.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if server.authority is None:
        return connection
    context = ssl.create_default_context(cafile=str(server.authority))
    return context.wrap_socket(connection, server_hostname=server.host)


# --- Kafka ------------------------------------------------------------------------------------


class KafkaWire(Wire):
    def create_topic(
        self,
        running: Running,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        from confluent_kafka import KafkaException, TopicPartition
        from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec

        if running.system.name == "mock":
            return  # it makes topics itself, with four partitions
        admin = AdminClient({**running.client_settings, **_QUIET})

        def metadata() -> ClusterMetadata | None:
            try:
                return admin.list_topics(timeout=_ANSWER_SECONDS)
            except KafkaException:
                return None  # nobody answers yet

        def is_whole() -> bool:
            found = metadata()
            if found is None or topic not in found.topics:
                return False
            there = found.topics[topic].partitions.values()
            return len(there) == partitions and all(
                part.leader >= 0 and len(part.isrs) == running.system.copies for part in there
            )

        def is_served() -> bool:
            """Leaders are known before they know it themselves."""
            asked = {TopicPartition(topic, one): OffsetSpec.latest() for one in range(partitions)}
            try:
                for answer in admin.list_offsets(asked).values():
                    answer.result()
            except KafkaException:
                return False
            return True

        wait_until(
            lambda: len(getattr(metadata(), "brokers", ())) == running.system.nodes, "all brokers"
        )
        made = NewTopic(topic, partitions, running.system.copies, config=dict(configs or {}))
        admin.create_topics([made], request_timeout=60.0)[topic].result()
        wait_until(is_whole, f"{topic} is led and in sync")
        wait_until(is_served, f"the leaders of {topic} serve")

    def delete_topic(self, running: Running, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        if running.system.name != "mock":
            admin = AdminClient({**running.client_settings, **_QUIET})
            admin.delete_topics([topic], request_timeout=60.0)[topic].result()

    def leader(self, running: Running, topic: str, partition: int = 0) -> ServerProcess:
        from confluent_kafka.admin import AdminClient

        if len(running.nodes) == 1:
            return running.first
        admin = AdminClient({**running.client_settings, **_QUIET})
        found = admin.list_topics(topic, timeout=_ANSWER_SECONDS)
        return running.nodes[found.topics[topic].partitions[partition].leader]

    def append(
        self,
        topic: str,
        record_bytes: int,
        batch_bytes: int = 1,
        *,
        acks: int = 1,
        partition: int = 0,
    ) -> Request:
        batch = make_batch(batch_bytes, record_bytes)
        return self._request(
            produce_frame(topic, batch, partition=partition, acks=acks), batch.record_count
        )

    def reads(
        self, running: Running, topic: str, record_bytes: int, batch_bytes: int, answer_bytes: int
    ) -> Sequence[Request]:
        batch: Batch = make_batch(batch_bytes, record_bytes)
        at_once = max(1, answer_bytes // len(batch.data))
        return [
            self.read(
                topic, offset, answer_bytes, at_once * len(batch.data), at_once * batch.record_count
            )
            for offset in range(
                0, self.filled - at_once * batch.record_count + 1, at_once * batch.record_count
            )
        ]

    def read(
        self,
        topic: str,
        offset: int,
        max_bytes: int,
        payload_bytes: int = 0,
        records: int = 0,
        *,
        wait_ms: int = 0,
        partition: int = 0,
    ) -> Request:
        prepared = fetch_frame(
            topic,
            offset,
            max_bytes=max_bytes,
            max_wait_ms=wait_ms,
            partition=partition,
            payload_bytes=payload_bytes,
        )
        return self._request(prepared, records)

    def _request(self, prepared: Prepared, records: int) -> Request:
        error_at = prepared.error_at

        def scan(buffer: bytearray, filled: int) -> tuple[int, int]:
            answers = start = 0
            while filled - start >= 4:
                end = start + 4 + _LENGTH.unpack_from(buffer, start)[0]
                if end > filled:
                    break
                place = start + error_at
                if buffer[place] or buffer[place + 1]:
                    code = int.from_bytes(buffer[place : place + 2], "big", signed=True)
                    raise RefusedError(f"a request was answered with error {code}")
                answers += 1
                start = end
            return answers, start

        return Request(prepared.frame, scan, records, prepared.payload_bytes)


# --- Redis ------------------------------------------------------------------------------------


class RedisWire(Wire):
    """Entries with one field; those of `fill` have ids of one width, so answers have one size."""

    def create_topic(
        self,
        running: Running,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """A stream is made by its first entry."""

    def delete_topic(self, running: Running, topic: str) -> None:
        self._ask(running, "UNLINK", topic)

    def append(
        self,
        topic: str,
        record_bytes: int,
        batch_bytes: int = 1,
        *,
        acks: int = 1,
        partition: int = 0,
    ) -> Request:
        frame = _resp("XADD", topic, "*", "v", bytes(record_bytes))
        return Request(frame, _scan_redis_ids, 1, record_bytes)

    def fill(
        self, running: Running, topic: str, record_bytes: int, batch_bytes: int, total_bytes: int
    ) -> None:
        from bench.drive import Stream, drive

        self.filled = max(1, total_bytes // record_bytes)
        requests = [
            Request(
                _resp("XADD", topic, f"{_REDIS_FIRST_ID + number}-0", "v", bytes(record_bytes)),
                _scan_redis_ids,
                1,
                record_bytes,
            )
            for number in range(self.filled)
        ]
        with contextlib.closing(Stream(self, running.first, requests, 64)) as stream:
            drive([stream], seconds=600.0, requests=len(requests))

    def reads(
        self, running: Running, topic: str, record_bytes: int, batch_bytes: int, answer_bytes: int
    ) -> Sequence[Request]:
        at_once = max(1, answer_bytes // record_bytes)
        header = len(f"*{at_once}\r\n")
        entry = len(f"*2\r\n$15\r\n{_REDIS_FIRST_ID}-0\r\n*2\r\n$1\r\nv\r\n${record_bytes}\r\n\r\n")
        size = header + at_once * (entry + record_bytes)

        def scan(buffer: bytearray, filled: int) -> tuple[int, int]:
            if filled and buffer[0] != ord("*"):
                raise RefusedError(bytes(buffer[:100]).decode(errors="replace"))
            return filled // size, filled // size * size

        return [
            Request(
                _resp("XRANGE", topic, f"{_REDIS_FIRST_ID + number}", "+", "COUNT", str(at_once)),
                scan,
                at_once,
                at_once * record_bytes,
            )
            for number in range(0, self.filled - at_once + 1, at_once)
        ]

    def _ask(self, running: Running, *words: str | bytes) -> None:
        with contextlib.closing(connect(running.first)) as connection:
            connection.sendall(_resp(*words))
            connection.recv(4096)


_REDIS_FIRST_ID = 1_000_000_000_000


def _resp(*words: str | bytes) -> bytes:
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(one), one) for one in parts)


def _scan_redis_ids(buffer: bytearray, filled: int) -> tuple[int, int]:
    """Two lines for each entry: a length, and its id."""
    if filled and buffer[0] == ord("-"):
        raise RefusedError(bytes(buffer[:filled]).decode(errors="replace"))
    end = buffer.rfind(b"\r\n", 0, filled) + 2
    lines = buffer.count(b"\r\n", 0, filled)
    if lines % 2:
        end = buffer.rfind(b"\r\n", 0, end - 2) + 2 if lines > 1 else 0
    return lines // 2, end if lines > 1 else 0


# --- NATS -------------------------------------------------------------------------------------

_NATS_INBOX = b"_INBOX.bench%08d"
_NATS_NUMBERS = itertools.count(1)


class NatsWire(Wire):
    """A stream of one subject; reads pull through a consumer without acks."""

    inbox = _NATS_INBOX % 0
    """In frames, until a connection puts its own in place of it."""

    @staticmethod
    def publish(subject: str, payload: bytes) -> bytes:
        return publish_nats(subject, payload)

    def create_topic(
        self,
        running: Running,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        settings = {"name": topic, "subjects": [f"on.{topic}"], "storage": "file"}
        self._ask(running, f"$JS.API.STREAM.CREATE.{topic}", settings)

    def delete_topic(self, running: Running, topic: str) -> None:
        self._ask(running, f"$JS.API.STREAM.DELETE.{topic}", {})

    def greet(self, connection: socket.socket) -> Callable[[bytes], bytes]:
        """Answers go to an inbox, of which every connection has its own."""
        connection.recv(65536)  # INFO
        inbox = _NATS_INBOX % next(_NATS_NUMBERS)
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB ' + inbox + b" 1\r\n")
        return lambda frame: frame.replace(_NATS_INBOX % 0, inbox, 1)

    def append(
        self,
        topic: str,
        record_bytes: int,
        batch_bytes: int = 1,
        *,
        acks: int = 1,
        partition: int = 0,
    ) -> Request:
        frame = publish_nats(f"on.{topic}", bytes(record_bytes))
        return Request(frame, _scan_nats_acks, 1, record_bytes)

    def reads(
        self, running: Running, topic: str, record_bytes: int, batch_bytes: int, answer_bytes: int
    ) -> Sequence[Request]:
        """A consumer goes through a stream once, so every call makes another."""
        at_once = max(1, answer_bytes // record_bytes)
        name = f"reader{next(_NATS_NUMBERS)}"
        config = {"durable_name": name, "ack_policy": "none", "deliver_policy": "all"}
        asked = {"stream_name": topic, "config": config}
        self._ask(running, f"$JS.API.CONSUMER.DURABLE.CREATE.{topic}.{name}", asked)
        frame = publish_nats(
            f"$JS.API.CONSUMER.MSG.NEXT.{topic}.{name}",
            json.dumps({"batch": at_once, "expires": 5_000_000_000}).encode(),
        )
        arrived = 0

        def scan(buffer: bytearray, filled: int) -> tuple[int, int]:
            nonlocal arrived
            arrived += buffer.count(b"$JS.ACK.", 0, filled)
            answers, arrived = divmod(arrived, at_once)
            # What may be the beginning of the next one stays.
            kept = 7 if filled >= 7 else filled
            return answers, filled - kept

        request = Request(frame, scan, at_once, at_once * record_bytes)
        return [request] * (self.filled // at_once)

    def _ask(self, running: Running, subject: str, values: Mapping[str, object]) -> None:
        with contextlib.closing(connect(running.first)) as connection:
            address = self.greet(connection)
            connection.sendall(address(publish_nats(subject, json.dumps(values).encode())))
            connection.settimeout(_ANSWER_SECONDS)
            answer, deadline = b"", time.perf_counter() + _ANSWER_SECONDS
            while not answer.rstrip().endswith(b"}"):
                answer += connection.recv(65536)
                if time.perf_counter() > deadline:
                    raise RefusedError("no answer of NATS")
            if b'"error"' in answer:
                raise RefusedError(answer.decode(errors="replace"))


def publish_nats(subject: str, payload: bytes) -> bytes:
    return b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), _NATS_INBOX % 0, len(payload), payload)


def _scan_nats_acks(buffer: bytearray, filled: int) -> tuple[int, int]:
    end = buffer.rfind(b"\r\n", 0, filled) + 2
    if end < 2:
        return 0, 0
    if buffer.find(b'"error"', 0, end) >= 0 or buffer.find(b"-ERR", 0, end) >= 0:
        raise RefusedError(bytes(buffer[:end]).decode(errors="replace"))
    return buffer.count(b'"seq":', 0, end), end


# --- plain ------------------------------------------------------------------------------------


class PlainWire(Wire):
    """Bytes with a length in front."""

    def create_topic(
        self,
        running: Running,
        topic: str,
        partitions: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """There are none."""

    def delete_topic(self, running: Running, topic: str) -> None:
        """There are none."""

    def append(
        self,
        topic: str,
        record_bytes: int,
        batch_bytes: int = 1,
        *,
        acks: int = 1,
        partition: int = 0,
    ) -> Request:
        batch = make_batch(batch_bytes, record_bytes)
        frame = _LENGTH.pack(len(batch.data)) + batch.data
        return Request(frame, _scan_plain, batch.record_count, len(batch.data))


def _scan_plain(buffer: bytearray, filled: int) -> tuple[int, int]:
    return filled // 8, filled // 8 * 8


WIRES: dict[str, type[Wire]] = {
    "kafka": KafkaWire,
    "redis": RedisWire,
    "nats": NatsWire,
    "plain": PlainWire,
}
