"""From the buffers of the record codec to Arrow arrays: wrapped, not copied. A rule.

Topic, partition and timestamp type are the same throughout a batch of records, so they come as
runs, and their columns are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby
from typing import Literal, NamedTuple, TypeVar

import pyarrow as pa

from moldau.errors import ConfigurationError, InvariantViolation
from moldau.records.batch_header import Buffer
from moldau.records.columns import BytesColumn, HeadersColumn, RecordColumns

T = TypeVar("T", int, str)

_MOST_KEPT_ROWS = 1 << 16


class Run(NamedTuple):
    """Rows that follow each other and share these."""

    topic: str
    partition: int
    timestamp_type: int
    rows: int


def to_record_batch(
    columns: RecordColumns, runs: Sequence[Run], schema: pa.Schema
) -> pa.RecordBatch:
    """The columns that the schema names; the codec was asked for those of them that it makes."""
    arrays = [_MAKERS[field.name](columns, runs, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _keys(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    return _binary(_require(columns.keys), columns.row_count, kind)


def _values(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    return _binary(_require(columns.values), columns.row_count, kind)


def _topics(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    return _repeated(_merge(runs, lambda run: run.topic), kind)


def _partitions(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    return _repeated(_merge(runs, lambda run: run.partition), kind)


def _offsets(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    return _numbers(columns.offsets, columns.row_count, kind)


def _timestamps(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    # A timestamp beyond the year 294,000 wraps in microseconds; it is nonsense before as after.
    return _numbers(columns.timestamps, columns.row_count, kind)


def _timestamp_types(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    return _repeated(_merge(runs, lambda run: run.timestamp_type), kind)


def _headers(columns: RecordColumns, runs: Sequence[Run], kind: pa.DataType) -> pa.Array:
    found: HeadersColumn = _require(columns.headers)
    count = found.header_count
    parts = [_binary(found.names, count, pa.string()), _binary(found.values, count, pa.binary())]
    headers = pa.Array.from_buffers(HEADER, count, [None], null_count=0, children=parts)
    buffers = [_wrap(found.validity), _wrap(found.offsets)]
    return pa.Array.from_buffers(
        HEADERS, columns.row_count, buffers, null_count=found.null_count, children=[headers]
    )


_MAKERS: dict[str, Callable[[RecordColumns, Sequence[Run], pa.DataType], pa.Array]] = {
    "key": _keys,
    "value": _values,
    "topic": _topics,
    "partition": _partitions,
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": _timestamp_types,
    "headers": _headers,
}

C = TypeVar("C", BytesColumn, HeadersColumn)


def _require(column: C | None) -> C:
    if column is None:
        raise InvariantViolation("the schema names a column that was not decoded")
    return column


def _wrap(buffer: Buffer | None) -> pa.Buffer | None:
    return None if buffer is None else pa.py_buffer(buffer)


def _binary(column: BytesColumn, rows: int, kind: pa.DataType) -> pa.Array:
    buffers = [_wrap(column.validity), _wrap(column.offsets), _wrap(column.data)]
    return pa.Array.from_buffers(kind, rows, buffers, null_count=column.null_count)


def _numbers(buffer: Buffer, rows: int, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, _wrap(buffer)], null_count=0)


def _repeated(values: Iterator[tuple[int | str, int]], kind: pa.DataType) -> pa.Array:
    """Each value as often as it is said."""
    parts = [_repeat(value, rows, kind) for value, rows in values]
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.array([], kind)


def _repeat(value: int | str, rows: int, kind: pa.DataType) -> pa.Array:
    if rows > _MOST_KEPT_ROWS:
        return pa.repeat(pa.scalar(value, kind), rows)
    return _keep_repeated(value, 1 << (rows - 1).bit_length() if rows else 0, kind).slice(0, rows)


@lru_cache(maxsize=16)
def _keep_repeated(value: int | str, rows: int, kind: pa.DataType) -> pa.Array:
    """Kept: batch after batch of a partition has the same, and arrays do not change."""
    return pa.repeat(pa.scalar(value, kind), rows)


def _merge(runs: Sequence[Run], value_of: Callable[[Run], T]) -> Iterator[tuple[T, int]]:
    """Each value and for how many rows it holds."""
    for value, same in groupby(runs, value_of):
        yield value, sum(run.rows for run in same)


# The columns of a topic as a table: those of Spark's Kafka source, in its order. A rule.
#
# `headers` is null where a record has none. `timestampType` is 0 for the time that the producer
# gave and 1 for the time at which the broker appended the record.


TimestampUnit = Literal["ms", "us"]
"""Kafka counts milliseconds, which cost nothing to pass on; Spark wants microseconds."""

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(HEADER)


@cache
def whole_schema(timestamp_unit: TimestampUnit = "ms") -> pa.Schema:
    """All columns."""
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("topic", pa.string()),
            pa.field("partition", pa.int32()),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp(timestamp_unit, tz="UTC")),
            pa.field("timestampType", pa.int32()),
            pa.field("headers", HEADERS),
        ]
    )


def choose_schema(
    columns: Iterable[str] | None = None, timestamp_unit: TimestampUnit = "ms"
) -> pa.Schema:
    """The named columns in the order given, or all; raises ConfigurationError."""
    whole = whole_schema(timestamp_unit)
    if columns is None:
        return whole
    if isinstance(columns, str):
        raise ConfigurationError(f"columns is a list of names: [{columns!r}], not {columns!r}")
    names = list(columns)
    for name in names:
        if name not in whole.names:
            raise ConfigurationError(
                f"a topic has no column {name!r}; there are {', '.join(whole.names)}"
            )
    if len(set(names)) < len(names):
        raise ConfigurationError(f"columns names one of {', '.join(names)} twice")
    return pa.schema([whole.field(name) for name in names])
