"""How the messages of a simulated coordination service travel.

A `StoreStream` carries messages one way, in order: late by the delay of its link, held while the
link is cut, gone when the connection is broken. Who means what is in `simulated_coordination`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from moldau.clock import Clock
from moldau.testing.memory_pipe import PipeLinks

M = TypeVar("M")


class StoreLinks(PipeLinks, Protocol):
    """The ways between hosts, and when they are open again: `MemoryNetwork`."""

    def when_healed(self, callback: Callable[[], None]) -> None: ...


class StoreStream(Generic[M]):
    """One direction of a connection."""

    def __init__(
        self,
        links: StoreLinks,
        source: str,
        target: str,
        *,
        reader_clock: Clock,
        deliver: Callable[[M], None],
    ) -> None:
        self._links = links
        self._source = source
        self._target = target
        self._reader_clock = reader_clock
        self._deliver = deliver
        self._underway: deque[M] = deque()
        self._last_due = 0.0  # of the reader's clock: nothing overtakes
        self._held = 0  # messages whose time came while the link was cut
        self._is_broken = False

    def send(self, message: M) -> None:
        if self._is_broken:
            return
        self._underway.append(message)
        now = self._reader_clock.monotonic()
        delay = self._links.draw_delay(self._source, self._target)
        self._last_due = max(self._last_due, now + delay)
        self._reader_clock.call_later(self._last_due - now, self._arrive)

    def _arrive(self) -> None:
        if self._links.is_cut(self._source, self._target):
            self._held += 1
        elif self._underway:
            self._deliver(self._underway.popleft())

    def release(self) -> None:
        """The link may be open again."""
        held, self._held = self._held, 0
        for _ in range(held):
            self._reader_clock.call_later(0, self._arrive)

    def deliver_all(self) -> None:
        """What is under way arrives now, unless the link is cut."""
        while self._underway and not self._links.is_cut(self._source, self._target):
            self._deliver(self._underway.popleft())

    def break_down(self) -> None:
        """What is under way is lost."""
        self._is_broken = True
        self._underway.clear()
