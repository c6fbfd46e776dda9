"""Reads topics as they grow: `spark.readStream.format("moldau")`, as Spark's API asks for it.

Spark keeps the offsets in its checkpoint, in the form of its own Kafka source. On the driver a
`StreamPlanner` says how far there is something to read; in the tasks ranges are read. A shell.

Since 4.2, Spark says where a query is when it asks for the next end, and takes limits. Spark 4.0
and 4.1 do neither, so there are two readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from moldau.errors import ConfigurationError
from moldau.spark.columns import arrow_schema, require_columns
from moldau.spark.options import SourceOptions
from moldau.spark.range_partition import find_task, make_partitions
from moldau.spark.rules.offset_maps import OffsetJson, StreamOffset
from moldau.spark.rules.trigger_limits import TriggerLimits

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

    from moldau.spark.stream_planner import StreamPlanner

try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
except ImportError:

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Not before Spark 4.2."""

    _TAKES_LIMITS = False
else:
    _TAKES_LIMITS = True

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


class MoldauStreamReader(DataSourceStreamReader):
    """Pickled to the tasks before it is used; the driver's part is made at the first call."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._planner: StreamPlanner | None = None

    def initialOffset(self) -> OffsetJson:
        return self._driver.find_start().to_json()

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        starts, ends = StreamOffset.from_json(start), StreamOffset.from_json(end)
        return make_partitions(self._driver.find_ranges(starts, ends), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of its ranges."""
        from moldau.spark.fetching import read_task

        return read_task(self._options, find_task(partition), arrow_schema(self._schema))

    def commit(self, end: OffsetJson) -> None:
        """Called one batch late, and not at all with Trigger.AvailableNow."""
        completed = self._driver.find_completed(StreamOffset.from_json(end))
        self._driver.progress.advance_at_least_to(completed)

    def stop(self) -> None:
        if self._planner is not None:
            from moldau.spark.worker_client import close_clients

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
        from pyspark.sql.streaming import datasource as spark_limits

        limits = self._options.limits
        if limits.max_offsets is not None:
            return spark_limits.ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return spark_limits.ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None:
            return spark_limits.ReadMinRows(limits.min_offsets)
        return spark_limits.ReadAllAvailable()

    def latestOffset(self, start: OffsetJson, limit: ReadLimit) -> OffsetJson:
        """Asked every few milliseconds while nothing comes, so nothing is then done twice."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable

        ends = self._driver.latest.current()
        if self._idle is not None and self._idle[0] == start and self._idle[1] is ends:
            self._driver.progress.maybe_repeat()
            return start
        limits = _NO_LIMITS if isinstance(limit, ReadAllAvailable) else self._options.limits
        starts = StreamOffset.from_json(start)
        self._idle = (start, ends) if starts == ends else None
        # A query is where its last completed batch ended.
        self._driver.progress.advance_to(self._driver.find_completed(starts))
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
            self._driver.progress.advance_at_least_to(completed)
        return planned

    def _find_planned(self) -> StreamOffset:
        if self._planned is None:
            self._planned = self._driver.find_start()
        return self._planned
