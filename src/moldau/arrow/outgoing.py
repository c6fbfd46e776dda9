"""From Arrow tables to what the producer puts into batches: buffers, no record in Python. A rule.

The columns are those that `read_table` gives: `value`, and where they are there `key`, `headers`,
`timestamp` and `partition`; others are not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from moldau.arrow.columns import HEADER, HEADERS
from moldau.errors import ConfigurationError
from moldau.records.batch_header import Buffer
from moldau.records.codec import ColumnEncoder, ColumnEncoding
from moldau.records.columns import BytesColumn, HeadersColumn, NumbersColumn
from moldau.records.record import Headers


class PartitionBounds(NamedTuple):
    """The lowest and the highest partition that rows name."""

    lowest: int
    highest: int


class NumberedRows(NamedTuple):
    """Rows that name the same partition, or none, each with timestamp, key, value and headers."""

    partition: int | None
    rows: list[tuple[object, object, object, Headers]]


def to_batches(given: object) -> list[pa.RecordBatch]:
    """Pieces of a table, a RecordBatch, or whatever hands its columns over as Arrow does."""
    if isinstance(given, pa.RecordBatch):
        return [given] if given.num_rows else []
    if not hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__arrow_c_array__"):
        raise TypeError(
            f"table: give an Arrow table, like moldau.read_table gives, not {given!r:.80} "
            f"({type(given).__name__})"
        )
    table: pa.Table = pa.table(given) if not isinstance(given, pa.Table) else given
    return [piece for piece in table.to_batches() if piece.num_rows]


def require_value(batch: pa.RecordBatch) -> None:
    if "value" not in batch.schema.names:
        names = ", ".join(batch.schema.names)
        raise ConfigurationError(f"a column 'value' is needed, there is {names or 'none'}")


def to_encoder(batch: pa.RecordBatch, now_ms: int) -> ColumnEncoding:
    """What the codec encodes; rows without a timestamp have `now_ms`."""
    require_value(batch)
    keys, headers = _find(batch, "key"), _find(batch, "headers")
    timestamps, partitions = find_timestamps(batch), find_partitions(batch)
    return ColumnEncoder(
        batch.num_rows,
        values=_bytes_column(_as_bytes(batch.column("value"), "value")),
        keys=None if keys is None else _bytes_column(_as_bytes(keys, "key")),
        headers=None if headers is None else _headers_column(headers),
        timestamps=None if timestamps is None else _numbers_column(timestamps, 8),
        partitions=None if partitions is None else _numbers_column(partitions, 4),
        timestamp_ms=now_ms,
    )


def find_bounds(batch: pa.RecordBatch) -> PartitionBounds | None:
    """None where no row names a partition."""
    partitions = find_partitions(batch)
    if partitions is None or partitions.null_count == len(partitions):
        return None
    found = pc.min_max(partitions)
    return PartitionBounds(found["min"].as_py(), found["max"].as_py())


def to_rows(
    batch: pa.RecordBatch, *, keep_keys: bool, keep_values: bool, ignores_partitions: bool = False
) -> Iterator[NumberedRows]:
    """The rows one by one, for producers that look at each. What is kept is for a serializer, and
    stays as Arrow has it; the rest becomes bytes."""
    require_value(batch)
    partitions = None if ignores_partitions else find_partitions(batch)
    rows = _rows_of(batch, keep_keys, keep_values)
    if partitions is None:
        yield NumberedRows(None, rows)
        return
    parted: dict[int | None, list[tuple[object, object, object, Headers]]] = {}
    for partition, row in zip(partitions.to_pylist(), rows, strict=True):
        parted.setdefault(partition, []).append(row)
    for found in parted.items():
        yield NumberedRows(*found)


def _rows_of(
    batch: pa.RecordBatch, keep_keys: bool, keep_values: bool
) -> list[tuple[object, object, object, Headers]]:
    nothing = [None] * batch.num_rows
    keys, values, headers = _find(batch, "key"), batch.column("value"), _find(batch, "headers")
    timestamps = find_timestamps(batch)
    return list(
        zip(
            nothing if timestamps is None else timestamps.to_pylist(),
            nothing if keys is None else _payloads(keys, "key", keep_keys),
            _payloads(values, "value", keep_values),
            [()] * batch.num_rows if headers is None else _header_tuples(headers),
            strict=True,
        )
    )


def _payloads(array: pa.Array, name: str, keep: bool) -> list[object]:
    payloads: list[object] = (array if keep else _as_bytes(array, name)).to_pylist()
    return payloads


def _header_tuples(array: pa.Array) -> Iterator[Headers]:
    lists = _as_headers(array)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_pylist()
    names, contents = (part.to_pylist() for part in lists.flatten().flatten())
    headers = list(zip(names, contents, strict=True))
    for start, end in pairwise(accumulate(lengths, initial=0)):
        yield tuple(headers[start:end])


# Columns as the codec wants them


def find_timestamps(batch: pa.RecordBatch) -> pa.Array | None:
    """In milliseconds since 1970."""
    array = _find(batch, "timestamp")
    if array is None:
        return None
    if pa.types.is_timestamp(array.type):
        milliseconds = pa.timestamp("ms", array.type.tz)
        array = _cast(array, "timestamp", milliseconds, allow_time_truncate=True)
    elif not pa.types.is_integer(array.type) and not pa.types.is_null(array.type):
        raise _wrong_column("timestamp", array, "a timestamp, or milliseconds since 1970")
    array = _cast(array, "timestamp", pa.int64())
    lowest = pc.min(array).as_py()
    if lowest is not None and lowest < 0:
        raise ValueError(f"a timestamp is a number of milliseconds since 1970, not {lowest}")
    return array


def find_partitions(batch: pa.RecordBatch) -> pa.Array | None:
    array = _find(batch, "partition")
    if array is None:
        return None
    if not pa.types.is_integer(array.type) and not pa.types.is_null(array.type):
        raise _wrong_column("partition", array, "a whole number")
    return _cast(array, "partition", pa.int32())


def _cast(array: pa.Array, name: str, kind: pa.DataType, **allowed: bool) -> pa.Array:
    try:
        return pc.cast(array, options=pc.CastOptions(kind, **allowed))
    except pa.ArrowInvalid as error:
        raise ValueError(f"the column {name!r} has a number that none can be: {error}") from None


def _find(batch: pa.RecordBatch, name: str) -> pa.Array | None:
    return batch.column(name) if name in batch.schema.names else None


def _as_bytes(array: pa.Array, name: str) -> pa.Array:
    """Bytes, or text, which is bytes of UTF-8."""
    kind = array.type
    if pa.types.is_binary(kind):
        return array
    if pa.types.is_string(kind):
        return array.view(pa.binary())
    if pa.types.is_dictionary(kind):
        return _decode_dictionary(array, name)
    if not (
        pa.types.is_large_binary(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_null(kind)
    ):
        raise _wrong_column(
            name, array, f"binary or string; cast it, or give the producer a {name}_serializer"
        )
    try:
        return array.cast(pa.binary())
    except pa.ArrowInvalid as error:
        raise _too_long(name) from error


def _decode_dictionary(array: pa.Array, name: str) -> pa.Array:
    words = _as_bytes(array.dictionary, name)  # before: Arrow cannot look up views, as Polars has
    try:
        return pa.DictionaryArray.from_arrays(array.indices, words).dictionary_decode()
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise _too_long(name) from error


def _too_long(name: str) -> ValueError:
    return ValueError(
        f"the column {name!r} has more than 2 GiB in one piece; send the table in slices"
    )


def _as_headers(array: pa.Array) -> pa.Array:
    if array.type.equals(HEADERS):
        return array
    try:
        return array.cast(HEADERS)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        raise _wrong_column("headers", array, f"a list of {HEADER}") from None


def _wrong_column(name: str, array: pa.Array, wanted: str) -> TypeError:
    return TypeError(f"the column {name!r} is {array.type}, it has to be {wanted}")


def _bytes_column(array: pa.Array) -> BytesColumn:
    data = array.buffers()[2]
    return BytesColumn(
        array.null_count,
        _validity(array),
        _offsets(array),
        b"" if data is None else memoryview(data),
    )


def _numbers_column(array: pa.Array, width: int) -> NumbersColumn:
    _, data = array.buffers()
    return NumbersColumn(_validity(array), _slice(data, array.offset, len(array), width))


def _headers_column(given: pa.Array) -> HeadersColumn:
    array = _as_headers(given)
    names, contents = array.values.flatten()  # a header that is null has neither
    return HeadersColumn(
        array.null_count,
        _validity(array),
        _offsets(array),
        len(names),
        _bytes_column(names),
        _bytes_column(contents),
    )


def _offsets(array: pa.Array) -> Buffer:
    """One more than there are rows. Without rows, as headers may be, Java's Arrow writes none."""
    if not len(array):
        return bytes(4)
    return _slice(array.buffers()[1], array.offset, len(array) + 1, 4)


def _slice(buffer: pa.Buffer | None, first: int, count: int, width: int) -> Buffer:
    """Where all rows are null there may be no buffer at all."""
    if buffer is None:
        return bytes(width * count)
    return memoryview(buffer)[width * first : width * (first + count)]


def _validity(array: pa.Array) -> Buffer | None:
    """The bitmap, its first bit that of the first row."""
    if not array.null_count:
        return None
    buffer = array.buffers()[0]
    if buffer is None:  # all are null, and nothing else is told
        return bytes((len(array) + 7) // 8)
    offset: int = array.offset
    first, shift = divmod(offset, 8)
    bits = memoryview(buffer)[first : (offset + len(array) + 7) // 8]
    if not shift:
        return bits
    return (int.from_bytes(bits, "little") >> shift).to_bytes(len(bits), "little")
