"""How many records a queue's client takes in advance. A rule.

Records that wait in a client are locked, and nobody else can have them: of what takes long, a
client should have little. What is quick should not wait for the network. So a client has as many as
its takers go through in a small part of the time for which records are locked: one while nothing is
known of them.

The pace is the time between a record's being taken and somebody's coming for another one, smoothed.
While somebody waits already there is nothing to learn of it.
"""

from __future__ import annotations

from typing import Final

_LOCK_SHARE: Final = 1 / 20
_SMOOTHING: Final = 0.2


class TakeLimit:
    """Between 1 and what the program allows."""

    def __init__(self, max_records: int) -> None:
        self._max_records = max_records
        self._record_seconds: float | None = None  # smoothed; None: nothing is known
        self._taken_at: float | None = None  # None: whoever took last left others waiting
        self._taken_count = 1

    def on_asked(self, now: float) -> None:
        """Somebody comes for records."""
        if self._taken_at is None:
            return
        seconds = (now - self._taken_at) / self._taken_count
        before = self._record_seconds
        self._record_seconds = (
            seconds if before is None else before + _SMOOTHING * (seconds - before)
        )
        self._taken_at = None

    def on_taken(self, count: int, now: float, *, is_awaited: bool) -> None:
        """So many were taken; `is_awaited` says that others wait for more."""
        self._taken_at = None if is_awaited else now
        self._taken_count = count

    def records(self, lock_seconds: float) -> int:
        if self._record_seconds is None:
            return 1
        wanted = lock_seconds * _LOCK_SHARE / max(self._record_seconds, 1e-9)
        return max(min(int(wanted), self._max_records), 1)
