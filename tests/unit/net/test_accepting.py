"""Listeners in a process that has no descriptor left: they wait, and do not spin or end."""

from __future__ import annotations

import asyncio
import logging
import socket

import pytest

from moldau.clock import SystemClock
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.event_loop import new_event_loop
from moldau.net.http_server import HttpAnswer, HttpRequest, HttpServer
from moldau.net.port import Connection
from moldau.net.sockets import SocketNetwork
from support.connection_limits import Limits
from support.descriptors import no_descriptor_left

TURNS = 200
LONG = 60.0


class _Receiver:
    def on_frame(self, frame: memoryview) -> None:
        pass

    def on_client_gone(self) -> None:
        pass

    def on_closed(self) -> None:
        pass


async def come_in_vain(host: str, port: int, caplog: pytest.LogCaptureFixture) -> socket.socket:
    """A client of which the kernel tells, and that cannot be accepted."""
    client = socket.socket()
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    with no_descriptor_left(), caplog.at_level(logging.ERROR):
        await loop.sock_connect(client, (host, port))
        while not caplog.records:
            await asyncio.sleep(0)
        for _ in range(TURNS):
            await asyncio.sleep(0)
    return client


def test_a_listener_goes_on_after_a_time_without_descriptors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        came = asyncio.Event()
        clock = SystemClock()

        def accept(connection: Connection) -> _Receiver:
            came.set()
            return _Receiver()

        server = await SocketNetwork(clock).listen(
            "127.0.0.1",
            0,
            accept,
            listener_name="PLAINTEXT",
            quotas=ConnectionQuotas(Limits(), clock),
        )
        client = await come_in_vain(server.host, server.port, caplog)
        assert not came.is_set()
        assert len(caplog.records) == 1, "told once, and not in every turn of the loop"
        assert "ulimit -n" in caplog.text
        await asyncio.wait_for(came.wait(), LONG)
        client.close()
        await server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())


def test_what_is_read_over_http_is_served_after_a_time_without_descriptors(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def answer(request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(b"well")

    async def story() -> None:
        server = HttpServer(answer)
        await server.listen("127.0.0.1", 0)
        client = await come_in_vain(server.host, server.port, caplog)
        assert len(caplog.records) <= 64, "in one turn of the loop, and not in every one"
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(client, b"GET / HTTP/1.0\r\n\r\n")
        received = b""
        while not received.endswith(b"well"):
            received += await asyncio.wait_for(loop.sock_recv(client, 4096), LONG)
        client.close()
        await server.close()

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story())
