"""A clock that runs, and that a test can push forward: for brokers with real sockets.

`advance(60)` lets a minute pass at once: readings jump, and timers that came due are called. It may
be called from any thread; it returns when the timers have been called.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from moldau.clock import Timer
from moldau.testing.manual_clock import sleep_on


class _MovingTimer:
    """A timer that can be armed again when the clock is pushed."""

    def __init__(self, owner: MovingClock, due: float, callback: Callable[[], None]) -> None:
        self.due = due  # by the owner's monotonic time
        self._owner = owner
        self._callback: Callable[[], None] | None = callback  # None once fired or cancelled
        self._handle: asyncio.Handle | None = None

    def arm(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = loop.call_later(max(0.0, self.due - self._owner.monotonic()), self._fire)

    def _fire(self) -> None:
        callback, self._callback = self._callback, None
        self._owner.forget(self)
        if callback is not None:
            callback()

    def cancel(self) -> None:
        self._callback = None
        if self._handle is not None:
            self._handle.cancel()
        self._owner.forget(self)


class MovingClock:
    """The machine's clock plus what it was pushed by. Timers belong to one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pushed_seconds = 0.0
        self._timers: dict[_MovingTimer, None] = {}

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + int(self._pushed_seconds * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self._pushed_seconds

    async def sleep(self, seconds: float) -> None:
        await (sleep_on(self, seconds) if seconds > 0 else asyncio.sleep(0))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = _MovingTimer(self, self.monotonic() + seconds, callback)
        self._timers[timer] = None
        timer.arm(self._loop)
        return timer

    def forget(self, timer: _MovingTimer) -> None:
        self._timers.pop(timer, None)

    def advance(self, seconds: float) -> None:
        """Let this much time pass at once. Not to be called from the loop's own thread."""
        done = threading.Event()
        self._loop.call_soon_threadsafe(self._push, seconds, done)
        done.wait()

    def _push(self, seconds: float, done: threading.Event) -> None:
        self._pushed_seconds += seconds
        for timer in sorted(self._timers, key=lambda each: each.due):
            timer.arm(self._loop)
        # Behind the timers that are due now.
        self._loop.call_later(0, self._loop.call_soon, done.set)
