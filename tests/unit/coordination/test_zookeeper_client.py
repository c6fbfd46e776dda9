"""Connections to ZooKeeper that are being made when the session ends."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("kazoo")

from moldau.coordination.zookeeper.kazoo_client import LoopHandler
from moldau.security.certificates import issue, make_authority

LONG_SECONDS = 120.0


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


def test_a_handshake_that_goes_on_is_cut(listener: socket.socket) -> None:
    context = ssl.create_default_context()
    handler = LoopHandler(LONG_SECONDS, lambda: context)
    with ThreadPoolExecutor(1) as thread:
        connecting = thread.submit(handler.create_connection, listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(1), "its hello, and nobody answers"
            handler.cut()
            assert isinstance(connecting.exception(LONG_SECONDS / 4), OSError)


def test_no_connection_is_used_that_was_made_while_the_session_ended(
    listener: socket.socket, tmp_path: Path
) -> None:
    authority = make_authority("authority")
    server = issue(authority, "server", ["127.0.0.1"])
    chain = tmp_path / "server.pem"
    chain.write_text(server.certificate + server.key)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(chain)

    def shake_hands() -> None:
        accepted, _ = listener.accept()
        # The client closes without reading the session tickets of TLS 1.3: a reset, at times.
        with (
            contextlib.suppress(ConnectionError),
            served.wrap_socket(accepted, server_side=True) as secured,
        ):
            secured.recv(1)

    def new_context() -> ssl.SSLContext:
        handler.refuse_connections()
        return ssl.create_default_context(cadata=authority.certificate)

    handler = LoopHandler(LONG_SECONDS, new_context)
    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(shake_hands)
        with pytest.raises(OSError, match="the session is over"):
            handler.create_connection(listener.getsockname())
        serving.result(LONG_SECONDS)
