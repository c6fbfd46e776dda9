"""The clock port: every reading of time and every timer in Moldau goes through it.

The clocks of a client and of a broker are below. `moldau.testing.ManualClock` stands still until a
test moves it, which is how retention, sessions and time-outs are tested without waiting, and how a
whole cluster runs on virtual time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeVar, cast

T = TypeVar("T")


class Timer(Protocol):
    """A pending call. Cancelling one that has fired does nothing."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Reads time and arms timers. Timers fire on the event loop that armed them."""

    def now_ms(self) -> int:
        """Wall clock in milliseconds since 1970, for what is stored or sent. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring how long something took."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer: ...


class SystemClock:
    """The machine's clock and asyncio's timers."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class WorkInterrupted(Exception):
    """Somebody asked for the end of work before it was done (`Interruption`)."""


class Interruption:
    """Lets others end what a task waits for, and not the task. For one piece of work.

    As `asyncio.timeout`, it cancels the task and takes the cancellation back: brokers ask each
    other many times a second, and a task for each request would cost more than the rest of the
    waiting. A task that somebody else cancels meanwhile is cancelled.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None  # that does the work
        self._is_requested = False

    def request(self) -> None:
        """End the work if it is under way."""
        if self._task is not None and not self._is_requested:
            self._is_requested = True
            self._task.cancel()

    async def run(self, work: Awaitable[T]) -> T:
        """Do the work; raises `WorkInterrupted` when it was cancelled by a request."""
        task = self._task = cast("asyncio.Task[object]", asyncio.current_task())
        cancellations = task.cancelling()
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_requested and task.cancelling() <= cancellations + 1:
                raise WorkInterrupted from None
            raise
        except Exception as error:
            if task.cancelling() > cancellations + self._is_requested:  # by somebody else
                raise asyncio.CancelledError from error
            raise
        finally:
            self._task = None
            if self._is_requested:
                task.uncancel()


async def finish_within(work: Awaitable[T], clock: Clock, seconds: float) -> T:
    """Do the work; raises TimeoutError, and cancels it, when it takes longer on this clock."""
    interruption = Interruption()
    timer = clock.call_later(seconds, interruption.request)
    try:
        return await interruption.run(work)
    except WorkInterrupted:
        raise TimeoutError(f"it was not done within {seconds:g} seconds") from None
    finally:
        timer.cancel()


_COUNTS_SUSPENSION: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux's CLOCK_MONOTONIC stands still while the machine sleeps, CLOCK_BOOTTIME does not. Where
there is no such clock (macOS, the BSDs), CLOCK_MONOTONIC counts the sleep; `time.monotonic` does
not on macOS, as it reads another one."""


class MachineClock(SystemClock):
    """The clock of a broker: a machine that was suspended has aged meanwhile.

    A lease must not outlive the session that it stands for (REP-4), and ZooKeeper counts on while
    this machine sleeps. Deadlines of a broker are compared with `monotonic` alone, so they follow;
    timers are asyncio's and stand still, so what is due during the sleep comes after it.
    """

    def monotonic(self) -> float:
        return time.clock_gettime(_COUNTS_SUSPENSION)
