"""A connection that is closed is gone, without waiting for the collector of garbage."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator

import pytest

from moldau.clock import SystemClock
from moldau.net.connection import SocketConnection
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import Connection
from moldau.net.sockets import SocketNetwork
from support.connection_limits import Limits


class Receiver:
    """Knows its connection, as every one does."""

    def __init__(self, connection: Connection, closed: asyncio.Queue[None]) -> None:
        self.connection = connection
        self._closed = closed

    def on_frame(self, frame: memoryview) -> None:
        self.connection.skip_answer()

    def on_client_gone(self) -> None:
        pass

    def on_closed(self) -> None:
        self._closed.put_nowait(None)


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_closed_connections_leave_nothing_behind() -> None:
    async def story() -> int:
        clock = SystemClock()
        closed: asyncio.Queue[None] = asyncio.Queue()
        network = SocketNetwork(clock)
        server = await network.listen(
            "127.0.0.1",
            0,
            lambda connection: Receiver(connection, closed),
            listener_name="PLAINTEXT",
            quotas=ConnectionQuotas(Limits(), clock),
        )
        for _ in range(20):
            channel = await network.connect("127.0.0.1", server.port, timeout=60)
            await channel.send([b"\0\0\0\1?"])
            await channel.close()
            await closed.get()
        left = sum(isinstance(one, SocketConnection) for one in gc.get_objects())
        await server.close()
        return left

    assert asyncio.run(asyncio.wait_for(story(), 60)) == 0
