"""Frames over a connected Unix socket, for both ends of a served store. A shell.

Everything happens on the loop: what cannot be sent at once is kept and sent when there is room. The
server hears nothing more of a client that leaves `UNREAD_BYTES` unread, so that it owes it no more
answers, and its session ends by its time-out unless it reads; until then it costs no more than the
notices of its watches. A client always reads, else both ends could wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from moldau.coordination.store_codec import LENGTH, MAX_FRAME_BYTES

_READ_BYTES: Final = 1 << 18
UNREAD_BYTES: Final = 4 << 20


class StoreSocket:
    """One connection. `on_frame` gets the body of each frame; `on_broken` hears of its end once,
    unless it was closed here."""

    def __init__(
        self,
        connected: socket.socket,
        on_frame: Callable[[bytes], None],
        on_broken: Callable[[str], None],
        most_unread_bytes: int | None = None,
    ) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._on_frame = on_frame
        self._on_broken = on_broken
        self._received = bytearray()
        self._to_send = bytearray()
        self._most_unread_bytes = most_unread_bytes
        self._is_reading = True
        self._loop = asyncio.get_running_loop()
        self.is_closed = False
        self._loop.add_reader(connected, self._read)

    def send(self, frame: bytes) -> None:
        if self.is_closed:
            return
        if not self._to_send:
            try:
                sent = self._socket.send(frame)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                self._loop.call_soon(self._break, str(error))
                return
            frame = frame[sent:]
            if frame:
                self._loop.add_writer(self._socket, self._write)
        self._to_send += frame
        self._read_if_read()

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            with contextlib.suppress(OSError):
                self._socket.close()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._to_send)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        del self._to_send[:sent]
        if not self._to_send:
            self._loop.remove_writer(self._socket)
        self._read_if_read()

    def _read_if_read(self) -> None:
        """Read on while the other end does."""
        limit = self._most_unread_bytes
        is_reading = limit is None or len(self._to_send) < limit
        if is_reading and not self._is_reading:
            self._loop.add_reader(self._socket, self._read)
            self._loop.call_soon(self._deliver)  # what had come before
        elif self._is_reading and not is_reading:
            self._loop.remove_reader(self._socket)
        self._is_reading = is_reading

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(str(error))
            return
        if not data:
            self._break("the other end closed it")
            return
        self._received += data
        self._deliver()

    def _deliver(self) -> None:
        position = 0
        while (
            not self.is_closed
            and self._is_reading
            and len(self._received) - position >= LENGTH.size
        ):
            (length,) = LENGTH.unpack_from(self._received, position)
            if length > MAX_FRAME_BYTES:
                self._break(f"a frame of {length} bytes is no message")
                return
            end = position + LENGTH.size + length
            if len(self._received) < end:
                break
            frame = bytes(self._received[position + LENGTH.size : end])
            position = end
            try:
                self._on_frame(frame)
            except ValueError as error:
                self._break(str(error))
                return
        del self._received[:position]

    def _break(self, reason: str) -> None:
        if not self.is_closed:
            self.close()
            self._on_broken(reason)
