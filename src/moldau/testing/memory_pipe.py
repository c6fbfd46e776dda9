"""One direction of a connection in memory: bytes arrive in order, late, or not while it is cut.

A `Pipe` behaves as TCP does towards its users. What is written arrives in order after the delay
of its route; while the route is cut nothing arrives and nothing is lost; a writer whose peer does
not read is told to wait. It has one reader and one writer, who set its callbacks. All callbacks
come from the event loop, never from inside a call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from moldau.clock import Clock


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

    def take(self, count: int) -> bytearray:
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
