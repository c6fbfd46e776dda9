"""A client's end of a connection on a real socket: whole frames out, whole frames in.

Received bytes are written where they stay. Small frames share a buffer and are copied out of it; a
large one, such as an answer full of records, gets a buffer of its own, into which the kernel
writes and which is used again when the frame is not needed any more (`FrameBuffers`).
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Iterator, Sequence
from sys import getrefcount
from typing import Final, TypeAlias, cast

from moldau.net.port import Chunk

_LENGTH: Final = struct.Struct(">i")
MAX_ANSWER_BYTES: Final = 1 << 30
"""Guards against a peer that speaks another protocol: its text would be read as a length."""
_HTTP: Final = int.from_bytes(b"HTTP")
_SHARED_BYTES: Final = 64 * 1024
_MOST_WAITING_BYTES: Final = 4 * 1024 * 1024
"""When so much was received that nobody has taken, the kernel is left to slow the peer down."""
_JOINED_BYTES: Final = 64 * 1024
"""Chunks up to this size are copied together: that costs less than a system call for each."""
_LAST_BYTES_SECONDS: Final = 1.0
"""What was sent before `close` still goes out, unless the peer does not take it in this time."""

_InMemory: TypeAlias = bytes | bytearray | memoryview


class SocketChannel(asyncio.BufferedProtocol):
    """Frames over an asyncio transport. Made by the loop; its methods of the port are for tasks."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._end: OSError | None = None  # why it is over, once it is
        self._closed: asyncio.Future[None] = loop.create_future()
        self._shared = memoryview(bytearray(_SHARED_BYTES))
        self._filled = 0  # of the buffer that is being written to
        self._large: memoryview | None = None  # the frame that is being received, if it is large
        self._buffers = FrameBuffers()
        self._frames: deque[bytes | memoryview] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()  # cleared by whoever waits for it
        self._arrived.set()
        self._writable = asyncio.Event()
        self._writable.set()

    # For tasks

    async def send(self, frame: Sequence[Chunk]) -> None:
        if self._transport is None or self._end is not None:
            raise self._end or ConnectionResetError("the connection is closed")
        chunks = [
            chunk if isinstance(chunk, bytes | bytearray | memoryview) else chunk.read()
            for chunk in frame
        ]
        if sum(map(len, chunks)) <= _JOINED_BYTES:
            # Together: written one by one, every chunk would be a system call and a packet.
            # Not by `writelines`: Python 3.12 and 3.13 register the descriptor of a lost connection
            # again, and the next connection with this descriptor fails (python/cpython#136234).
            self._transport.write(b"".join(chunks))
            await self._wait_until_writable()
        else:
            await self._send_large(self._transport, deque(_join_small(chunks)))

    async def _send_large(self, transport: asyncio.Transport, chunks: deque[_InMemory]) -> None:
        """Chunk by chunk, as the kernel takes them: what the transport has to keep, it copies."""
        try:
            while chunks:
                transport.write(chunks.popleft())
                await self._wait_until_writable()
        finally:
            while chunks and self._end is None:
                transport.write(chunks.popleft())  # cancelled: the peer still gets a whole frame

    async def _wait_until_writable(self) -> None:
        await self._writable.wait()
        if self._end is not None:
            raise self._end

    async def receive(self) -> bytes | memoryview:
        while not self._frames:
            if self._end is not None:
                raise self._end
            self._arrived.clear()
            self._regulate()
            await self._arrived.wait()
        frame = self._frames.popleft()
        self._waiting_bytes -= len(frame)
        return frame

    async def close(self) -> None:
        # Whoever waits until a silent peer takes bytes would wait for the whole time-out of TCP.
        self._finish(ConnectionResetError("the connection is closed"))
        if self._transport is not None:
            # A TLS transport forgets its connection at a second `close`, and cannot abort it then.
            if not self._transport.is_closing():
                self._transport.close()
            try:
                await asyncio.wait((self._closed,), timeout=_LAST_BYTES_SECONDS)
            finally:
                self._transport.abort()  # does nothing when it is closed
            await asyncio.wait((self._closed,))

    # For the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        if not isinstance(error, OSError):
            error = ConnectionResetError("the peer closed the connection")
        self._finish(error)
        if not self._closed.done():
            self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def get_buffer(self, size_hint: int) -> memoryview:
        buffer = self._shared if self._large is None else self._large
        return buffer[self._filled :]

    def buffer_updated(self, count: int) -> None:
        self._filled += count
        if self._large is None:
            self._split_shared()
        elif self._filled == len(self._large):
            frame, self._large, self._filled = self._large, None, 0
            self._add(frame)

    # Frames

    def _split_shared(self) -> None:
        """Take whole frames out of the shared buffer; what is left goes to where it can grow."""
        start = 0
        while self._filled - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._shared, start)
            if not 0 <= size <= MAX_ANSWER_BYTES:
                self._refuse(size)
                return
            body = start + _LENGTH.size
            if size > len(self._shared) - _LENGTH.size:
                self._begin_large(size, self._shared[body : self._filled])
                return
            if body + size > self._filled:
                break
            self._add(bytes(self._shared[body : body + size]))
            start = body + size
        if start:
            left = self._filled - start
            self._shared[:left] = self._shared[start : self._filled]
            self._filled = left

    def _begin_large(self, size: int, beginning: memoryview) -> None:
        """The frame is larger than the shared buffer, so it cannot have come whole."""
        self._large = self._buffers.take(size)
        self._large[: len(beginning)] = beginning
        self._filled = len(beginning)
        self._regulate()

    def _add(self, frame: bytes | memoryview) -> None:
        self._frames.append(frame)
        self._waiting_bytes += len(frame)
        self._arrived.set()
        self._regulate()

    def _regulate(self) -> None:
        """Read on while somebody waits for a frame, or while there are not many yet."""
        if self._transport is None or self._end is not None:
            return
        coming_bytes = 0 if self._large is None else len(self._large)
        is_awaited = not self._arrived.is_set()
        if is_awaited or self._waiting_bytes + coming_bytes < _MOST_WAITING_BYTES:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _refuse(self, size: int) -> None:
        if size == _HTTP:
            said = "the peer speaks HTTP, as no broker does"
        else:
            said = f"the peer announced {size} bytes, as no broker does"
        self._finish(ConnectionError(said))
        if self._transport is not None:
            self._transport.abort()

    def _finish(self, reason: OSError) -> None:
        """The first reason counts."""
        self._end = self._end or reason
        self._arrived.set()
        self._writable.set()


