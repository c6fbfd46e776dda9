"""A certificate that was signed, and that nobody can read: its client is turned away."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from cryptography.x509.oid import ExtensionOID

from moldau.clock import SystemClock
from moldau.model import Principal
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import Connection
from moldau.net.sockets import SocketNetwork
from moldau.security.certificates import IssuedCertificate, issue, make_authority
from support.connection_limits import Limits

FRAME = b"\0\0\0\1x"
NO_TEXT = bytes.fromhex("3004 8202 fffe")  # a SubjectAltName of one DNS name that is no UTF-8


class Receiver:
    """Counts frames."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.frames = 0
        self.closed = asyncio.Event()

    def on_frame(self, frame: memoryview) -> None:
        self.frames += 1
        self._connection.skip_answer()

    def on_client_gone(self) -> None:
        pass

    def on_closed(self) -> None:
        self.closed.set()


class Tls:
    """Implements `net.port.ServerTls`."""

    def __init__(self, context: ssl.SSLContext, fault: Exception | None) -> None:
        self.context = context
        self._fault = fault
        self.reasons: list[str] = []

    def identify(self, certificate: Mapping[str, Any]) -> Principal:
        if self._fault is not None:
            raise self._fault
        return Principal("User", "somebody")

    def refused(self, host: str, reason: str) -> None:
        self.reasons.append(reason)


def issue_odd(authority: IssuedCertificate, names: bytes) -> IssuedCertificate:
    """A client's certificate with these bytes for its further names."""
    plain = issue(authority, "client")
    issued = x509.load_pem_x509_certificate(plain.certificate.encode())
    builder = x509.CertificateBuilder(
        issued.issuer,
        issued.subject,
        issued.public_key(),
        issued.serial_number,
        issued.not_valid_before_utc,
        issued.not_valid_after_utc,
    )
    extension = x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, names)
    builder = builder.add_extension(extension, critical=False)
    key = load_pem_private_key(authority.key.encode(), None)
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    return IssuedCertificate(signed.public_bytes(Encoding.PEM).decode(), plain.key)


def context_of(
    folder: Path, authority: IssuedCertificate, own: IssuedCertificate, purpose: ssl.Purpose
) -> ssl.SSLContext:
    context = ssl.create_default_context(purpose, cadata=authority.certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    path = folder / purpose.name
    path.write_text(own.certificate + own.key)
    context.load_cert_chain(path)
    return context


def talk(context: ssl.SSLContext, port: int) -> bytes:
    """Send a request; returns what came until the broker hung up."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=90)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as client:
        try:
            client.sendall(FRAME)
            return client.recv(100)
        except (ConnectionError, ssl.SSLError):
            return b""


@pytest.mark.parametrize(
    ("names", "fault"),
    [(NO_TEXT, None), (bytes.fromhex("3003 8201 61"), KeyError("subject"))],
    ids=["it cannot be read", "nobody can be made of it"],
)
def test_who_cannot_be_known_is_not_served(
    tmp_path: Path, names: bytes, fault: Exception | None
) -> None:
    authority = make_authority("authority")
    server_context = context_of(
        tmp_path, authority, issue(authority, "broker", ["localhost"]), ssl.Purpose.CLIENT_AUTH
    )
    client_context = context_of(
        tmp_path, authority, issue_odd(authority, names), ssl.Purpose.SERVER_AUTH
    )

    async def story() -> None:
        clock = SystemClock()
        receivers: list[Receiver] = []

        def accept(connection: Connection) -> Receiver:
            receivers.append(Receiver(connection))
            return receivers[-1]

        tls = Tls(server_context, fault)
        server = await SocketNetwork(clock).listen(
            "127.0.0.1",
            0,
            accept,
            listener_name="SSL",
            quotas=ConnectionQuotas(Limits(), clock),
            tls=tls,
        )
        assert await asyncio.to_thread(talk, client_context, server.port) == b""
        (receiver,) = receivers
        await receiver.closed.wait()
        assert not receiver.frames
        assert len(tls.reasons) == 1
        await server.close()

    asyncio.run(asyncio.wait_for(story(), 120))
