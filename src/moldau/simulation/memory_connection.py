"""The two ends of a connection in memory: the broker's and the client's.

Both work on `Pipe`s. The broker's end keeps the rules of `net.port` more strictly than a socket
can: an answer without a request is an error, and a frame is overwritten as soon as it was
answered, so code that looks at it later is found out.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Protocol

from moldau.clock import Clock
from moldau.errors import InvariantViolation
from moldau.model import ANONYMOUS
from moldau.net.port import MOST_OWED_ANSWERS, Chunk, ConnectionLimits, FrameReceiver, Range

_LENGTH = struct.Struct(">i")
_LARGEST_ANSWER_BYTES = 1 << 30
_JOINED_BYTES = 64 << 10
_USED_UP = b"\xdd"


class _BadLengthError(Exception):
    """A frame announces an impossible length."""


class _FrameReader:
    """Puts frames together from the bytes of a pipe, as they come."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._size = -1  # of the frame that is being read; -1 before its length has arrived
        self._parts = bytearray()

    @property
    def has_unread(self) -> bool:
        return bool(self._pipe.arrived or self._parts or self._size >= 0)

    def take_frame(self, largest_bytes: int) -> bytearray | None:
        """The next whole frame without its length, or None while it is incomplete."""
        if self._size < 0:
            if len(self._pipe.arrived) < _LENGTH.size:
                return None
            (size,) = _LENGTH.unpack(self._pipe.read_bytes(_LENGTH.size))
            if not 0 <= size <= largest_bytes:
                raise _BadLengthError(f"a frame of {size} bytes is outside 0 to {largest_bytes}")
            self._size = size
        self._parts += self._pipe.read_bytes(self._size - len(self._parts))
        if len(self._parts) < self._size:
            return None
        frame, self._parts, self._size = self._parts, bytearray(), -1
        return frame


