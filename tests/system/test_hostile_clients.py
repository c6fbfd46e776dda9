"""Clients that are broken, slow or malicious, while a good one works on and notices nothing.

One broker and one good client for the module: each test does its worst, then the good client must
still make progress, and at the end every record must be where it was promised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import resource
import socket
import struct
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from moldau.records.record_batch import build_batch
from support import confluent_client
from support.broker_process import BrokerProcess, running_broker
from support.load import Load, assert_log_is_what_was_sent
from support.requests import full_request, minimal_request
from support.rows import Row
from support.topics import Topics, fresh_name
from support.waiting import eventually
from support.wire_client import ClosedByBroker, WireClient, frame_of, request_frame

FETCH = 1
METADATA = 3
API_VERSIONS = 18
CREATE_TOPICS = 19
DELETE_TOPICS = 20
DESCRIBE_CONFIGS = 32
MEBIBYTE = 1 << 20

CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(256)) * 2


class Scene(NamedTuple):
    """The broker, and the good client that works on it."""

    broker: BrokerProcess
    load: Load
    topics: Topics

    def connect(self) -> WireClient:
        return WireClient(self.broker.port)

    def assert_undisturbed(self) -> None:
        """The good client goes on, and a new one is welcome."""
        self.load.wait_for_more(100)
        with self.connect() as client:
            client.ask(minimal_request(API_VERSIONS, 0))


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    with running_broker() as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(2, {"compression.type": "producer"})
        with Load(broker.bootstrap, topic, 2, most_in_flight=20) as load:
            yield Scene(broker, load, topics)
            load.finish()
        assert_log_is_what_was_sent(broker.bootstrap, topic, load)


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 pytest shows it with a failure
    return random.Random(seed)


def until_the_end(client: WireClient) -> None:
    """Send nothing more, and read until the broker ends the connection, as it must."""
    with contextlib.suppress(OSError):  # the broker was faster
        client.socket.shutdown(socket.SHUT_WR)
    with contextlib.suppress(ConnectionError):
        while client.socket.recv(1 << 16):
            pass


# Bytes that are no request


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", 0),
        struct.pack(">i", -1),
        struct.pack(">i", -(1 << 31)),
        struct.pack(">i", (1 << 31) - 1) + b"x" * 1000,
        struct.pack(">i", 100 * MEBIBYTE + 1) + b"x" * 1000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/8\r\n\r\n",
        CLIENT_HELLO,
        b"SSH-2.0-OpenSSH_9.2\r\n",
        frame_of(b"\x00"),
        frame_of(bytes.fromhex("0012 0000 00000001")),  # a header without its client id
        frame_of(bytes.fromhex("0012 0000 00000001 7fff") + b"short"),  # a client id that is cut
        frame_of(bytes.fromhex("0012 0000 00000001 fffe")),  # a client id of -2 bytes
        frame_of(bytes.fromhex("0012 0000 00000001 0002 c328")),  # a client id that is no UTF-8
        frame_of(bytes.fromhex("0003 000c 00000001 ffff ffffffffff")),  # endless tagged fields
    ],
    ids=[
        "empty frame",
        "length of -1",
        "lowest length",
        "highest length",
        "one byte over socket.request.max.bytes",
        "HTTP",
        "TLS",
        "SSH",
        "one byte",
        "no client id",
        "cut client id",
        "negative client id",
        "client id in another encoding",
        "endless tags",
    ],
)
def test_what_is_no_request_ends_its_connection_only(scene: Scene, data: bytes) -> None:
    with scene.connect() as client:
        client.send(data)
        assert client.is_closed_by_broker()
    scene.assert_undisturbed()


def test_random_bytes(scene: Scene, chance: random.Random) -> None:
    for _ in range(200):
        with scene.connect() as client:
            with contextlib.suppress(ConnectionError):
                client.send(chance.randbytes(chance.choice((1, 3, 10, 100, 5_000))))
            until_the_end(client)
    scene.assert_undisturbed()


def test_random_bytes_in_frames_of_the_right_length(scene: Scene, chance: random.Random) -> None:
    for _ in range(200):
        with scene.connect() as client:
            with contextlib.suppress(ConnectionError):
                client.send(frame_of(chance.randbytes(chance.randrange(8, 200))))
            until_the_end(client)
    scene.assert_undisturbed()


def test_unknown_apis_and_versions_end_the_connection(scene: Scene) -> None:
    with scene.connect() as client:
        served = client.served_versions()
    strange = [(key, 0) for key in (-32768, -1, 4, 5, 6, 7, 500, 32767) if key not in served]
    for key, (_, last) in served.items():
        if key != API_VERSIONS:  # which answers any version
            strange += [(key, last + 1), (key, 32767), (key, -1)]
    for key, version in strange:
        with scene.connect() as client:
            client.send(frame_of(struct.pack(">hhih", key, version, 1, -1) + bytes(20)))
            assert client.is_closed_by_broker(), f"API {key} v{version}"
    scene.assert_undisturbed()


# Requests that are wrong inside


def test_mutated_bodies_of_every_api_and_version(scene: Scene, chance: random.Random) -> None:
    with scene.connect() as client:
        served = client.served_versions()
    victims = Victims(scene.topics)
    for key, (first, last) in served.items():
        for version in range(max(first, 3 if key == 0 else 0), last + 1):
            for body in victims.requests(key, version):
                for mutated in mutations(body, chance):
                    with scene.connect() as client:
                        with contextlib.suppress(ConnectionError):
                            client.send(frame_of(mutated))
                        until_the_end(client)
    scene.assert_undisturbed()


class Victims:
    """Valid requests about topics that exist, or did until a request deleted them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._renew()

    def _renew(self) -> None:
        self._name = self._topics.create(prefix="victim")
        self._id = self._topics.id_of(self._name)

    def requests(self, key: int, version: int) -> Iterator[bytes]:
        if key == DELETE_TOPICS:
            self._renew()
        values = {
            "name": fresh_name("victim") if key == CREATE_TOPICS else self._name,
            "topic": self._name,
            "topic_names": self._name,
            "topic_id": self._id,
            "resource_name": self._name,
            "resource_type": 2,
            "AlterableConfig.name": "retention.ms",
            "value": "1000",
            "OpData.value": 1000.0,  # of a quota
            "acks": -1,
            "records": bytes(build_batch([(1_700_000_000_000, b"key", b"value", ())])),
            "max_wait": timedelta(milliseconds=1),
            "partition_max_bytes": 1000,
            "client_software_name": "hostile",
            "client_software_version": "1.0",
        }
        yield request_frame(full_request(key, version, values))[4:]
        yield request_frame(minimal_request(key, version))[4:]


