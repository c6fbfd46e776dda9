"""How far there is something to read, and what a batch reads of it: the driver's part of a stream.

Each query has a process of its own for it. A shell; what to read is decided in `rules`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final

from moldau.clock import Clock, SystemClock
from moldau.errors import MoldauError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.spark.offset_reader import FoundPartitions, OffsetReader
from moldau.spark.rules import offset_ranges
from moldau.spark.rules.offset_ranges import PartitionRange, TriggerLimits
from moldau.spark.rules.offsets import (
    NamedBound,
    Offsets,
    StreamOffset,
    find_recreated,
    without_topics,
)

if TYPE_CHECKING:
    from moldau.spark.options import SourceOptions


# An idle query asks every few milliseconds for the ends of logs. Offsets are asked for again when
# they are a tenth of a second old, and which partitions there are when that knowledge is a second
# old. When offsets have changed, the ids of their topics are asked for again.


_log = logging.getLogger("moldau.spark")

OFFSETS_SECONDS: Final = 0.1
PARTITIONS_SECONDS: Final = 1.0


class LatestOffsets:
    """Owned by the one thread that Spark's calls come in."""

    def __init__(self, offsets: OffsetReader, clock: Clock | None = None) -> None:
        self._offsets = offsets
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
            found = self._ask_for_ends()
            if found != self._ends:
                self._ends = found
            self._ends_at = self._clock.monotonic()
        return self._ends

    def _ask_for_ends(self) -> StreamOffset:
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
            offsets = self._offsets.find_latest(self._found.partitions)
        except UnknownTopicError:  # a topic went after its partitions were listed
            offsets = {}
        if len(offsets) < len(self._found.partitions):
            self._find_partitions()
            offsets = self._offsets.find_latest(self._found.partitions)
        return offsets

    def _find_partitions(self) -> None:
        self._found = self._offsets.find_partitions()
        self._found_at = self._clock.monotonic()

    def _is_older(self, at: float | None, seconds: float) -> bool:
        return at is None or self._clock.monotonic() - at >= seconds


_REWIND_ATTEMPTS: Final = 3
_REWIND_SECONDS: Final = 0.3
_SIZES_SECONDS: Final = 10.0


def make_planner(options: SourceOptions) -> StreamPlanner:
    """The planner of a query, with a client of its own."""
    offsets = OffsetReader(options)
    return StreamPlanner(
        options, offsets, LatestOffsets(offsets), OffsetCommitter(offsets.commit_offsets)
    )


