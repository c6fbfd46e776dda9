"""Answers that cannot be sent end a connection, once and for all."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

from moldau.net.connection import SocketConnection
from moldau.net.port import ConnectionLimits

FRAME = b"\0\0\0\1x"


class _Limits:
    socket_request_max_bytes = 1 << 20


class _ShortRange:
    """A file that was cut after its range was announced."""

    descriptor = None
    position = 0
    length = 10

    def read(self) -> bytes:
        return b"short"


class _Receiver:
    """Answers the first frame with what cannot be sent, and has enough of the second."""

    def __init__(self, connection: SocketConnection) -> None:
        self.connection = connection
        self.closed = asyncio.Event()
        self.frames = 0

    def on_frame(self, frame: memoryview) -> None:
        self.frames += 1
        if self.frames == 1:
            self.connection.send([_ShortRange()])
        else:
            self.connection.close("the second frame is malformed")

    def on_client_gone(self) -> None:
        pass

    def on_closed(self) -> None:
        self.closed.set()


async def _close_while_answers_cannot_be_sent() -> str:
    own, other = socket.socketpair()
    own.setblocking(False)
    gone: list[SocketConnection] = []
    connection = SocketConnection(
        own,
        asyncio.get_running_loop(),
        identity="x",
        peer_host="127.0.0.1",
        listener_name="PLAINTEXT",
        limits=cast(ConnectionLimits, _Limits()),
        on_gone=gone.append,
    )
    receiver = _Receiver(connection)
    with other:
        other.sendall(FRAME * 2)
        connection.begin(receiver)
        await asyncio.wait_for(receiver.closed.wait(), 20)
    assert gone == [connection]
    return connection.close_reason


def test_a_connection_that_is_closed_while_answers_cannot_be_sent_is_closed_once() -> None:
    reason = asyncio.run(_close_while_answers_cannot_be_sent())
    assert reason == "send failed: a file range is shorter than announced"
