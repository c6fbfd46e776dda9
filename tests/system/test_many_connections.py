"""Five thousand connections of people who mean no good, while others work: the broker lives, its
memory is bounded, and good clients go on."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import moldau
from moldau.testing.free_ports import take_port
from moldau.testing.running_secured_broker import secured_settings, write_certificates
from support.broker_process import BrokerProcess, broker_process

MEBIBYTE = 1 << 20
MOST_GROWTH_BYTES = 150 * MEBIBYTE
"""Seventy were seen; without a bound they would be several hundred."""


def frame(api_key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(head)) + head


LOGIN_BEGUN = frame(17, 1, struct.pack(">h", 13) + b"SCRAM-SHA-512")


class Crowd:
    """Opens connections of every kind, and holds them."""

    def __init__(self, secured_port: int, plain_port: int, context: ssl.SSLContext) -> None:
        self._secured_port = secured_port
        self._plain_port = plain_port
        self._context = context
        self.held: list[socket.socket] = []

    def come(self, count: int, open_one: Callable[[], socket.socket], sent: bytes) -> None:
        for _ in range(count):
            sock = open_one()
            self.held.append(sock)
            with contextlib.suppress(OSError):
                sock.sendall(sent)

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._plain_port), 60)

    def without_handshake(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._secured_port), 60)

    def encrypted(self) -> socket.socket:
        return self._context.wrap_socket(self.without_handshake(), server_hostname="127.0.0.1")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    write_certificates(tmp_path)
    settings = secured_settings(tmp_path)
    ports = take_port(), take_port()
    settings["listeners"] = f"SASL_SSL://127.0.0.1:{ports[0]},PLAINTEXT://127.0.0.1:{ports[1]}"
    with broker_process(tmp_path, settings=settings) as process:
        yield process.start()


@pytest.mark.timeout(300)
def test_five_thousand_connections_that_lead_nowhere(broker: BrokerProcess, tmp_path: Path) -> None:
    least = 12_000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < least:
        pytest.skip(f"no process may have more than {hard} files open here")
    if soft < least:
        pytest.skip(f"ulimit -n is {soft}; the broker would be out of files, too")
    listeners = broker.settings["listeners"].split(",")
    secured, plain = (int(one.rpartition(":")[2]) for one in listeners)
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="alice-secret";'
    )
    options = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
    }
    crowd = Crowd(secured, plain, context)
    kinds = (
        (crowd.plain, b""),  # idle
        (crowd.plain, struct.pack(">i", 99 << 20) + b"\0\0"),  # much is announced, little comes
        (crowd.plain, struct.pack(">i", 2_000_000_000)),
        (crowd.without_handshake, b""),
        (crowd.without_handshake, b"\x16\x03\x01\x02\x00\x01"),  # half a handshake
        (crowd.encrypted, b""),  # nobody says who he is
        (crowd.encrypted, LOGIN_BEGUN),
        (crowd.encrypted, struct.pack(">i", 500 << 10) + b"\0\x12"),
        (crowd.encrypted, struct.pack(">i", 2_000_000_000)),
    )
    counts = (900, 900, 300, 1_200, 1_200, 125, 125, 125, 125)
    assert sum(counts) == 5_000
    address = f"127.0.0.1:{secured}"
    with contextlib.ExitStack() as stack:
        producer = stack.enter_context(moldau.Producer(address, **options))
        producer.send("good", value=b"before").result(60)
        before = broker.memory_bytes()
        for (open_one, sent), count in zip(kinds, counts, strict=True):
            crowd.come(count, open_one, sent)
            producer.send("good", value=b"meanwhile").result(60)
            with moldau.Admin(address, **options) as admin:  # new ones come in, too
                assert "good" in admin.list_topics()
        for sock in crowd.held:  # a byte now and then
            stack.enter_context(sock)
            with contextlib.suppress(OSError):
                sock.send(b"\0")
        producer.send("good", value=b"after").result(60)
        if before:
            assert broker.peak_memory_bytes() - before < MOST_GROWTH_BYTES
            assert broker.open_descriptors() < 5_000, "of newcomers there is a limited number"