class StreamPlanner:
    """Belongs to the one thread in which Spark's calls come."""

    def __init__(
        self,
        options: SourceOptions,
        offsets: OffsetReader,
        latest: LatestOffsets,
        progress: OffsetCommitter,
    ) -> None:
        self.latest = latest
        self.progress = progress
        self._options = options
        self._offsets = offsets
        self._fixed_end: StreamOffset | None = None  # with Trigger.AvailableNow
        self._last_batch_at: float | None = None  # when the last batch was given
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_at: float | None = None

    def find_start(self) -> StreamOffset:
        """Where a new query begins."""
        partitions, topic_ids = self._offsets.require_partitions()
        bound = self._options.starting_bound or NamedBound.LATEST
        starts = self._offsets.resolve_bound(bound, partitions, "startingOffsets")
        self.progress.start_at(starts)
        return StreamOffset(starts, topic_ids)

    def fix_end(self) -> None:
        """What comes later is for another run."""
        self._fixed_end = self.latest.current(max_age_seconds=0)

    def find_completed(self, place: StreamOffset) -> Offsets:
        """What a group may be told of a place that the query has completed: a recreated topic has
        none of its old offsets."""
        recreated = find_recreated(place.topic_ids, self.latest.known.topic_ids)
        self.progress.forget_topics(recreated)
        return without_topics(place.offsets, recreated)

    def plan_end(self, starts: StreamOffset, limits: TriggerLimits) -> StreamOffset:
        """Where the next batch ends; the start itself when there is nothing for it yet."""
        ends = self._fixed_end if self._fixed_end is not None else self._find_ends(starts)
        if ends == starts:
            if self._last_batch_at is None:  # the first batch of this run, and it was empty
                self._last_batch_at = time.monotonic()
            return starts
        recreated = find_recreated(starts.topic_ids, ends.topic_ids)
        kept = without_topics(starts.offsets, recreated)
        if self._options.fail_on_data_loss:
            # Before Spark writes the offsets down, so that a query that fails can be repeated.
            losses = offset_ranges.find_losses(offset_ranges.plan_batch(kept, ends.offsets, {}), {})
            self._options.report_losses([*offset_ranges.describe_recreated(recreated), *losses])
        known = {**self._find_new_starts(kept, ends.offsets), **kept}
        if self._fixed_end is None and offset_ranges.may_wait_for_more(
            known, ends.offsets, limits, self._waited_ms()
        ):
            return starts
        sizes = self._bytes_per_offset(limits, ends.offsets)
        found = ends._replace(offsets=offset_ranges.limit_ends(known, ends.offsets, limits, sizes))
        if found != starts:
            self._last_batch_at = time.monotonic()
        return found

    def find_ranges(self, starts: StreamOffset, ends: StreamOffset) -> list[PartitionRange]:
        """What a batch reads. Nothing of a topic that was recreated since the batch was planned:
        Spark also repeats batches of former runs."""
        if starts == ends:
            return []
        now = self._find_ends(ends, max_age_seconds=PARTITIONS_SECONDS)
        lost = find_recreated(ends.topic_ids, now.topic_ids)
        recreated = lost | find_recreated(starts.topic_ids, ends.topic_ids)
        wanted = without_topics(ends.offsets, lost)
        earliest = self._offsets.find_earliest(sorted(wanted))
        batch = offset_ranges.plan_batch(
            without_topics(starts.offsets, recreated), wanted, earliest
        )
        self._options.report_losses(
            [
                *offset_ranges.describe_recreated(recreated),
                *offset_ranges.find_losses(batch, earliest),
            ]
        )
        return [
            one._replace(topic_id=ends.topic_ids.get(one.partition.topic))
            for one in offset_ranges.keep_existing(batch.ranges, earliest, {})
        ]

    def _find_ends(
        self, known: StreamOffset, *, max_age_seconds: float = OFFSETS_SECONDS
    ) -> StreamOffset:
        """The ends, asked for again while they contradict an offset of the query: a new leader may
        be behind, and so may a broker that is asked for the ids of topics."""
        ends = self.latest.current(max_age_seconds=max_age_seconds)
        for _ in range(_REWIND_ATTEMPTS):
            is_ahead = all(end >= known.offsets.get(one, 0) for one, end in ends.offsets.items())
            if is_ahead and not find_recreated(known.topic_ids, ends.topic_ids):
                break
            time.sleep(_REWIND_SECONDS)
            ends = self.latest.current(max_age_seconds=0)
        return ends

    def _find_new_starts(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Where partitions begin that the query has not read yet."""
        return self._offsets.find_earliest(sorted(ends.keys() - starts.keys()))

    def _waited_ms(self) -> float | None:
        at = self._last_batch_at
        return None if at is None else (time.monotonic() - at) * 1000

    def _bytes_per_offset(
        self, limits: TriggerLimits, ends: Offsets
    ) -> dict[TopicPartition, float]:
        if limits.max_bytes is None:
            return {}
        at = self._sizes_at
        if at is None or time.monotonic() - at > _SIZES_SECONDS:
            self._sizes = self._offsets.bytes_per_offset(
                self._offsets.find_earliest(sorted(ends)), ends
            )
            self._sizes_at = time.monotonic()
        return self._sizes


# Spark's checkpoint is what a query continues from; the committed offsets of its group are a copy
# for tools that show lag. So a commit that fails is logged and does not stop the query.


REPEAT_SECONDS: Final = 10.0


class OffsetCommitter:
    """What was committed last; nothing is committed twice. Belongs to one thread."""

    def __init__(
        self, commit: Callable[[Offsets], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._commit = commit
        self._now = now
        self._last: dict[TopicPartition, int] = {}
        self._refused: dict[TopicPartition, int] = {}  # what the group still has to be told
        self._refused_at = 0.0

    def start_at(self, offsets: Offsets) -> None:
        """Where a new query begins is no progress yet."""
        self._last = dict(offsets)

    def commit_completed(self, offsets: Offsets) -> None:
        """Everything before these offsets is completed."""
        news = {one: offset for one, offset in offsets.items() if self._last.get(one) != offset}
        if news and news != self._refused:
            self._commit_news(news)
        else:
            self.retry_refused()

    def commit_at_least(self, offsets: Offsets) -> None:
        """The same said late: what is known to be completed further on stays so."""
        known = self._last
        self.commit_completed(
            {one: max(offset, known.get(one, 0)) for one, offset in offsets.items()}
        )

    def forget_topics(self, topics: Collection[str]) -> None:
        """The topics were recreated: what was committed was of others."""
        self._last = dict(without_topics(self._last, topics))
        self._refused = dict(without_topics(self._refused, topics))

    def retry_refused(self) -> None:
        """Tell the group what it has refused, if that was some time ago."""
        if self._refused and self._now() - self._refused_at >= REPEAT_SECONDS:
            self._commit_news(self._refused)

    def _commit_news(self, news: dict[TopicPartition, int]) -> None:
        try:
            self._commit(news)
        except MoldauError as error:
            if not self._refused:
                _log.warning("the group was not told of the query's progress: %s", error)
            self._refused, self._refused_at = news, self._now()
            return
        self._last.update(news)
        self._refused = {}
