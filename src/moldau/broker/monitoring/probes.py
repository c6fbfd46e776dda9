"""How late the event loop is, and how long the coordination store takes to answer.

Both are asked again and again, while somebody may want to know. A shell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.clock import Clock
from moldau.cluster.layout import CLUSTER_ID
from moldau.coordination.port import Coordination, CoordinationError
from moldau.metrics.figures import Histogram

_LOOP_SECONDS: Final = 0.5
_STORE_SECONDS: Final = 10.0


async def watch_loop(clock: Clock, delays: Histogram, note: Callable[[float], None]) -> None:
    """Note what a request waits for before anybody looks at it, until cancelled.

    `note` is told the time of each look.
    """
    while True:
        due = clock.monotonic() + _LOOP_SECONDS
        await clock.sleep(_LOOP_SECONDS)
        now = clock.monotonic()
        delays.note(max(0.0, now - due))
        note(now)


class StoreProbe:
    """One task runs `run`."""

    def __init__(self, coordination: Coordination, clock: Clock) -> None:
        self._coordination = coordination
        self._clock = clock
        self.seconds: float | None = None  # of the last answer; None while there is none

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            began = self._clock.monotonic()
            try:
                await self._coordination.get(CLUSTER_ID)
                self.seconds = self._clock.monotonic() - began
            except CoordinationError:
                self.seconds = None
            await self._clock.sleep(_STORE_SECONDS)