class MemoryConnection:
    """The broker's end. Implements `net.port.Connection`; owned by the event loop."""

    def __init__(
        self,
        *,
        identity: str,
        peer_host: str,
        listener_name: str,
        limits: ConnectionLimits,
        inbound: Pipe,
        outbound: Pipe,
        on_gone: Callable[[MemoryConnection], None],
    ) -> None:
        self.id = identity
        self.peer_host = peer_host
        self.listener_name = listener_name
        self.principal = ANONYMOUS
        self.security_protocol = "PLAINTEXT"
        self.close_reason = ""
        self.frames = 0  # requests so far; the idle sweep compares it
        self.seen_frames = 0  # its value at the last sweep
        self.idle_since = 0.0
        self._limits = limits
        self._request_max_bytes: int | None = None
        self._inbound = inbound
        self._outbound = outbound
        self._on_gone = on_gone
        self._reader = _FrameReader(inbound)
        self._receiver: FrameReceiver | None = None
        self._frame: bytearray | None = None  # with the receiver, until it answers
        self._owed = 0  # answers to frames that were given back without one
        self._is_muted = False
        self._advancing = False  # guards against re-entry when `send` is called inside `on_frame`
        self._outgoing: deque[memoryview | Range] = deque()
        self._is_client_gone = False  # and the receiver was told
        self._closed = False

    @property
    def is_busy(self) -> bool:
        return self._frame is not None or self._owed > 0 or self._is_muted

    @property
    def is_heard(self) -> bool:
        return not self._inbound.has_ended

    def start_receiving(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver
        if self._closed:  # by the one who accepted it
            receiver.on_closed()
            return
        self._inbound.on_bytes = self._advance
        self._inbound.on_signal = lambda _: self._advance()
        self._outbound.on_room = self._advance
        if self._inbound.arrived or self._inbound.has_ended:  # while it waited to be accepted
            self._advance()

    def send(self, chunks: Sequence[Chunk]) -> None:
        if not self._closed:
            self._queue(chunks)
            self._answered()

    def _queue(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            if isinstance(chunk, bytes | bytearray | memoryview):
                self._outgoing.append(memoryview(bytes(chunk)))
            else:
                self._outgoing.append(chunk)

    def skip_answer(self) -> None:
        if not self._closed:
            self._answered()

    def owe_answer(self) -> None:
        if not self._closed:
            self._owed += 1
            self._answered()

    def send_owed(self, chunks: Sequence[Chunk]) -> None:
        if self._closed:
            return
        if not self._owed:
            raise InvariantViolation(f"NET-1: connection {self.id}: an answer that is not owed")
        self._owed -= 1
        self._queue(chunks)
        self._advance()

    def mute(self) -> None:
        self._is_muted = True

    def unmute(self) -> None:
        if self._is_muted:
            self._is_muted = False
            if not self._closed:
                self._advance()

    def _answered(self) -> None:
        if self._frame is None:
            raise InvariantViolation(f"NET-1: connection {self.id}: an answer without a request")
        self._frame[:] = _USED_UP * len(self._frame)
        self._frame = None
        self._advance()

    def _advance(self) -> None:
        """Send what is left, then hand over frames until one has to wait."""
        receiver = self._receiver
        if self._advancing or receiver is None:
            return
        self._advancing = True
        try:
            self._pump()
            while (frame := self._find_frame()) is not None:
                self._frame = frame
                self.frames += 1
                receiver.on_frame(memoryview(frame))
                self._pump()
        finally:
            self._advancing = False
        self._maybe_end()

    def _find_frame(self) -> bytearray | None:
        if self._closed or self._frame is not None or self._outgoing:
            return None
        if self._is_muted or self._owed >= MOST_OWED_ANSWERS:
            return None
        try:
            return self._reader.take_frame(
                self._limits.socket_request_max_bytes
                if self._request_max_bytes is None
                else self._request_max_bytes
            )
        except _BadLengthError as error:
            self.close(f"{error}: socket.request.max.bytes")
            return None

    def _pump(self) -> None:
        """Send until all is out or the client has to read first. Small chunks leave, and arrive,
        together, as from a socket."""
        while self._outgoing and not self._closed:
            parts: list[memoryview] = []
            while self._outgoing and sum(map(len, parts)) < _JOINED_BYTES:
                chunk = self._outgoing.popleft()
                part = chunk if isinstance(chunk, memoryview) else self._read(chunk)
                if part is None:
                    return
                parts.append(part)
            data = memoryview(b"".join(parts))
            accepted = self._outbound.write(data)
            if accepted < len(data):
                self._outgoing.appendleft(data[accepted:])
                return

    def _read(self, chunk: Range) -> memoryview | None:
        try:
            data = chunk.read()
        except OSError as error:
            self.close(f"send failed: {error.strerror}")
            return None
        if len(data) != chunk.length:
            self.close("send failed: a file range is shorter than announced")
            return None
        return memoryview(data)

    def _maybe_end(self) -> None:
        """The client has closed: the frames it sent before are handed over first."""
        if not self._inbound.has_ended or self._closed:
            return
        if not self.is_busy:
            if not self._outgoing or not self._reader.has_unread:
                self.close("closed by the client")
        elif not self._is_client_gone and self._receiver is not None:
            self._is_client_gone = True
            self._receiver.on_client_gone()

    def limit_requests(self, max_bytes: int | None) -> None:
        self._request_max_bytes = max_bytes

    def close(self, reason: str) -> None:
        if self._closed:
            return
        self.close_reason = reason
        self.die()
        self._on_gone(self)
        if self._receiver is not None:
            self._receiver.on_closed()

    def die(self) -> None:
        """Its process is gone: the client is told, its own side is not."""
        if not self._closed:
            self._closed = True
            self._outgoing.clear()
            self._inbound.shut()
            self._outbound.signal(Signal.END)


class MemoryChannel:
    """The client's end. Implements `net.port.Channel`."""

    def __init__(self, *, inbound: Pipe, outbound: Pipe) -> None:
        self._inbound = inbound
        self._outbound = outbound
        self._reader = _FrameReader(inbound)
        self._answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrived = asyncio.Event()  # something came in, or the end
        self._room = asyncio.Event()
        self._closed = False
        inbound.on_bytes = self._arrived.set
        inbound.on_signal = self._on_signal
        outbound.on_room = self._room.set

    async def open(self, clock: Clock, timeout_s: float) -> None:
        """Wait until the other end grants the connection."""
        timer = clock.call_later(timeout_s, self._on_timeout)
        self._outbound.signal(Signal.OPEN)
        try:
            await self._answered
        except BaseException:
            await self.close()
            raise
        finally:
            timer.cancel()

    def _on_timeout(self) -> None:
        if not self._answered.done():
            self._answered.set_exception(TimeoutError("the peer does not answer"))

    def _on_signal(self, signal: Signal) -> None:
        if not self._answered.done():
            if signal is Signal.OPEN:
                self._answered.set_result(None)
            else:
                self._answered.set_exception(ConnectionRefusedError("nobody listens there"))
        self._wake()

    def _wake(self) -> None:
        self._arrived.set()
        self._room.set()

    async def send(self, frame: Sequence[Chunk]) -> None:
        rest = memoryview(b"".join(map(_bytes_of, frame)))
        while rest:
            if self._closed or self._inbound.has_ended:
                raise ConnectionResetError("the peer closed the connection")
            rest = rest[self._outbound.write(rest) :]
            if rest:
                self._room.clear()
                await self._room.wait()

    async def receive(self) -> bytes:
        while not self._closed:
            try:
                frame = self._reader.take_frame(_LARGEST_ANSWER_BYTES)
            except _BadLengthError as error:
                raise ConnectionError(str(error)) from error
            if frame is not None:
                return bytes(frame)
            if self._inbound.has_ended:
                break
            self._arrived.clear()
            await self._arrived.wait()
        raise ConnectionResetError("the peer closed the connection")

    async def close(self) -> None:
        self.break_down()

    def break_down(self) -> None:
        """Close it at once; whoever waits on it is told."""
        self.die()
        if not self._answered.done():
            self._answered.set_exception(ConnectionResetError("the connection broke down"))
        self._wake()

    def abort(self) -> None:
        """Close it, and let nothing of what is under way arrive (a reset)."""
        self._outbound.discard()
        self.break_down()

    def die(self) -> None:
        """Its process is gone: the peer is told, its own side is not."""
        if not self._closed:
            self._closed = True
            self._inbound.shut()
            self._outbound.signal(Signal.END)


def _bytes_of(chunk: Chunk) -> bytes | bytearray | memoryview:
    return chunk if isinstance(chunk, bytes | bytearray | memoryview) else chunk.read()


# One direction of a connection in memory: bytes arrive in order, late, or not while it is cut.
#
# A `Pipe` behaves as TCP does towards its users. What is written arrives in order after the delay
# of its route; while the route is cut nothing arrives and nothing is lost; a writer whose peer does
# not read is told to wait. It has one reader and one writer, who set its callbacks. All callbacks
# come from the event loop, never from inside a call.


class Signal(Enum):
    """What travels between the bytes, in order with them."""

    OPEN = auto()  # asks for a connection, or grants it
    REFUSE = auto()  # nobody listens there
    END = auto()  # the writer has closed


class PipeLinks(Protocol):
    """The ways between hosts, as they are at the moment: `MemoryNetwork`."""

    def is_cut(self, source: str, target: str) -> bool: ...

    def draw_delay(self, source: str, target: str) -> float:
        """Seconds until what is sent now arrives."""
        ...

    def draws_a_drop(self) -> bool:
        """Whether the connection breaks down here."""
        ...


def _nobody() -> None:
    """A callback that was not set."""


def _nobody_hears(signal: Signal) -> None:
    """A callback that was not set."""


class Pipe:
    """Bytes and signals from a writer to a reader."""

    def __init__(
        self,
        links: PipeLinks,
        source: str,
        target: str,
        *,
        reader_clock: Clock,
        writer_clock: Clock,
        window_bytes: int,
    ) -> None:
        self.on_bytes: Callable[[], None] = _nobody  # for the reader: `arrived` has grown
        self.on_signal: Callable[[Signal], None] = _nobody_hears  # for the reader
        self.on_room: Callable[[], None] = _nobody  # for the writer: write again
        self.on_drop: Callable[[], None] = _nobody  # the connection broke down on the way
        self.on_shut: Callable[[], None] = _nobody
        self.arrived = bytearray()  # not yet taken by the reader
        self.has_ended = False  # END has arrived; everything before it is in `arrived`
        self.is_shut = False  # the reader is gone: what arrives is thrown away
        self._links = links
        self._way = (source, target)
        self._reader_clock = reader_clock
        self._writer_clock = writer_clock
        self._window_bytes = window_bytes
        self._underway: deque[bytes | Signal] = deque()
        self._underway_bytes = 0  # of the bytes in the deque
        self._last_due = 0.0  # no delay lets a later piece overtake an earlier one
        self._held = 0  # pieces whose time came while the route was cut
        self._writer_waits = False

    # The writer's side

    def write(self, data: memoryview) -> int:
        """Send what there is room for; returns its length. `on_room` tells when there is more."""
        if self.is_shut:
            return len(data)
        room = self._window_bytes - self._underway_bytes - len(self.arrived)
        accepted = min(max(room, 0), len(data))
        if accepted:
            self._underway_bytes += accepted
            self._dispatch(bytes(data[:accepted]))
        self._writer_waits = accepted < len(data)
        return accepted

    def signal(self, signal: Signal) -> None:
        self._dispatch(signal)

    def discard(self) -> None:
        """Lose the bytes that are under way; signals arrive."""
        signals = [piece for piece in self._underway if isinstance(piece, Signal)]
        self._underway = deque(signals)
        self._underway_bytes = 0

    def _dispatch(self, piece: bytes | Signal) -> None:
        self._underway.append(piece)
        now = self._reader_clock.monotonic()
        self._last_due = max(self._last_due, now + self._links.draw_delay(*self._way))
        self._reader_clock.call_later(self._last_due - now, self._arrive)

    # The way

    def _arrive(self) -> None:
        """The time of one piece has come: the oldest one arrives."""
        if not self._underway:
            return
        if self._links.is_cut(*self._way):
            self._held += 1
            return
        piece = self._underway.popleft()
        if self.is_shut:
            return
        if self._links.draws_a_drop():
            self.on_drop()
        elif isinstance(piece, Signal):
            self.has_ended = self.has_ended or piece is Signal.END
            self.on_signal(piece)
        else:
            self._underway_bytes -= len(piece)
            self.arrived += piece
            self.on_bytes()

    def release(self) -> None:
        """The route may be open again: try what was held."""
        held, self._held = self._held, 0
        for _ in range(held):
            self._reader_clock.call_later(0, self._arrive)

    # The reader's side

    def read_bytes(self, count: int) -> bytearray:
        """Remove this many bytes from `arrived`, which makes room for the writer."""
        taken = self.arrived[:count]
        del self.arrived[:count]
        self._wake_writer()
        return taken

    def _wake_writer(self) -> None:
        if self._writer_waits:
            self._writer_waits = False
            self._writer_clock.call_later(0, lambda: self.on_room())

    def shut(self) -> None:
        """The reader goes. The writer may go on writing, as with a closed socket."""
        if not self.is_shut:
            self.is_shut = True
            self.arrived.clear()
            self._wake_writer()
            self.on_shut()
