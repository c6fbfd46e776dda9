"""How a client's address is written, whatever the socket is that it came through."""

from __future__ import annotations

import asyncio

import pytest

from moldau.clock import SystemClock
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import Connection
from moldau.net.sockets import SocketNetwork
from support.connection_limits import Limits


class _Receiver:
    def on_frame(self, frame: memoryview) -> None:
        pass

    def on_client_gone(self) -> None:
        pass

    def on_closed(self) -> None:
        pass


@pytest.mark.parametrize(
    ("listens_on", "told"),
    [("127.0.0.1", "127.0.0.1"), ("::ffff:127.0.0.1", "127.0.0.1"), ("::1", "::1")],
)
def test_an_address_of_ipv4_is_one_also_on_a_socket_for_ipv6(listens_on: str, told: str) -> None:
    async def story() -> str:
        came: asyncio.Queue[str] = asyncio.Queue()
        clock = SystemClock()

        def accept(connection: Connection) -> _Receiver:
            came.put_nowait(connection.peer_host)
            return _Receiver()

        network = SocketNetwork(clock)
        quotas = ConnectionQuotas(Limits(), clock)
        try:
            server = await network.listen(
                listens_on, 0, accept, listener_name="PLAINTEXT", quotas=quotas
            )
        except OSError as error:
            pytest.skip(f"this machine has no such address: {error}")
        channel = await network.connect(told, server.port, timeout=60)
        host = await came.get()
        await channel.close()
        await server.close()
        return host

    assert asyncio.run(asyncio.wait_for(story(), 120)) == told
