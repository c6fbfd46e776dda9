"""Where the logs of a streaming query end, as it was a moment ago.

An idle query asks every few milliseconds. Offsets are asked for again when they are a tenth of a
second old, and which partitions there are when that knowledge is a second old. A shell.
"""

from __future__ import annotations

from typing import Final

from moldau.clock import Clock, SystemClock
from moldau.errors import UnknownTopicError
from moldau.model import TopicPartition
from moldau.spark.rules.offset_maps import Offsets
from moldau.spark.topic_view import TopicView

OFFSETS_SECONDS: Final = 0.1
PARTITIONS_SECONDS: Final = 1.0


class LatestOffsets:
    """Owned by the one thread that Spark's calls come in."""

    def __init__(self, view: TopicView, clock: Clock | None = None) -> None:
        self._view = view
        self._clock = clock or SystemClock()
        self._partitions: list[TopicPartition] = []
        self._partitions_at: float | None = None
        self._offsets: dict[TopicPartition, int] = {}
        self._offsets_at: float | None = None

    def current(self, *, max_age_seconds: float = OFFSETS_SECONDS) -> Offsets:
        """The ends, not older than that; the same object for as long as they are the same."""
        if self._is_older(self._offsets_at, max_age_seconds):
            found = self._ask()
            if found != self._offsets:
                self._offsets = found
            self._offsets_at = self._clock.monotonic()
        return self._offsets

    def _ask(self) -> dict[TopicPartition, int]:
        if self._is_older(self._partitions_at, PARTITIONS_SECONDS):
            self._find_partitions()
        try:
            found = self._view.latest(self._partitions)
        except UnknownTopicError:  # a topic went after its partitions were listed
            found = {}
        if len(found) < len(self._partitions):
            self._find_partitions()
            found = self._view.latest(self._partitions)
        return found

    def _find_partitions(self) -> None:
        self._partitions = self._view.find_partitions()
        self._partitions_at = self._clock.monotonic()

    def _is_older(self, at: float | None, seconds: float) -> bool:
        return at is None or self._clock.monotonic() - at >= seconds
