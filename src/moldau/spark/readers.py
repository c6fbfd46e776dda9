"""Reads topics, once or as they grow: `spark.read` and `spark.readStream` with `format("moldau")`.

The driver plans ranges of offsets, and tasks read them. Readers are pickled to the tasks with
nothing in them but values. A shell; what to read is decided in `rules`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.spark.columns import arrow_schema, require_columns, source_schema
from moldau.spark.options import SourceOptions
from moldau.spark.rules import offset_ranges, pushed_filters
from moldau.spark.rules.offset_ranges import PartitionRange, Task, TriggerLimits
from moldau.spark.rules.offsets import NamedBound, OffsetJson, StreamOffset
from moldau.spark.rules.pushed_filters import Condition, FilterEffect

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Not before Spark 4.2."""

    _TAKES_LIMITS = False
else:
    _TAKES_LIMITS = True

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from moldau.spark.offset_reader import OffsetReader
    from moldau.spark.stream_planner import StreamPlanner


# What one task reads, as Spark passes it around


class RangePartition(InputPartition):
    """Ranges of offsets, each of one partition of a topic."""

    def __init__(self, task: Task) -> None:
        super().__init__(tuple((*one.partition, *one[1:]) for one in task))


def make_partitions(
    ranges: Iterable[PartitionRange], options: SourceOptions
) -> list[InputPartition]:
    """The tasks that read these ranges."""
    planned = offset_ranges.plan_tasks(
        ranges,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    packed = offset_ranges.pack_tasks(
        planned,
        min_records_per_partition=options.min_records_per_partition,
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )
    return [RangePartition(task) for task in packed]


def find_task(given: InputPartition) -> Task:
    """What is to be read; nothing where Spark made a task though there was nothing to plan."""
    return tuple(
        PartitionRange(TopicPartition(topic, number), *rest)
        for topic, number, *rest in given.value or ()
    )


class _RangeReader:
    """Pickled to the tasks, with nothing in it but values."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of its ranges."""
        from moldau.spark.fetching import read_task

        return read_task(self._options, find_task(partition), arrow_schema(self._schema))


# Batches


_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


def find_schema(given: Mapping[str, str]) -> StructType:
    """What `load()` gives when no schema was named; raises ConfigurationError."""
    return source_schema(include_headers=SourceOptions.read(given).include_headers)


def make_batch_reader(given: Mapping[str, str], schema: StructType) -> MoldauBatchReader:
    """The reader of a batch query; raises ConfigurationError."""
    options = SourceOptions.read(given)
    options.require_batch()
    require_columns(schema)
    kind = FilteringBatchReader if _may_push_filters() else MoldauBatchReader
    return kind(options, schema)


def _may_push_filters() -> bool:
    """Whether Spark is about to push filters.

    It refuses readers that could take filters while `spark.sql.python.filterPushdown.enabled` is
    off, which it is by default; when it is on, it plans in a worker of its own kind. Spark 4.0 has
    no such worker, and no filters for sources in Python.
    """
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PUSHDOWN_WORKER in sys.modules or getattr(main, "name", None) == _PUSHDOWN_WORKER


class MoldauBatchReader(_RangeReader, DataSourceReader):
    """The ranges are fixed on the driver when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._conditions: list[Condition] = []

    def partitions(self) -> list[InputPartition]:
        """Asks the cluster what there is, once."""
        from moldau.spark.offset_reader import OffsetReader

        offsets = OffsetReader(self._options)
        ranges = pushed_filters.narrow_ranges(self._find_ranges(offsets), self._conditions)
        ranges = self._skip_older(offsets, ranges)
        return make_partitions(ranges, self._options)

    def _find_ranges(self, offsets: OffsetReader) -> list[PartitionRange]:
        partitions = offsets.require_partitions().partitions
        starting = self._options.starting_bound or NamedBound.EARLIEST
        starts = offsets.resolve_bound(starting, partitions, "startingOffsets")
        ends = offsets.resolve_bound(self._options.ending_bound, partitions, "endingOffsets")
        earliest, latest = offsets.find_earliest(partitions), offsets.find_latest(partitions)
        wanted = offset_ranges.ranges_between(starts, ends)
        beyond = offset_ranges.find_starts_beyond(starts, latest) + offset_ranges.find_beyond(
            wanted, latest
        )
        self._options.report_losses(offset_ranges.find_deleted(wanted, earliest) + beyond)
        return offset_ranges.keep_existing(wanted, earliest, latest)

    def _skip_older(
        self, offsets: OffsetReader, ranges: list[PartitionRange]
    ) -> list[PartitionRange]:
        """Without the records before the first that a condition on the timestamp can want."""
        time_ms = pushed_filters.find_earliest_time(self._conditions)
        if time_ms is None or not ranges:
            return ranges
        times = {one.partition: max(time_ms, 0) for one in ranges}
        found = offsets.find_at_times(times)
        clipped = (
            offset_ranges.clip_range(
                one, start_offset=found[one.partition], end_offset=one.end_offset
            )
            for one in ranges
            if one.partition in found  # in the others every record is older
        )
        return [one for one in clipped if not one.is_empty]


class FilteringBatchReader(MoldauBatchReader):
    """Also takes conditions on topic, partition, offset and timestamp."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep what helps; what Spark has to look at itself is given back."""
        for one in filters:
            condition = pushed_filters.find_condition(one)
            effect = (
                FilterEffect.NONE if condition is None else pushed_filters.find_effect(condition)
            )
            if condition is not None and effect is not FilterEffect.NONE:
                self._conditions.append(condition)
            if effect is not FilterEffect.DECIDED:
                yield one


# Streams. Spark keeps the offsets in its checkpoint, in the form of its own Kafka source. On the
# driver a `StreamPlanner` says how far there is something to read. Since 4.2, Spark says where a
# query is when it asks for the next end, and takes limits. Spark 4.0 and 4.1 do neither, so there
# are two readers.


_NO_LIMITS: Final = TriggerLimits()


def make_stream_reader(given: Mapping[str, str], schema: StructType) -> MoldauStreamReader:
    """The reader of a streaming query; raises ConfigurationError."""
    options = SourceOptions.read(given)
    options.require_stream()
    require_columns(schema)
    if _TAKES_LIMITS:
        return LimitedStreamReader(options, schema)
    _refuse_limits(options.limits)
    return UnlimitedStreamReader(options, schema)


def _refuse_limits(limits: TriggerLimits) -> None:
    """A limit that had no effect would be met when a batch does not fit into the memory."""
    for name, value in (
        ("maxOffsetsPerTrigger", limits.max_offsets),
        ("minOffsetsPerTrigger", limits.min_offsets),
        ("maxBytesPerTrigger", limits.max_bytes),
    ):
        if value is not None:
            raise ConfigurationError(
                f"{name} needs Spark 4.2 or newer; this is Spark {pyspark.__version__}, which lets "
                "no source in Python limit its batches"
            )


class MoldauStreamReader(_RangeReader, DataSourceStreamReader):
    """Pickled to the tasks before it is used; the driver's part is made at the first call."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._planner: StreamPlanner | None = None

    def initialOffset(self) -> OffsetJson:
        return self._driver.find_start().to_json()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        starts, ends = StreamOffset.from_json(start), StreamOffset.from_json(end)
        return make_partitions(self._driver.find_ranges(starts, ends), self._options)

    def commit(self, end: OffsetJson) -> None:
        """Called one batch late, and not at all with Trigger.AvailableNow."""
        completed = self._driver.find_completed(StreamOffset.from_json(end))
        self._driver.progress.commit_at_least(completed)

    def stop(self) -> None:
        if self._planner is not None:
            from moldau.spark.worker import close_clients

            close_clients()
            self._planner = None

    @property
    def _driver(self) -> StreamPlanner:
        if self._planner is None:
            from moldau.spark.stream_planner import make_planner

            self._planner = make_planner(self._options)
        return self._planner


class LimitedStreamReader(MoldauStreamReader, SupportsTriggerAvailableNow):
    """For Spark 4.2 and newer."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._idle: tuple[OffsetJson, StreamOffset] | None = None

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
            self._driver.progress.retry_refused()
            return start
        limits = _NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        starts = StreamOffset.from_json(start)
        self._idle = (start, ends) if starts == ends else None
        # A query is where its last completed batch ended.
        self._driver.progress.commit_completed(self._driver.find_completed(starts))
        return self._driver.plan_end(starts, limits).to_json()

    def prepareForTriggerAvailableNow(self) -> None:
        self._driver.fix_end()

    def reportLatestOffset(self) -> OffsetJson:
        return self._driver.latest.current().to_json()


class UnlimitedStreamReader(MoldauStreamReader):
    """For Spark 4.0 and 4.1: a batch takes all there is.

    A query is where the batch that was planned last ends. When one is started again, Spark plans an
    empty batch there; whether the batch before it was completed shows with the next one.
    """

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._planned: StreamOffset | None = None

    def initialOffset(self) -> OffsetJson:
        return self._find_planned().to_json()

    def latestOffset(self) -> OffsetJson:  # type: ignore[override]
        """With Trigger.AvailableNow asked for once, before the start of a new query."""
        return self._driver.plan_end(self._find_planned(), _NO_LIMITS).to_json()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        planned = super().partitions(start, end)
        self._planned = StreamOffset.from_json(end)
        if start != end:  # a batch begins where the last completed one ended
            completed = self._driver.find_completed(StreamOffset.from_json(start))
            self._driver.progress.commit_at_least(completed)
        return planned

    def _find_planned(self) -> StreamOffset:
        if self._planned is None:
            self._planned = self._driver.find_start()
        return self._planned
