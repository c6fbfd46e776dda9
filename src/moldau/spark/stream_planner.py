"""How far there is something to read, and what a batch reads of it: the driver's part of a stream,
in a process of its own for each query.

A shell; what to read is decided in `rules`.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from moldau.errors import DataLossError
from moldau.model import TopicPartition
from moldau.spark.latest_offsets import OFFSETS_SECONDS, PARTITIONS_SECONDS, LatestOffsets
from moldau.spark.progress import ProgressCommits
from moldau.spark.rules.bounds import NamedBound
from moldau.spark.rules.data_loss import (
    ADVICE,
    describe_recreated,
    find_losses,
    keep_existing,
)
from moldau.spark.rules.offset_maps import (
    Offsets,
    StreamOffset,
    find_recreated,
    without_topics,
)
from moldau.spark.rules.ranges import PartitionRange, plan_batch
from moldau.spark.rules.trigger_limits import TriggerLimits, limit_ends, may_wait
from moldau.spark.topic_view import TopicView

if TYPE_CHECKING:
    from moldau.spark.options import SourceOptions

_log = logging.getLogger("moldau.spark")

_REWIND_ATTEMPTS: Final = 3
_REWIND_SECONDS: Final = 0.3
_SIZES_SECONDS: Final = 10.0


def make_planner(options: SourceOptions) -> StreamPlanner:
    """The planner of a query, with a client of its own."""
    view = TopicView(options)
    return StreamPlanner(options, view, LatestOffsets(view), ProgressCommits(view.commit))


class StreamPlanner:
    """Belongs to the one thread in which Spark's calls come."""

    def __init__(
        self,
        options: SourceOptions,
        view: TopicView,
        latest: LatestOffsets,
        progress: ProgressCommits,
    ) -> None:
        self.latest = latest
        self.progress = progress
        self._options = options
        self._view = view
        self._fixed_end: StreamOffset | None = None  # with Trigger.AvailableNow
        self._last_batch_at: float | None = None  # when the last batch was given
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_at: float | None = None

    def find_start(self) -> StreamOffset:
        """Where a new query begins."""
        partitions, topic_ids = self._view.require_partitions()
        bound = self._options.starting_bound or NamedBound.LATEST
        starts = self._view.place(bound, partitions, "startingOffsets")
        self.progress.begin_at(starts)
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
            losses = find_losses(plan_batch(kept, ends.offsets, {}), {})
            self._report([*describe_recreated(recreated), *losses])
        known = {**self._begin_new(kept, ends.offsets), **kept}
        if self._fixed_end is None and may_wait(known, ends.offsets, limits, self._waited_ms()):
            return starts
        sizes = self._bytes_per_offset(limits, ends.offsets)
        found = ends._replace(offsets=limit_ends(known, ends.offsets, limits, sizes))
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
        earliest = self._view.earliest(sorted(wanted))
        batch = plan_batch(without_topics(starts.offsets, recreated), wanted, earliest)
        self._report([*describe_recreated(recreated), *find_losses(batch, earliest)])
        return [
            one._replace(topic_id=ends.topic_ids.get(one.partition.topic))
            for one in keep_existing(batch.ranges, earliest, {})
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

    def _begin_new(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Where partitions begin that the query has not read yet."""
        return self._view.earliest(sorted(ends.keys() - starts.keys()))

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
            self._sizes = self._view.bytes_per_offset(self._view.earliest(sorted(ends)), ends)
            self._sizes_at = time.monotonic()
        return self._sizes

    def _report(self, losses: list[str]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise DataLossError(f"{'; '.join(losses)}. {ADVICE}")
        for message in losses:
            _log.warning("%s; reading goes on with what is there", message)
