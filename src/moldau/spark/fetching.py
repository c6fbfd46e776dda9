"""Reads ranges of partitions into Arrow batches, one after the other: what a task of Spark does.

Fetching runs ahead on the client's loop while this thread decodes. Batches are gathered until they
have so many rows that Spark's work for each of them does not count; no record is seen in Python.
A shell.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

from moldau.client.range_fetch import RangeSettings
from moldau.client.range_reader import RangeReader
from moldau.client.rules.delivery import RawBatch
from moldau.client.rules.read_bounds import OffsetRange
from moldau.config.client_options import ConsumerOptions
from moldau.errors import (
    DataLossError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from moldau.spark.rules.data_loss import ADVICE
from moldau.spark.rules.ranges import PartitionRange
from moldau.spark.worker_client import client_for
from moldau.spark.worker_memory import freeze_once

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.spark.options import SourceOptions

_log = logging.getLogger("moldau.spark")

ROWS_AT_LEAST: Final = 2_000
"""In every Arrow batch but the last of a task, unless the records are very large."""
_BYTES_ENOUGH: Final = 32 * 1024 * 1024


def read_task(
    options: SourceOptions, task: Sequence[PartitionRange], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """The records of the ranges, in order; raises DataLossError."""
    from moldau.arrow.raw_batches import to_record_batches
    from moldau.arrow.schema import choose_schema

    ours = choose_schema(schema.names, "us")
    with closing(_raw_batches_of(options, task)) as answers:
        for batches in gather(answers):
            for batch in to_record_batches(batches, ours):
                yield fit(batch, schema)
    freeze_once()


def fit(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same buffers under the names and flags that Spark wants."""
    if batch.schema.equals(schema):
        return batch
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def gather(answers: Iterable[Sequence[RawBatch]]) -> Iterator[list[RawBatch]]:
    """Batches of one answer or several, until they hold enough rows."""
    held: list[RawBatch] = []
    rows = size_bytes = 0
    for batches in answers:
        held.extend(batches)
        rows += sum(one.header.record_count for one in batches)
        size_bytes += sum(len(one.data) for one in batches)
        if rows >= ROWS_AT_LEAST or size_bytes >= _BYTES_ENOUGH:
            yield held
            held, rows, size_bytes = [], 0, 0
    if held:
        yield held


def _raw_batches_of(
    options: SourceOptions, task: Sequence[PartitionRange]
) -> Generator[Sequence[RawBatch], None, None]:
    for wanted in task:
        yield from _raw_batches(options, wanted)


def _raw_batches(
    options: SourceOptions, wanted: PartitionRange
) -> Generator[Sequence[RawBatch], None, None]:
    """From files where that is asked for and possible, and the rest through the broker."""
    position = wanted.start_offset
    if options.data_folder is not None:
        from moldau.spark.direct_segments import read_closed_segments

        with closing(read_closed_segments(options, wanted)) as found:
            for batches in found:
                position = batches[-1].next_offset
                yield batches
    rest = wanted._replace(start_offset=position)
    if not rest.is_empty:
        yield from _fetch(options, rest)


def _fetch(
    options: SourceOptions, wanted: PartitionRange
) -> Generator[Sequence[RawBatch], None, None]:
    client = client_for(options)
    settings = range_settings(options.client, wanted, skip_deleted=not options.fail_on_data_loss)
    ranges = {wanted.partition: OffsetRange(wanted.start_offset, wanted.end_offset)}

    async def make_reader() -> RangeReader:
        return RangeReader(client.cluster, ranges, settings)

    reader = client.run(make_reader())
    try:
        while batches := client.run(reader.take()):
            yield batches
    except (OffsetOutOfRangeError, UnknownTopicError, UnknownTopicIdError) as error:
        if options.fail_on_data_loss:
            raise DataLossError(f"{wanted} cannot be read to its end: {error}. {ADVICE}") from error
        _log.warning("%s ended early, records are missing: %s", wanted, error)
    finally:
        client.run(reader.close())


def range_settings(
    options: ConsumerOptions, wanted: PartitionRange, *, skip_deleted: bool
) -> RangeSettings:
    """For reading a range; what one answer brings is our own default unless it was set."""
    defaults = RangeSettings()
    fetch_bytes = defaults.fetch_bytes
    if "max_partition_fetch_bytes" in options.given:
        fetch_bytes = max(options.max_partition_fetch_bytes, 1)
    return RangeSettings(
        fetch_bytes=fetch_bytes,
        max_wait_ms=options.fetch_max_wait_ms,
        read_committed=options.isolation_level == "read_committed",
        skip_deleted=skip_deleted,
        topic_id=wanted.topic_id,
    )
