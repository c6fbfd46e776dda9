"""The clock port: every reading of time and every timer in Moldau goes through it.

The clocks of a client and of a broker are below. `moldau.testing.ManualClock` stands still until a
test moves it, which is how retention, sessions and time-outs are tested without waiting, and how a
whole cluster runs on virtual time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

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


async def finish_within(work: Coroutine[Any, Any, T], clock: Clock, seconds: float) -> T:
    """Do the work; raises TimeoutError, and cancels it, when it takes longer on this clock.

    As `asyncio.timeout`, it runs in the task of its caller: brokers ask each other many times a
    second, and a task for each request would cost more than the rest of the waiting. An error of
    work that ends because somebody cancels the caller is left out: the cancellation is raised.
    """
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("only a task can wait")
    cancellations = task.cancelling()
    is_late = False

    def give_up() -> None:
        nonlocal is_late
        is_late = True
        task.cancel()

    timer = clock.call_later(seconds, give_up)
    try:
        return await work
    except (Exception, asyncio.CancelledError) as error:
        is_cancelled = isinstance(error, asyncio.CancelledError)
        if task.cancelling() > cancellations + is_late:  # by somebody else
            if is_cancelled:
                raise
            raise asyncio.CancelledError from error
        if is_late and is_cancelled:
            message = f"it was not done within {seconds:g} seconds"
            raise TimeoutError(message) from None
        raise
    finally:
        timer.cancel()
        if is_late:
            task.uncancel()


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
