"""How fast records may go. A rule: times in, pauses out."""

from __future__ import annotations

_GRAIN_SECONDS = 0.005
"""Shorter pauses are saved up: sleeping is not precise enough for them."""


class Pace:
    """Lets `per_second` records pass, counted from its making."""

    def __init__(self, per_second: float, now: float) -> None:
        self._per_second = per_second
        self._began = now
        self._passed = 0

    def pause_before_next(self, now: float) -> float:
        """Seconds to wait before the next record; 0 when it is due, or nearly."""
        due = self._began + self._passed / self._per_second
        self._passed += 1
        return due - now if due - now > _GRAIN_SECONDS else 0.0
