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
    """Do the work; raises TimeoutError, and cancels it, when it takes longer on this clock."""
    task = asyncio.get_running_loop().create_task(work)

    def give_up() -> None:
        task.cancel()

    timer = clock.call_later(seconds, give_up)
    try:
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))
        if not task.cancelled():
            task.exception()  # seen: nobody is left to raise it to
        raise
    finally:
        timer.cancel()
    if task.cancelled():
        raise TimeoutError(f"it was not done within {seconds:g} seconds")
    return task.result()


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
