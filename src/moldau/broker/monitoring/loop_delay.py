"""How late the event loop is: what a request waits for before anybody looks at it. A shell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from moldau.clock import Clock
from moldau.metrics.histogram import Histogram

INTERVAL_SECONDS: Final = 0.5


async def watch_loop(clock: Clock, delays: Histogram, note: Callable[[float], None]) -> None:
    """Until cancelled; `note` is told the time of each look."""
    while True:
        due = clock.monotonic() + INTERVAL_SECONDS
        await clock.sleep(INTERVAL_SECONDS)
        now = clock.monotonic()
        delays.note(max(0.0, now - due))
        note(now)
