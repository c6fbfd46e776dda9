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
from moldau.spark.rules.bounds import NamedBound
from moldau.spark.rules.data_loss import ADVICE, find_losses, keep_existing
from moldau.spark.rules.offset_maps import Offsets
from moldau.spark.rules.ranges import PartitionRange, plan_batch
from moldau.spark.rules.trigger_limits import TriggerLimits, limit_ends, may_wait

if TYPE_CHECKING:
    from moldau.spark.latest_offsets import LatestOffsets
    from moldau.spark.options import SourceOptions
    from moldau.spark.progress import ProgressCommits
    from moldau.spark.topic_view import TopicView

_log = logging.getLogger(__name__)

_REWIND_ATTEMPTS: Final = 3
_REWIND_SECONDS: Final = 0.3
_SIZES_SECONDS: Final = 10.0


def make_planner(options: SourceOptions) -> StreamPlanner:
    """The planner of a query, with a client of its own."""
    from moldau.spark.latest_offsets import LatestOffsets
    from moldau.spark.progress import ProgressCommits
    from moldau.spark.topic_view import TopicView

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
        self._fixed_end: Offsets | None = None  # with Trigger.AvailableNow
        self._last_batch_at: float | None = None  # when the last batch was given
        self._sizes: dict[TopicPartition, float] = {}
        self._sizes_at: float | None = None

    def find_start(self) -> Offsets:
        """Where a new query begins."""
        partitions = self._view.require_partitions()
        bound = self._options.starting_bound or NamedBound.LATEST
        starts = self._view.place(bound, partitions, "startingOffsets")
        self.progress.begin_at(starts)
        return starts

    def fix_end(self) -> None:
        """What comes later is for another run."""
        self._fixed_end = dict(self.latest.current(max_age_seconds=0))

    def plan_end(self, starts: Offsets, limits: TriggerLimits) -> Offsets:
        """Where the next batch ends; the start itself when there is nothing for it yet."""
        ends = self._fixed_end if self._fixed_end is not None else self._find_ends(starts)
        if ends == starts:
            if self._last_batch_at is None:  # the first batch of this run, and it was empty
                self._last_batch_at = time.monotonic()
            return starts
        self._report_gone(starts, ends)
        known = {**self._begin_new(starts, ends), **starts}
        if self._fixed_end is None and may_wait(known, ends, limits, self._waited_ms()):
            return starts
        found = limit_ends(known, ends, limits, self._bytes_per_offset(limits, ends))
        if found != starts:
            self._last_batch_at = time.monotonic()
        return found

    def find_ranges(self, starts: Offsets, ends: Offsets) -> list[PartitionRange]:
        """What a batch reads."""
        if starts == ends:
            return []
        earliest = self._view.earliest(sorted(ends))
        batch = plan_batch(starts, ends, earliest)
        self._report(find_losses(batch, earliest))
        return keep_existing(batch.ranges, earliest, {})

    def _find_ends(self, starts: Offsets) -> Offsets:
        """The ends, asked for again while one lies before its start: a new leader may be behind."""
        ends = self.latest.current()
        for _ in range(_REWIND_ATTEMPTS):
            if all(end >= starts.get(one, 0) for one, end in ends.items()):
                break
            time.sleep(_REWIND_SECONDS)
            ends = self.latest.current(max_age_seconds=0)
        return ends

    def _report_gone(self, starts: Offsets, ends: Offsets) -> None:
        """Said before Spark writes the offsets down, so that a query that fails can be repeated."""
        if self._options.fail_on_data_loss:
            self._report(find_losses(plan_batch(starts, ends, {}), {}))

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
