"""One client connection on a real socket, encrypted.

`SocketConnection` with TLS below it: frames, order and back-pressure are the same. OpenSSL reads
and writes the socket itself, so nothing is copied twice; ranges of files have to be read, since the
kernel cannot encrypt them on their way. A shell, owned by the event loop.

What differs from a plain socket, and is dealt with here: there may be received bytes of which the
event loop does not know, because OpenSSL holds them; and reading may have to write first, or the
other way round.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from moldau.net.connection import (
    BYTES_PER_TURN,
    BYTES_TYPES,
    InMemory,
    RestOfRange,
    SocketConnection,
    read_whole,
)
from moldau.net.port import Chunk, Range

RECORD_BYTES: Final = 16 << 10
"""What one record of TLS carries, and so the most that OpenSSL takes or gives in one call."""

READ_BYTES: Final = 256 << 10
"""How much of a file is read at a time."""

_GONE: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
"""The client has closed: as one that only looks whether somebody listens does."""

PeerCertificate = Mapping[str, Any]
"""As `ssl` gives it; empty when the client has shown none."""


class TlsConnection(SocketConnection):
    """The broker's end of one TLS connection. Nobody hears of a frame before the handshake."""

    __slots__ = (
        "_is_shaken",
        "_on_refused",
        "_on_shaken",
        "_read_is_due",
        "_read_waits",
        "_turns",
        "_write_waits",
    )

    def secure(
        self,
        turns: HandshakeTurns,
        on_shaken: Callable[[TlsConnection, PeerCertificate], None],
        on_refused: Callable[[TlsConnection, str], None],
    ) -> None:
        """Call before `begin`. `on_shaken` hears of the handshake's success, `on_refused` why the
        two sides could not agree; of a client that just goes nobody hears."""
        self._turns = turns
        self._on_shaken = on_shaken
        self._on_refused = on_refused
        self._is_shaken = False
        self._read_is_due = False  # in the next turn of the loop
        self._read_waits = False  # until the socket takes bytes
        self._write_waits = False  # until the socket has bytes

    @property
    def _tls(self) -> ssl.SSLSocket:
        return cast("ssl.SSLSocket", self._socket)

    def _wait_for_turn(self) -> None:
        self._disarm_reader()
        self._disarm_writer()
        self._turns.add(self)

    def shake_hands(self) -> None:
        """One step of the handshake, in its turn."""
        if self._closed:
            return
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._arm_reader()
            return
        except ssl.SSLWantWriteError:
            self._arm_writer()
            return
        except (OSError, ValueError) as error:
            reason = f"the TLS handshake failed: {_reason(error)}"
            self.close(reason)
            if isinstance(error, ssl.SSLError) and not isinstance(error, _GONE):
                self._on_refused(self, reason)
            return
        self._arm_reader()
        self._is_shaken = True
        try:
            certificate = cast("PeerCertificate | None", self._tls.getpeercert())
            self._on_shaken(self, certificate or {})
        except Exception as error:  # noqa: BLE001 nobody knows who it is
            reason = f"the certificate of {self.peer_host} cannot be read: {_reason(error)}"
            self.close(reason)
            self._on_refused(self, reason)
        if not self._closed:
            self._on_readable()

    # Input

    def _arm_reader(self) -> None:
        super()._arm_reader()
        if self._is_shaken and not self._closed and self._tls.pending():
            self._read_soon()

    def _read_soon(self) -> None:
        """OpenSSL holds bytes for which no event will come."""
        if not self._read_is_due:
            self._read_is_due = True
            self._loop.call_soon(self._read_in_turn)

    def _read_in_turn(self) -> None:
        self._read_is_due = False
        if self._reading and not self._closed:
            self._on_readable()

    def _on_readable(self) -> None:
        if not self._is_shaken:
            self._wait_for_turn()
            return
        if self._write_waits:
            self._write_waits = False
            self._flush()
        turn = BYTES_PER_TURN
        while turn > 0 and self._reading and not self._closed:
            end, limit = self._end, len(self._buffer)
            if self._start < end:
                limit = self._receive_limit()
            count = self._receive(limit)
            turn -= count
            if count < RECORD_BYTES and (count < limit - end or not self._is_pending()):
                # One call gives no more than one record. OpenSSL holds something back only where
                # it did not fit: of what else has come the kernel will tell.
                return
        if self._reading and self._is_pending():
            self._read_soon()

    def _is_pending(self) -> bool:
        return not self._closed and self._tls.pending() > 0

    def _receive(self, limit: int) -> int:
        """How many bytes came; 0 when there is nothing more to come at the moment."""
        end = self._end
        if limit == end:
            self._disarm_reader()
            return 0
        try:
            count = self._tls.recv_into(self._view[end:] if end else self._view, limit - end)
        except (ssl.SSLWantReadError, BlockingIOError, InterruptedError):
            return 0
        except ssl.SSLWantWriteError:
            self._read_waits = True
            self._arm_writer()
            return 0
        except (OSError, ValueError) as error:
            self._on_end(f"receive failed: {_reason(error)}")
            return 0
        if not count:
            self._on_end()
            return 0
        self._end += count
        if not self._busy:
            self._process()
        return count

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
                sent = self._tls.send(first)
            except OSError:
                sent = 0  # it fails again when the queue is sent, and is dealt with there
            if sent < len(first):
                self._queue((memoryview(first)[sent:] if sent else first,))
        self._busy = False
        if not self._processing:
            self._process()

    def _flush(self) -> None:
        if not self._is_shaken:
            return
        turn = BYTES_PER_TURN
        output = self._output
        try:
            while output and turn > 0:
                data = self._gather()
                sent = self._tls.send(data)
                if sent == len(data):
                    output.popleft()
                else:
                    output[0] = memoryview(data)[sent:]
                self._output_bytes -= sent
                turn -= sent
        except ssl.SSLWantReadError:
            self._write_waits = True
            self._arm_reader()
            return
        except (ssl.SSLWantWriteError, BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._on_unsendable(error)
            return
        if self._output:
            self._arm_writer()

    def _gather(self) -> InMemory:
        """What leaves next, at the head of the output: at least a record, if there is so much.

        OpenSSL has to be given again what it could not send, so the head only ever grows.
        """
        output = self._output
        first = self._read_head()
        if len(first) >= RECORD_BYTES or len(output) == 1:
            return first
        parts, size = [output.popleft()], len(first)
        while output and size < RECORD_BYTES:
            part = self._read_head()
            size += len(part)
            parts.append(output.popleft())
        joined = b"".join(cast("list[InMemory]", parts))
        output.appendleft(joined)
        return joined

    def _read_head(self) -> InMemory:
        """The first chunk; a piece of it, if it is a large range of a file."""
        chunk = self._output[0]
        if isinstance(chunk, BYTES_TYPES):
            return chunk
        piece = _read_piece(chunk)
        if len(piece) < chunk.length and chunk.descriptor is not None:
            self._output[0] = RestOfRange(chunk, chunk.descriptor, len(piece))
            self._output.appendleft(piece)
        else:
            self._output[0] = piece
        return piece

    def _on_writable(self) -> None:
        if not self._is_shaken:
            self._wait_for_turn()
            return
        super()._on_writable()
        if self._read_waits and not self._closed:
            self._read_waits = False
            self._on_readable()

    # The end

    def _hang_up(self) -> None:
        if self._is_shaken:
            # Says that this is the end and not a cut; whether the client answers does not matter.
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        super()._hang_up()


def _read_piece(chunk: Range) -> bytes:
    if chunk.length <= READ_BYTES or chunk.descriptor is None:
        return read_whole(chunk)
    data = os.pread(chunk.descriptor, READ_BYTES, chunk.position)
    if len(data) != READ_BYTES:
        raise OSError(0, "a file range is shorter than announced")
    return data


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)


STEPS_PER_TURN: Final = 4
"""With an elliptic key a millisecond; with RSA of 4,096 bits some twenty."""


class Handshaking(Protocol):
    def shake_hands(self) -> None:
        """One step; does nothing when the connection is closed."""
        ...


class HandshakeTurns:
    """TLS handshakes whose next step is due; they take turns with everything else on the loop.

    A step of a handshake signs with the private key, which takes up to some milliseconds. When a
    thousand clients connect at once, all their steps in one turn of the loop would hold up every
    other connection. So each turn takes a few of them, in the order of coming, and looks at the
    other sockets before the next few.
    """

    __slots__ = ("_due", "_is_scheduled", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: deque[Handshaking] = deque()
        self._is_scheduled = False

    def add(self, connection: Handshaking) -> None:
        """It is not to be added again before its step was done."""
        self._due.append(connection)
        self._schedule()

    def _schedule(self) -> None:
        if self._due and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        self._is_scheduled = False
        try:
            for _ in range(min(STEPS_PER_TURN, len(self._due))):
                self._due.popleft().shake_hands()
        finally:  # one that fails holds up nobody else
            self._schedule()
