"""How long the coordination store takes to answer, asked every ten seconds. A shell."""

from __future__ import annotations

from typing import Final

from moldau.clock import Clock
from moldau.cluster.layout import CLUSTER_ID
from moldau.coordination.port import Coordination, CoordinationError

INTERVAL_SECONDS: Final = 10.0


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
            await self._clock.sleep(INTERVAL_SECONDS)
