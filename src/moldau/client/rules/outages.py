"""Which troubles last long enough to be told: of brokers, and of partitions. A rule.

A failure that passes within a second is nobody's business: leaders move, connections are reset. One
that lasts is told, again every half a minute, and once more when it is over.
"""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")

TOLD_AFTER_SECONDS = 1.0
TOLD_AGAIN_AFTER_SECONDS = 30.0


class Outages(Generic[K]):
    """The troubles of one client. `now` is a monotonic time in seconds."""

    def __init__(self) -> None:
        self._since: dict[K, float] = {}  # when each trouble was met first
        self._told_at: dict[K, float] = {}  # of troubles that were told, when that was last

    def __bool__(self) -> bool:
        """Whether there is any trouble."""
        return bool(self._since)

    def on_failure(
        self, subject: K, now: float, *, lasted_seconds: float = 0.0, is_grave: bool = False
    ) -> bool:
        """Whether to tell of it now. What is grave does not pass by itself: it is told at once."""
        since = self._since.setdefault(subject, now - lasted_seconds)
        if now - since < TOLD_AFTER_SECONDS and not is_grave:
            return False
        told_at = self._told_at.get(subject)
        if told_at is not None and now - told_at < TOLD_AGAIN_AFTER_SECONDS:
            return False
        self._told_at[subject] = now
        return True

    def on_success(self, subject: K, now: float) -> float | None:
        """How long the trouble lasted that is over now, if it was told."""
        since = self._since.pop(subject, now)
        return None if self._told_at.pop(subject, None) is None else now - since
