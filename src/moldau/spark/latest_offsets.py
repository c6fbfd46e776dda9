"""Where the logs of a streaming query end, as it was a moment ago.

An idle query asks every few milliseconds. Offsets are asked for again when they are a tenth of a
second old, and which partitions there are when that knowledge is a second old. When offsets have
changed, the ids of their topics are asked for again. A shell.
"""

from __future__ import annotations

from typing import Final

from moldau.clock import Clock, SystemClock
from moldau.errors import UnknownTopicError
from moldau.spark.rules.offset_maps import Offsets, StreamOffset
from moldau.spark.topic_view import FoundPartitions, TopicView

OFFSETS_SECONDS: Final = 0.1
PARTITIONS_SECONDS: Final = 1.0


class LatestOffsets:
    """Owned by the one thread that Spark's calls come in."""

    def __init__(self, view: TopicView, clock: Clock | None = None) -> None:
        self._view = view
        self._clock = clock or SystemClock()
        self._found = FoundPartitions([], {})
        self._found_at: float | None = None
        self._ends = StreamOffset({}, {})
        self._ends_at: float | None = None

    @property
    def known(self) -> StreamOffset:
        """The ends as they were when they were last asked for."""
        return self._ends

    def current(self, *, max_age_seconds: float = OFFSETS_SECONDS) -> StreamOffset:
        """The ends, not older than that; the same object for as long as they are the same."""
        if self._is_older(self._ends_at, max_age_seconds):
            if self._is_older(self._found_at, PARTITIONS_SECONDS if max_age_seconds else 0.0):
                self._find_partitions()
            found = self._ask()
            if found != self._ends:
                self._ends = found
            self._ends_at = self._clock.monotonic()
        return self._ends

    def _ask(self) -> StreamOffset:
        """A topic may be recreated between two questions. Offsets are of the topics that have the
        same id before and after they are asked for."""
        while True:
            asked = self._found
            offsets = self._list_ends()
            if offsets != self._ends.offsets:
                self._find_partitions()
            if self._found.topic_ids == asked.topic_ids:
                topics = {one.topic for one in offsets}
                ids = {topic: one for topic, one in asked.topic_ids.items() if topic in topics}
                return StreamOffset(offsets, ids)

    def _list_ends(self) -> Offsets:
        try:
            offsets = self._view.latest(self._found.partitions)
        except UnknownTopicError:  # a topic went after its partitions were listed
            offsets = {}
        if len(offsets) < len(self._found.partitions):
            self._find_partitions()
            offsets = self._view.latest(self._found.partitions)
        return offsets

    def _find_partitions(self) -> None:
        self._found = self._view.find_partitions()
        self._found_at = self._clock.monotonic()

    def _is_older(self, at: float | None, seconds: float) -> bool:
        return at is None or self._clock.monotonic() - at >= seconds