def _join_small(chunks: Sequence[_InMemory]) -> Iterator[_InMemory]:
    """The same bytes, small neighbours as one chunk."""
    held: list[_InMemory] = []
    held_bytes = 0
    for chunk in chunks:
        if held_bytes + len(chunk) > _JOINED_BYTES:
            if held:
                yield b"".join(held)
            held, held_bytes = [], 0
        if len(chunk) > _JOINED_BYTES:
            yield chunk
        else:
            held.append(chunk)
            held_bytes += len(chunk)
    if held:
        yield b"".join(held)


_KIB: Final = 1024
_STEP_BYTES: Final = 256 * _KIB
"""Sizes are multiples of it, so that answers of about the same size can take the same buffer."""
_MOST_KEPT_BYTES: Final = 16 * 1024 * _KIB


class FrameBuffers:
    """Memory for large frames, used again when nothing refers to it any more.

    A fresh buffer of megabytes is zeroed by Python and, page by page, by the kernel: that costs
    several times what receiving into it does. So a channel keeps some. It finds out from the
    reference count which of them are free: a view of a frame, or of a part of it, holds the buffer,
    and nothing has to be given back. Owned by one channel, used on its loop.
    """

    def __init__(self, most_kept_bytes: int = _MOST_KEPT_BYTES) -> None:
        self._most_kept_bytes = most_kept_bytes
        self._kept: list[bytearray] = []  # free or in use, the least recently used first
        self._kept_bytes = 0  # at most `most_kept_bytes`

    def take(self, size: int) -> memoryview:
        """A writable view of so many bytes, with anything in them."""
        for number in reversed(range(len(self._kept))):  # what was used last is still in caches
            if len(self._kept[number]) >= size and _is_free(self._kept, number):
                buffer = self._kept.pop(number)
                self._kept.append(buffer)
                return memoryview(buffer)[:size]
        buffer = bytearray(-(-size // _STEP_BYTES) * _STEP_BYTES)
        self._maybe_keep(buffer)
        return memoryview(buffer)[:size]

    def _maybe_keep(self, buffer: bytearray) -> None:
        if len(buffer) > self._most_kept_bytes:
            return
        self._kept.append(buffer)
        self._kept_bytes += len(buffer)
        while self._kept_bytes > self._most_kept_bytes:
            self._kept_bytes -= len(self._kept.pop(0))


def _is_free(buffers: list[bytearray], number: int) -> bool:
    return getrefcount(buffers[number]) <= _FREE


# What a buffer counts in which nobody but the list has a part, by this interpreter's way to count.
_FREE: Final = (lambda buffers, number: getrefcount(buffers[number]))([bytearray()], 0)
