"""Brokers that are far from each other: what they say to one another arrives late.

Each broker has a second listener, for brokers only, and advertises a proxy's address for it. The
proxy passes everything on in its order, a fixed time after it came; ends of connections too.
Clients and ZooKeeper are near. So requests of brokers are on their way for as long as a test likes,
while the cluster is being changed under them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping

from moldau.client.blocking_face import LoopThread
from moldau.testing.free_ports import take_port

_BUFFER_BYTES = 65536
_LISTENER = "BROKERS"


class LongLinks:
    """Links of one cluster; use `long_links`. A `Network` of `cluster_processes`."""

    def __init__(self, loop: LoopThread, one_way_seconds: float) -> None:
        self.one_way_seconds = one_way_seconds  # may be changed at any time
        self._loop = loop
        self._servers: list[asyncio.Server] = []
        self._passages: set[asyncio.Task[None]] = set()

    def reach(self, zookeeper: str) -> str:
        return zookeeper

    def place(self, number: int) -> Mapping[str, object]:
        """For `BrokerProcess`."""
        near, far = take_port(), take_port()
        proxy = self._loop.run(self._listen(far))
        listeners = f"PLAINTEXT://127.0.0.1:{near},{_LISTENER}://127.0.0.1:{far}"
        told = f"PLAINTEXT://127.0.0.1:{near},{_LISTENER}://127.0.0.1:{proxy}"
        return {
            "port": near,
            "settings": {
                "listeners": listeners,
                "advertised.listeners": told,
                "listener.security.protocol.map": f"{_LISTENER}:PLAINTEXT",
                "inter.broker.listener.name": _LISTENER,
            },
        }

    async def _listen(self, target_port: int) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            passage = asyncio.ensure_future(self._serve(reader, writer, target_port))
            self._passages.add(passage)
            passage.add_done_callback(self._passages.discard)

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target_port: int
    ) -> None:
        with contextlib.closing(writer):
            await asyncio.sleep(self.one_way_seconds)
            try:
                there, thither = await asyncio.open_connection("127.0.0.1", target_port)
            except OSError:
                return
            with contextlib.closing(thither):
                await asyncio.gather(self._pass(reader, thither), self._pass(there, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Until one side ends; then the other is told so, in its time."""
        late: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        sending = asyncio.ensure_future(_send_when_due(late, writer))
        now = asyncio.get_running_loop().time
        data = b"nothing yet"
        try:
            while data:
                try:
                    data = await reader.read(_BUFFER_BYTES)
                except OSError:
                    data = b""
                late.put_nowait((now() + self.one_way_seconds, data))
            await sending
        finally:
            sending.cancel()

    async def end(self) -> None:
        for server in self._servers:
            server.close()
        for passage in tuple(self._passages):
            passage.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)


async def _send_when_due(
    late: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter
) -> None:
    now = asyncio.get_running_loop().time
    with contextlib.suppress(OSError):
        while True:
            due, data = await late.get()
            await asyncio.sleep(due - now())
            if not data:
                break
            writer.write(data)
            await writer.drain()
    writer.close()


@contextlib.contextmanager
def long_links(one_way_seconds: float) -> Iterator[LongLinks]:
    loop = LoopThread("long-links")
    links = LongLinks(loop, one_way_seconds)
    try:
        yield links
    finally:
        loop.run(links.end())
        loop.close()