def mutations(frame: bytes, chance: random.Random) -> Iterator[bytes]:
    """Cut, lengthened, and with a few bytes changed; the API and the version stay."""
    yield frame[: chance.randrange(8, len(frame) + 1)]
    yield frame + chance.randbytes(chance.randrange(1, 50))
    for extreme in (0x00, 0x01, 0x7F, 0x80, 0xFF):
        changed = bytearray(frame)
        changed[chance.randrange(8, len(frame))] = extreme
        yield bytes(changed)
    changed = bytearray(frame)
    for _ in range(4):
        changed[chance.randrange(8, len(frame))] = chance.randrange(256)
    yield bytes(changed)


@pytest.mark.parametrize("count", [0x7FFFFFFF, 100_000_000, -2])
def test_an_array_that_claims_to_be_huge(scene: Scene, count: int) -> None:
    """Metadata version 1, as a list of topics that is not there."""
    memory = scene.broker.memory_bytes()
    with scene.connect() as client:
        client.send(frame_of(struct.pack(">hhihi", METADATA, 1, 1, -1, count)))
        assert client.is_closed_by_broker()
    assert scene.broker.memory_bytes() < memory + 50 * MEBIBYTE
    scene.assert_undisturbed()


# Connections that take their time


def test_a_request_that_comes_byte_by_byte_is_answered(scene: Scene) -> None:
    with scene.connect() as client:
        for byte in request_frame(minimal_request(METADATA, 9), 77):
            client.send(bytes((byte,)))
        client.receive_response(type(minimal_request(METADATA, 9)), 77)
    scene.assert_undisturbed()


def test_frames_that_are_announced_and_never_come_take_no_memory(scene: Scene) -> None:
    """A third of a megabyte of a hundred; the first bytes look like a produce request."""
    memory, reserved = scene.broker.memory_bytes(), scene.broker.reserved_memory_bytes()
    start = struct.pack(">ihh", 100 * MEBIBYTE, 0, 9) + b"x" * 300_000
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            client = stack.enter_context(scene.connect())
            client.send(start)
        scene.assert_undisturbed()
        assert scene.broker.memory_bytes() < memory + 200 * MEBIBYTE
        assert scene.broker.reserved_memory_bytes() < reserved + 1_000 * MEBIBYTE


