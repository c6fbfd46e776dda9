"""Reads topics once: `spark.read.format("moldau")`.

The ranges are fixed on the driver when the query is planned. A shell; what to read is decided in
`rules`.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition

from moldau.errors import DataLossError
from moldau.spark.columns import arrow_schema, require_columns
from moldau.spark.options import SourceOptions
from moldau.spark.range_partition import find_task, make_partitions
from moldau.spark.rules.bounds import NamedBound
from moldau.spark.rules.data_loss import (
    ADVICE,
    find_beyond,
    find_deleted,
    find_starts_beyond,
    keep_existing,
)
from moldau.spark.rules.pushed_filters import (
    Condition,
    FilterEffect,
    effect_of,
    find_earliest_time,
    narrow,
)
from moldau.spark.rules.ranges import PartitionRange, clip, ranges_between

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

    from moldau.spark.topic_view import TopicView

_log = logging.getLogger("moldau.spark")

_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


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


class MoldauBatchReader(DataSourceReader):
    """Pickled to the tasks, with nothing in it but values."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._conditions: list[Condition] = []

    def partitions(self) -> list[InputPartition]:
        """Asks the cluster what there is, once."""
        from moldau.spark.topic_view import TopicView

        view = TopicView(self._options)
        ranges = self._skip_older(view, narrow(self._find_ranges(view), self._conditions))
        return make_partitions(ranges, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of its ranges."""
        from moldau.spark.fetching import read_task

        return read_task(self._options, find_task(partition), arrow_schema(self._schema))

    def _find_ranges(self, view: TopicView) -> list[PartitionRange]:
        partitions = view.require_partitions().partitions
        starting = self._options.starting_bound or NamedBound.EARLIEST
        starts = view.place(starting, partitions, "startingOffsets")
        ends = view.place(self._options.ending_bound, partitions, "endingOffsets")
        earliest, latest = view.earliest(partitions), view.latest(partitions)
        wanted = ranges_between(starts, ends)
        beyond = find_starts_beyond(starts, latest) + find_beyond(wanted, latest)
        self._report(find_deleted(wanted, earliest) + beyond)
        return keep_existing(wanted, earliest, latest)

    def _skip_older(self, view: TopicView, ranges: list[PartitionRange]) -> list[PartitionRange]:
        """Without the records before the first that a condition on the timestamp can want."""
        time_ms = find_earliest_time(self._conditions)
        if time_ms is None or not ranges:
            return ranges
        times = {one.partition: max(time_ms, 0) for one in ranges}
        found = view.find_at_times(times)
        clipped = (
            clip(one, start_offset=found[one.partition], end_offset=one.end_offset)
            for one in ranges
            if one.partition in found  # in the others every record is older
        )
        return [one for one in clipped if not one.is_empty]

    def _report(self, losses: list[str]) -> None:
        if losses and self._options.fail_on_data_loss:
            raise DataLossError(f"{'; '.join(losses)}. {ADVICE}")
        for message in losses:
            _log.warning("%s; reading goes on with what is there", message)


class FilteringBatchReader(MoldauBatchReader):
    """Also takes conditions on topic, partition, offset and timestamp."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Keep what helps; what Spark has to look at itself is given back."""
        from moldau.spark.filters import find_condition

        for one in filters:
            condition = find_condition(one)
            effect = FilterEffect.NONE if condition is None else effect_of(condition)
            if condition is not None and effect is not FilterEffect.NONE:
                self._conditions.append(condition)
            if effect is not FilterEffect.DECIDED:
                yield one
