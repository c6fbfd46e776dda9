"""One client connection on a real socket: the data path of the broker.

A shell, owned by the event loop. It keeps the rules of `net.port`: one frame at a time, answers in
order (NET-1), nothing read from a client that does not read its answers (NET-3). Bytes are received
into one buffer per connection and handed on as a view; answers leave with `sendmsg`, and file
ranges with `sendfile`, so record bytes are never copied in Python.

Why not asyncio's transports: they copy what they receive, and `loop.sendfile` costs twice the CPU
of `os.sendfile` (see docs/decisions/0003-own-connection.md).
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from moldau.errors import InvariantViolation
from moldau.model import ANONYMOUS
from moldau.net.port import MOST_OWED_ANSWERS, Chunk, ConnectionLimits, FrameReceiver, Range

_LENGTH = struct.Struct(">i")

FIRST_BUFFER_BYTES: Final = 4 << 10
"""Of a client that has just come, or is idle: there may be thousands of them."""

INITIAL_BUFFER_BYTES: Final = 32 << 10
"""What a client gets that has filled the first one."""
BUSY_BUFFER_BYTES: Final = 128 << 10
"""What a client gets that has filled that, too: several of its batches in one turn."""

KEPT_BUFFER_BYTES: Final = 2 << 20
"""A larger buffer is dropped as soon as it is empty; a smaller one when the client is idle."""

OUTPUT_PAUSE_BYTES: Final = 256 << 10
"""With this much output waiting, no further request of the connection is looked at."""

COPIED_BYTES: Final = 32 << 10
"""A range up to this size is read and leaves with what stands around it: one system call and one
packet are cheaper than `sendfile` between two others. Measured: they cost the same at 48 KiB."""

JOINED_BYTES: Final = 16 << 10
"""Output up to this size is copied together: it costs less than to name its parts to the kernel."""

BYTES_PER_TURN: Final = 4 << 20
"""What one connection may send before the others get their turn."""

_MSG_MORE: Final = getattr(socket, "MSG_MORE", 0)  # Linux: one TCP segment for header and records
_MAX_GATHER: Final = 64
_PEER_IS_GONE: Final = (errno.EPIPE, errno.ECONNRESET)
_NONE_WHILE_MUTED: Final = -1
BYTES_TYPES: Final = (bytes, bytearray, memoryview)

_NO_BUFFER: Final = bytearray()
_NO_VIEW: Final = memoryview(_NO_BUFFER)

InMemory = bytes | bytearray | memoryview


class SocketConnection:
    """The broker's end of one TCP connection."""

    __slots__ = (
        "_buffer",
        "_busy",
        "_closed",
        "_descriptor",
        "_end",
        "_ended",
        "_limits",
        "_loop",
        "_most_owed",
        "_on_gone",
        "_output",
        "_output_bytes",
        "_owed",
        "_own_limits",
        "_process_is_due",
        "_processing",
        "_reading",
        "_receiver",
        "_socket",
        "_start",
        "_view",
        "_writing",
        "close_reason",
        "frames",
        "id",
        "idle_since",
        "is_heard",
        "listener_name",
        "peer_host",
        "principal",
        "security_protocol",
        "seen_frames",
    )

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        *,
        identity: str,
        peer_host: str,
        listener_name: str,
        limits: ConnectionLimits,
        on_gone: Callable[[SocketConnection], None],
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
        self.is_heard = True  # else answers cannot be sent any more, and are dropped
        self._socket = sock
        self._descriptor = sock.fileno()
        self._loop = loop
        self._limits: ConnectionLimits | _RequestLimit = limits
        self._own_limits = limits
        self._on_gone = on_gone
        self._receiver: FrameReceiver | None = None
        self._buffer = bytearray(FIRST_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        # Invariant: 0 <= start <= end <= len(buffer); received and not yet handled: start to end.
        self._start = 0
        self._end = 0
        self._busy = False  # a frame is with the receiver, its view is in use
        self._owed = 0  # answers to frames that were given back without one
        # The next frame waits while so many are owed; while muted it waits in any case.
        self._most_owed = MOST_OWED_ANSWERS
        self._process_is_due = False  # in the next turn of the loop
        self._processing = False  # guards against re-entry when `send` is called inside `on_frame`
        self._output: deque[Chunk] = deque()
        self._output_bytes = 0  # of what is in the deque
        self._reading = False
        self._writing = False
        self._ended = False  # the client has closed; frames it sent before are still to come
        self._closed = False

    @property
    def is_busy(self) -> bool:
        return self._busy or self._owed > 0 or self._most_owed == _NONE_WHILE_MUTED

    def begin(self, receiver: FrameReceiver) -> None:
        self._receiver = receiver
        if self._closed:  # by the one who accepted it, before there was a receiver to tell
            receiver.on_closed()
        else:
            self._arm_reader()

    # Input

    def _arm_reader(self) -> None:
        if not self._reading and not self._closed:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _disarm_reader(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def _on_readable(self) -> None:
        try:
            if not self._end:  # nothing is left of what came before, as nearly always
                count = self._socket.recv_into(self._buffer)
            else:
                limit = len(self._buffer) if self._start == self._end else self._receive_limit()
                if limit == self._end:
                    # Full while a frame is being answered: the client's pipeline is too deep.
                    self._disarm_reader()
                    return
                count = self._socket.recv_into(self._view[self._end : limit])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._on_end(f"receive failed: {error.strerror}")
            return
        if not count:
            self._on_end()
            return
        self._end += count
        if not self._busy:
            self._process()

    def _on_end(self, reason: str = "closed by the client") -> None:
        """The client has closed. What it sent before counts: acks=0 means send and go."""
        has_frames = self._output_bytes >= OUTPUT_PAUSE_BYTES and self._start < self._end
        if not self.is_busy and not has_frames:
            self.close(reason)
            return
        self._ended = True
        self._disarm_reader()
        if self.is_busy and self._receiver is not None:
            self._receiver.on_client_gone()

    def _receive_limit(self) -> int:
        """How far to fill the buffer: a frame that needs most of it is read exactly to its end."""
        available = self._end - self._start
        if self._busy or available < 4:
            return len(self._buffer)
        frame_end = self._start + 4 + self._next_frame_bytes()
        return (
            frame_end
            if self._end < frame_end <= len(self._buffer)
            and (frame_end - self._start > INITIAL_BUFFER_BYTES)
            else len(self._buffer)
        )

    def _next_frame_bytes(self) -> int:
        size: int = _LENGTH.unpack_from(self._buffer, self._start)[0]
        return size

    def _process(self) -> None:
        """Hand over whole frames until one has to wait, then send what was answered."""
        receiver = self._receiver
        if self._processing or receiver is None:
            return
        if self._owed >= self._most_owed:
            self._go_on()
            return
        self._processing = True
        try:
            while not self._closed and not self._busy and self._output_bytes < OUTPUT_PAUSE_BYTES:
                start = self._start
                if self._end - start < 4:
                    break
                size: int = _LENGTH.unpack_from(self._buffer, start)[0]
                if size < 0 or size > self._limits.socket_request_max_bytes:
                    self.close(f"a request of {size} bytes is outside socket.request.max.bytes")
                    return
                frame_end = start + 4 + size
                if frame_end > self._end:
                    break
                self._start = frame_end
                self._busy = True
                self.frames += 1
                receiver.on_frame(self._view[start + 4 : frame_end])
                if self._start == self._end or self._owed >= self._most_owed:
                    break
        finally:
            self._processing = False
        if not self._closed:
            self._go_on()

    def _go_on(self) -> None:
        """Send what was answered, and see to it that the next frame will be looked at."""
        was_paused = self._output_bytes >= OUTPUT_PAUSE_BYTES
        if self._output and not self._writing:
            self._flush()
        if self._busy or self._closed or self._output_bytes >= OUTPUT_PAUSE_BYTES:
            return
        if self._owed >= self._most_owed:
            return  # whatever comes next, comes with an answer that is owed, or when unmuted
        if was_paused:
            # All went out at once. The buffer may hold further frames, for which no event will
            # come; the other connections get their turn before them.
            self._loop.call_soon(self._process)
        elif self._ended:
            # A client that has shut down its side may still read answers.
            if not self._output and not self._owed:
                self.close("closed by the client")
        else:
            if self._start == self._end < FIRST_BUFFER_BYTES:  # so the buffer is no large one
                self._start = self._end = 0
            else:
                self._make_room()
            if not self._reading:
                self._arm_reader()

    def _make_room(self) -> None:
        """Keep place for the rest of the next frame; grow only as its bytes arrive (NET-2).

        Called after `_process` found the next frame incomplete, so its length is a legal one.
        """
        available = self._end - self._start
        buffer_bytes = len(self._buffer)
        if self._end == buffer_bytes < BUSY_BUFFER_BYTES:
            is_first = buffer_bytes < INITIAL_BUFFER_BYTES
            self._replace_buffer(INITIAL_BUFFER_BYTES if is_first else BUSY_BUFFER_BYTES)
        if not available:
            self._start = self._end = 0
            if buffer_bytes > KEPT_BUFFER_BYTES:
                self._replace_buffer(INITIAL_BUFFER_BYTES)
            return
        needed = (
            4 + self._next_frame_bytes()
            if available >= 4
            else min(INITIAL_BUFFER_BYTES, len(self._buffer))
        )
        if self._start + needed <= len(self._buffer):
            return
        if needed <= len(self._buffer):
            self._view[:available] = self._view[self._start : self._end]
            self._start, self._end = 0, available
        elif self._end == len(self._buffer):
            self._replace_buffer(min(needed, 4 * len(self._buffer)))

    def _replace_buffer(self, size: int) -> None:
        available = self._end - self._start
        buffer = bytearray(size)
        buffer[:available] = self._view[self._start : self._end]
        self._buffer = buffer
        self._view = memoryview(buffer)
        self._start, self._end = 0, available

    def shrink(self) -> None:
        """Give memory back while the client is idle."""
        if not self._busy and self._start == self._end:
            self._start = self._end = 0
            if len(self._buffer) > FIRST_BUFFER_BYTES:
                self._replace_buffer(FIRST_BUFFER_BYTES)

    # Output

    def send(self, chunks: Sequence[Chunk]) -> None:
        if self._closed:
            return
        if not self._busy:
            raise self._strange_answer()
        first = chunks[0] if len(chunks) == 1 else None
        if type(first) is not bytes or self._output or self._start < self._end or not self.is_heard:
            self._queue(chunks)
        else:  # as nearly always: one client, one request, one small answer
            try:
                sent = self._socket.send(first)
            except OSError:
                sent = 0  # it fails again when the queue is sent, and is dealt with there
            if sent < len(first):
                self._queue((memoryview(first)[sent:],))
        self._busy = False
        if not self._processing:
            self._process()

    def _queue(self, chunks: Sequence[Chunk]) -> None:
        if self.is_heard:
            output_bytes = self._output_bytes
            for chunk in chunks:
                output_bytes += len(chunk) if isinstance(chunk, BYTES_TYPES) else chunk.length
            self._output.extend(chunks)
            self._output_bytes = output_bytes

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
        # One record at the replicas may answer many requests: they leave together.
        if not self._process_is_due:
            self._process_is_due = True
            self._loop.call_soon(self._process_in_turn)

    def _process_in_turn(self) -> None:
        self._process_is_due = False
        if not self._closed and not self._processing:
            if self._busy:
                self._go_on()
            else:
                self._process()

    def _strange_answer(self) -> InvariantViolation:
        return InvariantViolation(f"NET-1: connection {self.id}: an answer without a request")

    def _answered(self) -> None:
        if not self._busy:
            raise self._strange_answer()
        self._busy = False
        if not self._processing:
            self._process()

    def _flush(self) -> None:
        """Send until all is out, the socket is full, or others want their turn."""
        turn = BYTES_PER_TURN
        output = self._output
        try:
            while output and turn > 0:
                if len(output) > 1 and self._output_bytes <= JOINED_BYTES:
                    self._join_output()
                first = output[0]
                if isinstance(first, bytes) and (len(output) == 1 or _is_large(output[1])):
                    # What nearly every answer is, and what stands before the records of a large
                    # one: for a single buffer `sendmsg` costs more.
                    sent = self._socket.send(first, _MSG_MORE if len(output) > 1 else 0)
                    if sent == len(first):
                        output.popleft()
                    else:
                        output[0] = memoryview(first)[sent:]
                elif isinstance(first, BYTES_TYPES) or first.length <= COPIED_BYTES:
                    sent = self._send_views()
                else:
                    sent = self._send_range(first)
                self._output_bytes -= sent
                turn -= sent
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._on_unsendable(error)
            return
        if self._output:
            self._arm_writer()

    def _on_unsendable(self, error: OSError) -> None:
        """Nobody reads the answers. What the client sent before it went is still handled."""
        has_more = self._reading or self._ended or self._start < self._end
        self._output.clear()  # first: `close` would try to send it, and fail the same way
        self._output_bytes = 0
        if error.errno not in _PEER_IS_GONE or not has_more:
            self.close(f"send failed: {error.strerror}")
            return
        self.is_heard = False

    def _join_output(self) -> None:
        output = self._output
        joined = b"".join(
            [one if isinstance(one, BYTES_TYPES) else read_whole(one) for one in output]
        )
        output.clear()
        output.append(joined)

    def _send_views(self) -> int:
        """Send what is in memory, and small ranges, up to the first large range."""
        output = self._output
        views: list[InMemory] = []
        size_bytes = more = 0
        for place, chunk in enumerate(output):
            if not isinstance(chunk, BYTES_TYPES):
                if chunk.length > COPIED_BYTES:
                    more = _MSG_MORE
                    break
                chunk = output[place] = read_whole(chunk)
            views.append(chunk)
            size_bytes += len(chunk)
            if len(views) == _MAX_GATHER:
                break
        sent = self._socket.sendmsg(views, (), more)
        if sent == size_bytes and len(views) == len(output):
            output.clear()
            return sent
        left = sent
        for view in views:
            if left < len(view):
                output[0] = memoryview(view)[left:]
                break
            left -= len(view)
            output.popleft()
        return sent

    def _send_range(self, chunk: Range) -> int:
        descriptor = chunk.descriptor
        if descriptor is None:
            self._output[0] = read_whole(chunk)
            return 0
        sent = os.sendfile(self._descriptor, descriptor, chunk.position, chunk.length)
        if not sent:
            raise OSError(0, "a file range is shorter than announced")
        if sent == chunk.length:
            self._output.popleft()
        elif isinstance(chunk, RestOfRange):
            chunk.advance(sent)
        else:
            self._output[0] = RestOfRange(chunk, descriptor, sent)
        return sent

    def _arm_writer(self) -> None:
        if not self._writing and not self._closed:
            self._writing = True
            self._loop.add_writer(self._descriptor, self._on_writable)

    def _disarm_writer(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._descriptor)

    def _on_writable(self) -> None:
        self._flush()
        if self._closed or self._output:
            return
        self._disarm_writer()
        if not self._busy:
            self._process()

    # Waiting

    def mute(self) -> None:
        self._most_owed = _NONE_WHILE_MUTED

    def unmute(self) -> None:
        if self._most_owed == _NONE_WHILE_MUTED:
            self._most_owed = MOST_OWED_ANSWERS
            if not self._closed and not self._busy:
                self._process()

    # The end

    def close(self, reason: str) -> None:
        if self._processing and self._output and not self._writing:
            self._flush()  # the answers to what came before, in the same read as the last request
        if self._closed:
            return
        self._closed = True
        self.close_reason = reason
        self._disarm_reader()
        self._disarm_writer()
        self._output.clear()
        self._output_bytes = 0
        self._hang_up()
        self._on_gone(self)
        # Nothing waits for the collector of garbage: who opens and closes connections as fast as he
        # can would have the memory of thousands before it comes. A frame in use keeps its bytes.
        self._buffer, self._view = _NO_BUFFER, _NO_VIEW
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_closed()

    def _hang_up(self) -> None:
        self._socket.close()

    def limit_requests(self, max_bytes: int | None) -> None:
        self._limits = self._own_limits if max_bytes is None else _RequestLimit(max_bytes)


class _RequestLimit:
    """For a client of whom nobody knows yet who it is."""

    __slots__ = ("socket_request_max_bytes",)

    def __init__(self, max_bytes: int) -> None:
        self.socket_request_max_bytes = max_bytes


def _is_large(chunk: Chunk) -> bool:
    """Whether a chunk leaves by `sendfile`."""
    return not isinstance(chunk, BYTES_TYPES) and chunk.length > COPIED_BYTES


def read_whole(chunk: Range) -> bytes:
    data = chunk.read()
    if len(data) != chunk.length:
        raise OSError(0, "a file range is shorter than announced")
    return data


class RestOfRange:
    """What is left of a range after a partial send; it holds the range and so its file."""

    __slots__ = ("_range", "descriptor", "length", "position")

    def __init__(self, source: Range, descriptor: int, sent: int) -> None:
        self._range = source
        self.descriptor = descriptor
        self.position = source.position + sent
        self.length = source.length - sent

    def advance(self, sent: int) -> None:
        self.position += sent
        self.length -= sent

    def read(self) -> bytes:
        return os.pread(self.descriptor, self.length, self.position)
