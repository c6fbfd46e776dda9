"""A TCP proxy on the test's own loop that can be closed like a strait: nothing passes.

Unlike a cut, neither side is told; new connections are accepted and stay silent, too. So a test
sees what a process does that is cut off from a server, or paused, while its own clock runs on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

_BUFFER_BYTES = 65536


class Strait:
    def __init__(self, port: int) -> None:
        self._target_port = port
        self._open = asyncio.Event()
        self._open.set()
        self._passages: set[asyncio.Task[None]] = set()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        """What was held up passes now."""
        self._open.set()

    def cut(self) -> None:
        """Close it, and end the connections there are."""
        self.close()
        for passage in tuple(self._passages):
            passage.cancel()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = asyncio.ensure_future(self._serve(reader, writer))
        self._passages.add(passage)
        passage.add_done_callback(self._passages.discard)

    async def end(self) -> None:
        self.cut()
        await asyncio.gather(*self._passages, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            await self._open.wait()
            try:
                there, thither = await asyncio.open_connection("127.0.0.1", self._target_port)
            except OSError:
                return
            with contextlib.closing(thither):
                ways = {
                    asyncio.ensure_future(self._pass(reader, thither)),
                    asyncio.ensure_future(self._pass(there, writer)),
                }
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_BUFFER_BYTES):
                await self._open.wait()
                writer.write(data)
                await writer.drain()


@contextlib.asynccontextmanager
async def strait_to(port: int) -> AsyncIterator[Strait]:
    strait = Strait(port)
    server = await asyncio.start_server(strait.accept, "127.0.0.1", 0)
    strait.port = server.sockets[0].getsockname()[1]
    try:
        yield strait
    finally:
        server.close()
        await strait.end()
