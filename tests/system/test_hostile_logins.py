"""Whoever does not mean it well, before a login: the broker lives, and good clients go on."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import ssl
import struct
from collections.abc import Iterator

import pytest

import moldau
from moldau.testing.running_secured_broker import SecuredBroker, secured_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    config = {"connection.failed.authentication.delay.ms": "10"}
    with secured_broker(config, folder=tmp_path_factory.mktemp("hostile")) as running:
        yield running


@pytest.fixture(autouse=True)
def _good_clients_go_on(broker: SecuredBroker) -> Iterator[None]:
    yield
    with moldau.Admin(broker.bootstrap, **broker.client_options("alice")) as admin:
        assert admin.describe_cluster().brokers


def connect(broker: SecuredBroker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), 60)


@contextlib.contextmanager
def encrypted(broker: SecuredBroker) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=str(broker.authority_file))
    with (
        connect(broker) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
    ):
        yield secured


def ends(sock: socket.socket) -> bool:
    """Whether the broker ends the connection, after whatever it answers."""
    try:
        while sock.recv(65536):
            pass
    except OSError:
        pass
    return True


def frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    head = struct.pack(">hhih", api_key, version, 1, -1) + body
    return struct.pack(">i", len(head)) + head


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def test_clear_text_on_a_port_with_tls(broker: SecuredBroker) -> None:
    with connect(broker) as sock:
        sock.sendall(frame(18, 0))
        assert ends(sock)


def test_half_a_handshake_holds_up_nobody(broker: SecuredBroker) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            sock = stack.enter_context(connect(broker))
            sock.sendall(b"\x16\x03\x01\x02\x00\x01")
        with moldau.Admin(broker.bootstrap, **broker.client_options("alice")) as admin:
            assert admin.describe_cluster().brokers


@pytest.mark.parametrize(
    "sent",
    [
        frame(3, 9, b"\x00\x00\x00"),  # Metadata before a login
        frame(0, 9, b"\x00" * 50),  # Produce
        frame(36, 1, struct.pack(">i", 4) + b"\0a\0b"),  # SaslAuthenticate before the handshake
        frame(17, 1, text("GSSAPI")),
        frame(17, 1, text("PLAIN")) + frame(3, 0, b"\0\0\0\0"),
        frame(17, 1, text("PLAIN")) + frame(17, 1, text("PLAIN")),
        frame(17, 1, text("PLAIN")) + frame(36, 1, struct.pack(">i", 9) + b"\0alice\0xy"),
        frame(17, 1, text("SCRAM-SHA-256")) + frame(36, 1, struct.pack(">i", 3) + b"n,,"),
        frame(17, 0, text("PLAIN")) + struct.pack(">i", 9) + b"\0alice\0xy",
        frame(36, 1, struct.pack(">i", 2_000_000_000)),
        struct.pack(">i", 2_000_000_000),
        struct.pack(">i", 600 << 10),  # more than is read of a stranger
        struct.pack(">i", -5),
        struct.pack(">i", 1) + b"\0",
        frame(9999, 0),
    ],
)
def test_requests_out_of_order_end_the_connection(broker: SecuredBroker, sent: bytes) -> None:
    with encrypted(broker) as sock:
        sock.sendall(sent)
        assert ends(sock)


def test_noise_after_the_handshake(broker: SecuredBroker) -> None:
    noise = random.Random(15)
    for _ in range(60):
        with encrypted(broker) as sock:
            body = noise.randbytes(noise.randrange(1, 300))
            with contextlib.suppress(OSError):
                sock.sendall(struct.pack(">i", len(body)) + body)
                sock.settimeout(0.01)
                sock.recv(1000)


def test_frames_of_every_api_are_refused_to_strangers(broker: SecuredBroker) -> None:
    for api_key in range(100):
        if api_key in (17, 18):
            continue
        with encrypted(broker) as sock:
            sock.sendall(frame(api_key, 0, b"\x00" * 40))
            assert ends(sock)


def _raw(message: bytes) -> bytes:
    return struct.pack(">i", len(message)) + message


@pytest.mark.parametrize(("password", "is_right"), [("alice-secret", True), ("guess", False)])
def test_a_login_as_before_kip_152(broker: SecuredBroker, password: str, is_right: bool) -> None:
    """The mechanism's messages come without Kafka's headers, and all is sent at once."""
    message = _raw(b"\0alice\0" + password.encode())
    cluster = frame(3, 1, struct.pack(">i", 0))
    with encrypted(broker) as sock:
        sock.sendall(frame(17, 0, text("PLAIN")) + message + cluster)
        (size,) = struct.unpack(">i", _receive(sock, 4))
        assert b"PLAIN" in _receive(sock, size)
        if is_right:
            assert _receive(sock, 4) == _raw(b"")
            (size,) = struct.unpack(">i", _receive(sock, 4))
            assert b"127.0.0.1" in _receive(sock, size)
        else:
            assert not sock.recv(1)


def _receive(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, "the broker ended the connection"
        data += more
    return data


@pytest.mark.parametrize("data", [_raw(b""), _raw(b"\0"), _raw(b"\0\x12")])
def test_frames_shorter_than_a_header(broker: SecuredBroker, data: bytes) -> None:
    with encrypted(broker) as sock:
        sock.sendall(data)
        assert ends(sock)


def _said(message: bytes) -> bytes:
    return frame(36, 1, struct.pack(">i", len(message)) + message)


GOOD = frame(17, 1, text("PLAIN")) + _said(b"\0alice\0alice-secret")
PIECES = (
    GOOD,
    frame(17, 1, text("PLAIN")),
    frame(17, 0, text("PLAIN")),
    frame(17, 1, text("SCRAM-SHA-512")),
    _said(b"\0alice\0alice-secret"),
    _said(b"\0alice\0guess"),
    _said(b"n,,n=alice,r=abc"),
    _said(b"n,,n=alice,r=abc,tokenauth=true"),
    _said(b"c=biws,r=abc,p=AAAA"),
    _said(b""),
    _raw(b"\0alice\0alice-secret"),
    frame(18, 0),
    frame(3, 1, struct.pack(">i", 0)),
    frame(38, 1, struct.pack(">iq", 0, -1)),
)


@pytest.mark.parametrize("seed", range(4))
def test_logins_and_requests_in_any_order(
    broker: SecuredBroker, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Before a login and after it, whole frames and spoiled ones: never a fault of the broker."""
    noise = random.Random(seed)
    with caplog.at_level(logging.ERROR):
        for _ in range(40):
            pieces = [noise.choice(PIECES) for _ in range(noise.randint(1, 6))]
            if noise.random() < 0.5:  # somebody who may be here, and means no good
                body = struct.pack(">hh", noise.randrange(95), noise.randrange(5))
                pieces = [GOOD, *pieces, _raw(body + noise.randbytes(noise.randrange(200)))]
            with encrypted(broker) as sock, contextlib.suppress(OSError):
                sock.sendall(b"".join(pieces))
                sock.settimeout(0.05)
                while sock.recv(65536):
                    pass
    assert not caplog.records, caplog.text[-4000:]
