"""Frames come out of a channel as they were sent, however the network cut them into pieces."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.net.channel import SocketChannel

SHARED = 64 * 1024
PATIENCE_SECONDS = 60.0
sizes = st.integers(0, 50) | st.sampled_from(
    [SHARED - 5, SHARED - 4, SHARED - 3, SHARED, SHARED + 4, 3 * SHARED]
)


class Transport(asyncio.Transport):
    """Remembers what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reading_now = True
        self.written = b""
        self.writes = 0
        self.is_aborted = False
        self.closes = 0

    def pause_reading(self) -> None:
        self.is_reading_now = False

    def resume_reading(self) -> None:
        self.is_reading_now = True

    def writelines(self, chunks: Any) -> None:
        raise AssertionError("asyncio of Python 3.12 and 3.13 breaks on a lost connection here")

    def write(self, data: Any) -> None:
        self.written += data
        self.writes += 1

    def is_closing(self) -> bool:
        return self.is_aborted or self.closes > 0

    def close(self) -> None:
        self.closes += 1

    def abort(self) -> None:
        self.is_aborted = True


def play(story: Callable[[SocketChannel, Transport], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        channel, transport = SocketChannel(), Transport()
        channel.connection_made(transport)
        await story(channel, transport)

    asyncio.run(whole())


def arrive(channel: SocketChannel, data: bytes, most: int = 1 << 30) -> None:
    """Bytes come in, at most so many at a time, and never more than the channel has room for."""
    while data:
        room = channel.get_buffer(-1)
        count = min(len(room), len(data), most)
        assert count > 0, "a channel always has room"
        room[:count] = data[:count]
        channel.buffer_updated(count)
        data = data[count:]


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


@settings(deadline=None, max_examples=60)
@given(st.lists(sizes, max_size=8), st.sampled_from([1 << 30, 100_000, SHARED, 4099, 700]))
def test_frames_come_as_they_were_sent(frame_sizes: list[int], most: int) -> None:
    frames = [bytes([number % 251]) * size for number, size in enumerate(frame_sizes)]

    async def story(channel: SocketChannel, transport: Transport) -> None:
        arrive(channel, b"".join(map(framed, frames)), most)
        assert [await channel.receive() for _ in frames] == frames

    play(story)


def test_single_bytes_make_a_frame() -> None:
    async def story(channel: SocketChannel, transport: Transport) -> None:
        waiting = asyncio.ensure_future(channel.receive())
        arrive(channel, framed(b"hello") + framed(b""), most=1)
        assert (await waiting, await channel.receive()) == (b"hello", b"")

    play(story)


def test_frames_that_came_before_the_end_are_given() -> None:
    async def story(channel: SocketChannel, transport: Transport) -> None:
        arrive(channel, framed(b"last") + framed(b"torn")[:-1])
        channel.connection_lost(None)
        assert await channel.receive() == b"last"
        with pytest.raises(ConnectionResetError, match="the peer closed the connection"):
            await channel.receive()
        with pytest.raises(ConnectionResetError):
            await channel.send([framed(b"?")])

    play(story)


def test_whoever_waits_hears_why_the_connection_was_lost() -> None:
    async def story(channel: SocketChannel, transport: Transport) -> None:
        channel.pause_writing()
        tasks = [asyncio.ensure_future(channel.receive()), asyncio.ensure_future(channel.send([]))]
        await asyncio.sleep(0)
        channel.connection_lost(BrokenPipeError("gone"))
        for task in tasks:
            with pytest.raises(BrokenPipeError, match="gone"):
                await task

    play(story)


@pytest.mark.parametrize("start", [b"HTTP/1.1 200 OK", b"\xff\xff\xff\xff"])
def test_a_peer_that_speaks_otherwise_is_found_out(start: bytes) -> None:
    async def story(channel: SocketChannel, transport: Transport) -> None:
        arrive(channel, framed(b"fine") + start)
        assert await channel.receive() == b"fine"
        said = "speaks HTTP" if start.startswith(b"HTTP") else "announced -1 bytes"
        with pytest.raises(ConnectionError, match=f"{said}, as no broker does"):
            await channel.receive()
        assert transport.is_aborted

    play(story)


def test_nothing_is_read_ahead_without_end() -> None:
    async def story(channel: SocketChannel, transport: Transport) -> None:
        arrive(channel, framed(bytes(1 << 20)) * 3)
        assert transport.is_reading_now
        arrive(channel, framed(bytes(8 << 20))[:100])
        assert not transport.is_reading_now  # this one has to be asked for

        for _ in range(3):
            await channel.receive()
        waiting = asyncio.ensure_future(channel.receive())
        await asyncio.sleep(0)
        assert transport.is_reading_now
        arrive(channel, bytes((8 << 20) + 4 - 100))
        assert len(await waiting) == 8 << 20

    play(story)


def test_sending_waits_while_the_peer_is_slow() -> None:
    async def story(channel: SocketChannel, transport: Transport) -> None:
        channel.pause_writing()
        sending = asyncio.ensure_future(channel.send([b"abc", b"def"]))
        await asyncio.sleep(0)
        assert (transport.written, sending.done()) == (b"abcdef", False)
        channel.resume_writing()
        await sending

    play(story)


@settings(deadline=None, max_examples=60)
@given(st.lists(sizes, max_size=8))
def test_chunks_are_written_in_their_order_and_small_ones_together(
    chunk_sizes: list[int],
) -> None:
    chunks = [bytes([number % 251]) * size for number, size in enumerate(chunk_sizes)]

    async def story(channel: SocketChannel, transport: Transport) -> None:
        await channel.send(chunks)
        assert transport.written == b"".join(chunks)
        assert transport.writes <= 1 + 2 * sum(len(chunk) for chunk in chunks) // SHARED

    play(story)


def test_of_a_large_frame_no_more_is_handed_over_than_the_peer_takes() -> None:
    chunks = [b"head", bytes(3 * SHARED), b"between", bytes(2 * SHARED)]

    async def story(channel: SocketChannel, transport: Transport) -> None:
        channel.pause_writing()
        sending = asyncio.ensure_future(channel.send(chunks))
        for count in (1, 2, 3, 4):
            await asyncio.sleep(0)
            assert transport.written == b"".join(chunks[:count])
            channel.resume_writing()
            channel.pause_writing()  # it takes the next chunk, and is slow again
            await asyncio.sleep(0)
        channel.resume_writing()
        await sending

    play(story)


def test_a_large_frame_that_nobody_waits_for_any_more_is_sent_to_its_end() -> None:
    chunks = [bytes(2 * SHARED), bytes(3 * SHARED), b"end"]

    async def story(channel: SocketChannel, transport: Transport) -> None:
        channel.pause_writing()
        sending = asyncio.ensure_future(channel.send(chunks))
        await asyncio.sleep(0)
        assert len(transport.written) == 2 * SHARED
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        assert transport.written == b"".join(chunks)

    play(story)


def test_the_rest_of_a_large_frame_is_not_written_to_a_connection_that_is_lost() -> None:
    async def story(channel: SocketChannel, transport: Transport) -> None:
        channel.pause_writing()
        sending = asyncio.ensure_future(channel.send([bytes(2 * SHARED), bytes(2 * SHARED)]))
        await asyncio.sleep(0)
        channel.connection_lost(BrokenPipeError("gone"))
        with pytest.raises(BrokenPipeError, match="gone"):
            await sending
        assert len(transport.written) == 2 * SHARED

    play(story)


def test_closing_wakes_whoever_waits_for_a_silent_peer_and_does_not_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("moldau.net.channel._LAST_BYTES_SECONDS", 0.0)

    class SilentPeer(Transport):
        """Never takes what is left to be sent."""

        def abort(self) -> None:
            super().abort()
            channel.connection_lost(None)

    async def story() -> None:
        nonlocal channel
        channel = SocketChannel()
        transport = SilentPeer()
        channel.connection_made(transport)
        channel.pause_writing()
        sending = asyncio.ensure_future(channel.send([b"abc"]))
        await asyncio.sleep(0)
        await asyncio.wait_for(channel.close(), PATIENCE_SECONDS)
        with pytest.raises(ConnectionResetError, match="the connection is closed"):
            await asyncio.wait_for(sending, PATIENCE_SECONDS)
        assert transport.is_aborted

    channel: SocketChannel
    asyncio.run(story())


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "open"])
def test_a_tls_connection_can_be_closed_twice(
    monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    monkeypatch.setattr("moldau.net.channel._LAST_BYTES_SECONDS", 0.0)

    class TlsTransport(Transport):
        """As asyncio's of Python 3.11.2: a second `close` forgets the connection."""

        channel: SocketChannel

        def close(self) -> None:
            assert not self.is_closing(), "abort would raise an AttributeError now"
            super().close()

        def abort(self) -> None:
            super().abort()
            self.channel.connection_lost(None)

    async def story() -> None:
        channel, transport = SocketChannel(), TlsTransport()
        transport.channel = channel
        channel.connection_made(transport)
        if is_lost:
            transport.abort()
        await asyncio.wait_for(channel.close(), PATIENCE_SECONDS)
        await asyncio.wait_for(channel.close(), PATIENCE_SECONDS)

    asyncio.run(story())


def test_a_write_to_a_lost_connection_does_not_harm_the_next_connection() -> None:
    """It does with `writelines` of Python 3.12 and 3.13, which registers the old descriptor."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data)
        writer.close()

    async def story() -> None:
        loop = asyncio.get_running_loop()
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        for _ in range(3):  # the later ones get the descriptor of the first one
            transport, channel = await loop.create_connection(SocketChannel, "127.0.0.1", port)
            await channel.send([framed(b"hello")])
            assert await channel.receive() == b"hello"
            transport.abort()
            await channel.send([framed(b"lost")])  # the channel does not know it yet
            await channel.close()
        server.close()

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))
