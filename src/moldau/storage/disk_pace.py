"""Keeps work on disks within so many bytes per second.

A tiny shell: it asks the clock, and sleeps on it.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.clock import Clock

_SHORTEST_SECONDS = 0.001
"""Shorter waits are summed up first."""

_LONGEST_SECONDS = 1.0
"""Slept at once: then the rate may be another one."""


class DiskPace:
    """An allowance that may be shared; its rate may change at any time, also for who waits."""

    def __init__(self, clock: Clock, rate: Callable[[], float]) -> None:
        self._clock = clock
        self._rate = rate  # bytes per second
        self._owed_bytes = 0.0  # moved, and not paid for with time
        self._paid_until = 0.0  # by the clock

    async def wait(self, moved_bytes: int) -> None:
        """Wait as long as these bytes may take, and those of others that share the allowance."""
        self._pay()
        self._owed_bytes += moved_bytes
        while (seconds := self._owed_bytes / max(self._rate(), 1.0)) >= _SHORTEST_SECONDS:
            await self._clock.sleep(min(seconds, _LONGEST_SECONDS))
            self._pay()

    def _pay(self) -> None:
        now = self._clock.monotonic()
        paid_bytes = (now - self._paid_until) * max(self._rate(), 1.0)
        self._owed_bytes = max(0.0, self._owed_bytes - paid_bytes)
        self._paid_until = now
