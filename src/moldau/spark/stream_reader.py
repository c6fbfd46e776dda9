"""Reads topics as they grow: `spark.readStream.format("moldau")`.

On the driver, in a process of its own for each query, it says how far there is something to read
and cuts batches into tasks; in the tasks it reads ranges. Spark keeps the offsets in its
checkpoint, in the form of its own Kafka source. A shell; what to read is decided in `rules`.

Spark calls `commit` one batch late, and not at all with Trigger.AvailableNow. But whenever it asks
for the latest offset it says where the last completed batch ended: that is what the group is told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from moldau.errors import DataLossError
from moldau.model import TopicPartition
from moldau.spark.columns import arrow_schema, require_columns
from moldau.spark.options import SourceOptions
from moldau.spark.range_partition import RangePartition, find_range
from moldau.spark.rules.bounds import Place
from moldau.spark.rules.data_loss import ADVICE, find_losses, keep_existing
from moldau.spark.rules.offset_maps import OffsetJson, Offsets, from_json, to_json
from moldau.spark.rules.ranges import plan_batch
from moldau.spark.rules.task_planning import plan_tasks
from moldau.spark.rules.trigger_limits import TriggerLimits, limit_ends, may_wait

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from moldau.spark.latest_offsets import LatestOffsets
    from moldau.spark.progress import ProgressCommits
    from moldau.spark.topic_view import TopicView

_log = logging.getLogger(__name__)

_NO_LIMITS: Final = TriggerLimits()
_REWIND_ATTEMPTS: Final = 3
_REWIND_SECONDS: Final = 0.3
_SIZES_SECONDS: Final = 10.0


def make_stream_reader(given: Mapping[str, str], schema: StructType) -> MoldauStreamReader:
    """The reader of a streaming query; raises ConfigurationError."""
    options = SourceOptions.read(given)
    options.require_stream()
    require_columns(schema)
    return MoldauStreamReader(options, schema)


class MoldauStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Pickled to the tasks before it is used; the driver's part is made at the first call."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: _Planner | None = None
        self._idle: tuple[OffsetJson, Offsets] | None = None

    def initialOffset(self) -> OffsetJson:
        return to_json(self._driver.find_start())

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark has one limit only: any of ours stands for all, which the options have."""
        limits = self._options.limits
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return ReadMinRows(limits.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Asked every few milliseconds while nothing comes, so nothing is then done twice."""
        ends = self._driver.latest.current()
        if self._idle is not None and self._idle[0] == start and self._idle[1] is ends:
            self._driver.progress.maybe_repeat()
            return start
        limits = _NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        starts = from_json(start)
        self._idle = (start, ends) if starts == ends else None
        return to_json(self._driver.find_end(starts, limits))

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.fix_end()

    def reportLatestOffset(self) -> OffsetJson:
        return to_json(self._driver.latest.current())

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        return self._driver.plan(from_json(start), from_json(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of its range."""
        from moldau.spark.fetching import read_range

        wanted = find_range(partition)
        if wanted is None:
            return iter(())
        return read_range(self._options, wanted, arrow_schema(self._schema))

    def commit(self, end: OffsetJson) -> None:
        self._driver.progress.advance_at_least_to(from_json(end))

    def stop(self) -> None:
        if self._planner is not None:
            from moldau.spark.worker_client import close_clients

            close_clients()
            self._planner = None

    @property
    def _driver(self) -> _Planner:
        if self._planner is None:
            self._planner = _make_planner(self._options)
        return self._planner


def _make_planner(options: SourceOptions) -> _Planner:
    from moldau.spark.latest_offsets import LatestOffsets
    from moldau.spark.progress import ProgressCommits
    from moldau.spark.topic_view import TopicView

    view = TopicView(options)
    return _Planner(options, view, LatestOffsets(view), ProgressCommits(view.commit))


class _Planner:
    """The driver's part. Belongs to the one thread in which Spark's calls come."""

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
        bound = self._options.starting_bound or Place.LATEST
        starts = self._view.place(bound, partitions, "startingOffsets")
        self.progress.begin_at(starts)
        return starts

    def fix_end(self) -> None:
        """What comes later is for another run."""
        self._fixed_end = dict(self.latest.current(max_age_seconds=0))

    def find_end(self, starts: Offsets, limits: TriggerLimits) -> Offsets:
        """Where the next batch ends; the start itself when there is nothing for it yet."""
        self.progress.advance_to(starts)
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

    def plan(self, starts: Offsets, ends: Offsets) -> list[InputPartition]:
        """The tasks of a batch."""
        if starts == ends:
            return []
        earliest = self._view.earliest(sorted(ends))
        batch = plan_batch(starts, ends, earliest)
        self._report(find_losses(batch, earliest))
        tasks = plan_tasks(
            keep_existing(batch.ranges, earliest, {}),
            min_partitions=self._options.min_partitions,
            max_records_per_partition=self._options.max_records_per_partition,
        )
        return [RangePartition(one) for one in tasks]

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
        for sentence in losses:
            _log.warning("%s; reading goes on with what is there", sentence)
