"""Waiting for things to happen, without missing what happens just before. A shell of one loop."""

from __future__ import annotations

import asyncio

from moldau.clock import Clock


class News:
    """Counts events. Whoever has seen some of them can wait for more."""

    def __init__(self, clock: Clock) -> None:
        self.count = 0
        self._clock = clock
        self._waiting: dict[asyncio.Future[None], None] = {}  # in the order of their coming

    def announce(self) -> None:
        self.count += 1
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def wait_for_more(self, than: int, timeout_seconds: float) -> bool:
        """Until there are more than so many, or time is up; whether there are more."""
        if self.count > than or timeout_seconds <= 0:
            return self.count > than
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._clock.call_later(timeout_seconds, lambda: _ring(waiter))
        self._waiting[waiter] = None
        try:
            await waiter
        finally:
            timer.cancel()
            del self._waiting[waiter]
        return self.count > than


def _ring(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