def test_thousands_of_connections(scene: Scene) -> None:
    wanted = 2_000
    if not allow_open_files(wanted + 500):
        wanted = 500
    before = scene.broker.open_descriptors()
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(scene.connect()) for _ in range(wanted)]
        for client in clients:
            client.send_request(minimal_request(API_VERSIONS, 0))
        for client in clients:
            client.receive_frame()
        scene.assert_undisturbed()
    eventually(
        lambda: scene.broker.open_descriptors() < before + 50,
        "the broker lets go of connections that were closed",
    )
    scene.assert_undisturbed()


def allow_open_files(count: int) -> bool:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        return False
    if soft != resource.RLIM_INFINITY and soft < count:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    return True


# Clients that do not read


@pytest.fixture(scope="module")
def big_topic(scene: Scene) -> str:
    """Some 24 MB in one partition."""
    topic = scene.topics.create()
    rows = [Row(None, b"%d" % number * 100_000) for number in range(100, 180)]
    confluent_client.produce(scene.broker.bootstrap, topic, rows)
    return topic


def fetch_all(topic: str, **values: Any) -> Any:
    return full_request(
        FETCH,
        12,
        {
            "topic": topic,
            "max_wait": timedelta(),
            "min_bytes": 1,
            "max_bytes": 50 * MEBIBYTE,
            "partition_max_bytes": 50 * MEBIBYTE,
            **values,
        },
    )


def test_clients_that_never_read_their_answers(scene: Scene, big_topic: str) -> None:
    memory = scene.broker.memory_bytes()
    wordy = {"resource_type": 4, "resource_name": "1", "include_documentation": True}
    request = full_request(DESCRIBE_CONFIGS, 4, wordy)
    every_key = dataclasses.replace(request.resources[0], configuration_keys=None)
    flood = request_frame(dataclasses.replace(request, resources=(every_key,))) * 3_000
    greed = request_frame(fetch_all(big_topic)) * 100
    with contextlib.ExitStack() as stack:
        for data in (*[flood] * 3, *[greed] * 20):
            client = stack.enter_context(WireClient(scene.broker.port, receive_buffer_bytes=4096))
            client.socket.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.socket.send(data)
        scene.assert_undisturbed()
        assert scene.broker.memory_bytes() < memory + 100 * MEBIBYTE
    scene.assert_undisturbed()


def test_a_client_that_reads_late_gets_everything(scene: Scene, big_topic: str) -> None:
    with scene.connect() as client:
        for _ in range(4):
            client.send_request(fetch_all(big_topic))
        scene.assert_undisturbed()
        sizes = {len(client.receive_frame()) for _ in range(4)}
    assert len(sizes) == 1
    assert sizes.pop() > 20 * MEBIBYTE


def test_disconnects_in_the_middle_of_an_answer(scene: Scene, big_topic: str) -> None:
    before = scene.broker.open_descriptors()
    for _ in range(50):
        with scene.connect() as client:
            client.send_request(fetch_all(big_topic))
            client.socket.recv(1000)
            reset_on_close(client.socket)
    eventually(
        lambda: scene.broker.open_descriptors() < before + 20,
        "connections that were reset are forgotten",
    )
    scene.assert_undisturbed()


def test_disconnects_in_the_middle_of_a_long_poll(scene: Scene) -> None:
    topic = scene.topics.create()
    before = scene.broker.open_descriptors()
    clients = [scene.connect() for _ in range(200)]
    for number, client in enumerate(clients):
        client.send_request(fetch_all(topic, max_wait=timedelta(minutes=10)))
        if number % 2:
            reset_on_close(client.socket)
    # The last one stays: the record that ends its wait must find its way past the dead ones.
    for client in clients[:-1]:
        client.close()
    eventually(
        lambda: scene.broker.open_descriptors() < before + 20,
        "long polls whose client is gone are forgotten",
    )
    confluent_client.produce(scene.broker.bootstrap, topic, [Row(None, b"hello")])
    with clients[-1] as client:
        answer = client.receive_response(type(fetch_all(topic)), 1)
    assert answer.responses[0].partitions[0].high_watermark == 1
    scene.assert_undisturbed()


def reset_on_close(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_answers_stop_where_the_connection_stops_making_sense(scene: Scene) -> None:
    """What came before the garbage is answered, what comes after it is not."""
    good = request_frame(minimal_request(API_VERSIONS, 0), 5)
    with scene.connect() as client:
        client.send(good + frame_of(b"garbage that is no request") + good)
        client.receive_response(type(minimal_request(API_VERSIONS, 0)), 5)
        with pytest.raises(ClosedByBroker):
            client.receive_frame()
    scene.assert_undisturbed()
