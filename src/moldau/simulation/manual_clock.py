"""Clocks for tests: stopped until a test moves them, skewed, paused, or running with jumps."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sized
from contextlib import contextmanager
from typing import Final, TypeVar

from moldau.clock import Clock, Timer

# `ManualClock` stands still. `await clock.advance(60)` lets a minute pass: every timer that comes
# due fires at its own time, and the event loop runs until nothing is left to do before time moves
# on. Code that sleeps in a loop therefore sees each of its wake-ups at the right moment, and a test
# of a seven-day retention takes a millisecond.
#
#     clock = ManualClock()
#     task = asyncio.create_task(broker_under_test(clock))
#     await clock.advance(7 * 24 * 3600)
#
# `SkewedClock` and `PausableClock` wrap another clock, for clusters whose machines disagree about
# the time and for processes that are stopped for a while.


T = TypeVar("T")

DEFAULT_START_MS: Final = 1_700_000_000_000
"""A Tuesday in November 2023: far from zero, so that a forgotten unit is seen."""

_NANOSECONDS: Final = 1_000_000_000
_MOST_ROUNDS: Final = 100_000
_ROUNDS_IN_THE_DARK: Final = 100


async def wait_until_idle() -> None:
    """Let the running loop work until no task and no callback is ready to run.

    What waits for a timer, a thread or a socket counts as idle; what has already arrived at a
    socket does not. A task that never waits for anything else than its next turn is reported.
    """
    ready: Sized | None = getattr(asyncio.get_running_loop(), "_ready", None)
    if ready is None:  # a loop that is not asyncio's own does not show its queue
        for _ in range(_ROUNDS_IN_THE_DARK):
            await asyncio.sleep(0)
        return
    quiet = 0
    for _ in range(_MOST_ROUNDS):
        await asyncio.sleep(0)
        quiet = 0 if ready else quiet + 1
        # Twice: what ran just before the first quiet round may have written to a socket, which
        # the loop finds out in the round after.
        if quiet == 2:
            return
    raise RuntimeError(f"the event loop was still busy after {_MOST_ROUNDS} rounds")


class ManualTimer:
    """A timer of a `ManualClock`."""

    __slots__ = ("_callback", "_loop", "due_ns")

    def __init__(self, due_ns: int, callback: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self._callback: Callable[[], None] | None = callback  # None once fired or cancelled
        self._loop = asyncio.get_running_loop()

    @property
    def is_pending(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        """Have the loop that armed the timer call it, as its own timers are called."""
        if self._loop.is_closed():
            self._callback = None
        elif asyncio._get_running_loop() is self._loop:
            self._loop.call_soon(self._run)
        else:
            self._loop.call_soon_threadsafe(self._run)

    def _run(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class ManualClock:
    """A clock that moves only when it is told to. Implements `moldau.clock.Clock`.

    Owned by the loop that advances it. Timers fire in the order of their times, those of equal
    times in the order in which they were armed.
    """

    def __init__(self, start_ms: int = DEFAULT_START_MS) -> None:
        self._start_ms = start_ms
        # Whole nanoseconds, so that ten times 0.1 s is one second.
        self._elapsed_ns = 0
        self._timers: list[tuple[int, int, ManualTimer]] = []  # a heap, cancelled ones included
        self._armed = itertools.count()
        self._advancing = False

    def now_ms(self) -> int:
        return self._start_ms + self._elapsed_ns // 1_000_000

    def monotonic(self) -> float:
        return self._elapsed_ns / _NANOSECONDS

    async def sleep(self, seconds: float) -> None:
        await (sleep_on(self, seconds) if seconds > 0 else asyncio.sleep(0))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        if seconds <= 0:
            return asyncio.get_running_loop().call_soon(callback)
        timer = ManualTimer(self._elapsed_ns + _nanoseconds(seconds), callback)
        heapq.heappush(self._timers, (timer.due_ns, next(self._armed), timer))
        return timer

    # Moving it

    async def advance(self, seconds: float) -> None:
        """Let time pass. What is ready runs first; then each timer that comes due, in turn.

        After each timer the loop runs until it is idle, still at the time of that timer.
        """
        end_ns = self._elapsed_ns + _nanoseconds(seconds)
        with self._one_at_a_time():
            await wait_until_idle()
            while await self._fire_next(end_ns):
                pass
            self._elapsed_ns = max(self._elapsed_ns, end_ns)

    async def run_until_done(self, work: Awaitable[T], *, limit_seconds: float = 3600.0) -> T:
        """Wait for `work`, jumping from timer to timer while it waits for time to pass.

        For work that waits for this clock only. Raises `TimeoutError` when it is not done after
        `limit_seconds` of this clock, or when nothing is left that could wake it.
        """
        end_ns = self._elapsed_ns + _nanoseconds(limit_seconds)
        task = asyncio.ensure_future(work)
        try:
            with self._one_at_a_time():
                await wait_until_idle()
                while not task.done():
                    if not await self._fire_next(end_ns):
                        raise TimeoutError(f"still waiting, and no timer within {limit_seconds} s")
            return await task
        finally:
            task.cancel()

    def jump(self, seconds: float) -> None:
        """Move at once, without the loop running in between, as a suspended machine wakes up.

        Timers that came due are called when the loop runs again; all of them see the new time.
        """
        self._elapsed_ns += _nanoseconds(seconds)
        while (timer := self._take_due(self._elapsed_ns)) is not None:
            timer.fire()

    # Looking at it

    @property
    def pending_timers(self) -> int:
        """How many timers are armed: a way to see that nothing was left behind."""
        return sum(timer.is_pending for _, _, timer in self._timers)

    def find_next_timer(self) -> float | None:
        """Seconds until the next timer, or None when none is armed."""
        self._drop_cancelled()
        if not self._timers:
            return None
        return (self._timers[0][0] - self._elapsed_ns) / _NANOSECONDS

    async def _fire_next(self, end_ns: int) -> bool:
        timer = self._take_due(end_ns)
        if timer is None:
            return False
        self._elapsed_ns = max(self._elapsed_ns, timer.due_ns)
        timer.fire()
        await wait_until_idle()
        return True

    def _take_due(self, end_ns: int) -> ManualTimer | None:
        self._drop_cancelled()
        if self._timers and self._timers[0][0] <= end_ns:
            return heapq.heappop(self._timers)[2]
        return None

    def _drop_cancelled(self) -> None:
        while self._timers and not self._timers[0][2].is_pending:
            heapq.heappop(self._timers)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if self._advancing:  # two would each wait for the other to become idle
            raise RuntimeError("the clock is already being advanced")
        self._advancing = True
        try:
            yield
        finally:
            self._advancing = False


class SkewedClock:
    """Another clock whose wall time is off. `skew_ms` may be changed while it runs."""

    def __init__(self, base: Clock, skew_ms: int = 0) -> None:
        self._base = base
        self.skew_ms = skew_ms

    def now_ms(self) -> int:
        return self._base.now_ms() + self.skew_ms

    def monotonic(self) -> float:
        return self._base.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._base.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return self._base.call_later(seconds, callback)


class PausableClock(SkewedClock):
    """Another clock whose timers can be held: a process that gets no CPU for a while.

    Time goes on during the pause. Timers that come due are held, and fire on `resume` in the
    order in which they came due.
    """

    def __init__(self, base: Clock) -> None:
        super().__init__(base)
        self._held: list[_HeldTimer] = []
        self.is_paused = False

    async def sleep(self, seconds: float) -> None:
        await sleep_on(self, seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = _HeldTimer(self, callback)
        timer.arm(self._base, seconds)
        return timer

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self._held = self._held, []
        for timer in held:
            timer.arm(self._base, 0)

    def hold(self, timer: _HeldTimer) -> None:
        self._held.append(timer)


class _HeldTimer:
    """A timer that asks, when it comes due, whether its clock is paused."""

    def __init__(self, owner: PausableClock, callback: Callable[[], None]) -> None:
        self._owner = owner
        self._callback: Callable[[], None] | None = callback  # None once fired or cancelled
        self._armed: Timer | None = None

    def arm(self, base: Clock, seconds: float) -> None:
        if self._callback is not None:
            self._armed = base.call_later(seconds, self._due)

    def cancel(self) -> None:
        self._callback = None
        if self._armed is not None:
            self._armed.cancel()

    def _due(self) -> None:
        if self._owner.is_paused:
            self._owner.hold(self)
            return
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


async def sleep_on(clock: Clock, seconds: float) -> None:
    """Wait for a timer of this clock."""
    woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    timer = clock.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
    try:
        await woken
    finally:
        timer.cancel()


def _nanoseconds(seconds: float) -> int:
    """Rounded, but never to nothing.

    A remainder of 1e-17 s, as subtracting two readings can leave, would otherwise arm a timer
    for the present, and code that waits for the rest would turn in circles.
    """
    if seconds < 0:
        raise ValueError(f"time does not go back: {seconds} s")
    return max(1, round(seconds * _NANOSECONDS)) if seconds else 0


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
        self._owner.forget_timer(self)
        if callback is not None:
            callback()

    def cancel(self) -> None:
        self._callback = None
        if self._handle is not None:
            self._handle.cancel()
        self._owner.forget_timer(self)


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

    def forget_timer(self, timer: _MovingTimer) -> None:
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
