"""A TCP proxy between a client and a broker that makes an error of an answer to a produce request.

The broker has done what it was asked for, and the client is told otherwise: as when a leader loses
its office, or the time of a request is over, between the append and the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from moldau.errors import ErrorCode
from support.wire_client import frame_of, read_response, write_entity

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")  # API, version, correlation id
_PRODUCE = 0


class _Asked(NamedTuple):
    api_key: int
    version: int


class RefusingProxy:
    """Runs on a loop and a thread of its own; passes everything on until it is told to refuse."""

    def __init__(self, broker_port: int) -> None:
        self.port = 0
        self.refused = threading.Event()
        self._broker_port = broker_port
        self._code: ErrorCode | None = None
        self._passages: set[asyncio.Task[None]] = set()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def refuse_one(self, code: ErrorCode) -> None:
        """One produce request that is answered without an error from now on is told `code`.

        It is told together with the answer to the next one of the connection, which is a success:
        the client hears of both before it can send the first once more.
        """
        self.refused.clear()
        self._code = code

    @contextlib.contextmanager
    def running(self) -> Iterator[RefusingProxy]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        server = asyncio.run_coroutine_threadsafe(self._listen(), loop).result()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._end(server), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    async def _listen(self) -> asyncio.Server:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = asyncio.ensure_future(self._serve(reader, writer))
        self._passages.add(passage)
        passage.add_done_callback(self._passages.discard)

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        for passage in self._passages:
            passage.cancel()
        await asyncio.gather(*self._passages, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked: deque[_Asked] = deque()  # a broker answers in the order of the requests
        with contextlib.closing(writer):
            try:
                there, thither = await asyncio.open_connection("127.0.0.1", self._broker_port)
            except OSError:
                return
            with contextlib.closing(thither):
                ways = {
                    asyncio.ensure_future(self._pass_requests(reader, thither, asked)),
                    asyncio.ensure_future(self._pass_answers(there, writer, asked)),
                }
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[_Asked]
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = await _read_frame(reader)
                api_key, version, _ = _REQUEST.unpack_from(frame)
                asked.append(_Asked(api_key, version))
                writer.write(frame_of(frame))
                await writer.drain()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: deque[_Asked]
    ) -> None:
        held = b""
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = await _read_frame(reader)
                about = asked.popleft()
                is_produce = about.api_key == _PRODUCE
                if is_produce and self._code is not None:
                    held = frame_of(_refusal(about.version, frame, self._code))
                    self._code = None
                elif held and not is_produce:
                    held += frame_of(frame)  # answers keep their order
                else:
                    writer.write(held + frame_of(frame))
                    await writer.drain()
                    if held:
                        held = b""
                        self.refused.set()


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    return await reader.readexactly(size)


def _refusal(version: int, frame: bytes, code: ErrorCode) -> bytes:
    """The same answer with an error for its one partition."""
    correlation_id, answer = read_response(_PRODUCE, version, frame)
    (topic,) = answer.responses
    (partition,) = topic.partition_responses
    assert partition.error_code is ErrorCode.none
    refused = replace(partition, error_code=code, base_offset=-1)
    answer = replace(answer, responses=(replace(topic, partition_responses=(refused,)),))
    header = type(answer).__header_schema__(correlation_id=correlation_id)
    return write_entity(header) + write_entity(answer)
