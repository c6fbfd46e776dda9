"""Rows and columns on their way into batches, in plain Python; a part of `_codec_pure`.

`_codec_native` is the twin in C; one test suite runs on both. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from moldau.errors import BatchTooLargeError
from moldau.records.batch_header import Buffer
from moldau.records.columns import BytesColumn, HeadersColumn, NumbersColumn
from moldau.records.record import RECORD_OVERHEAD_BYTES, Headers, RecordRow

# Rows on their way into batches, in plain Python; a part of `_codec_pure`.
#
# `_codec_native` is the twin in C; one test suite runs on both. A rule.


_INT32_MAX: Final = (1 << 31) - 1
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_HEADER_OVERHEAD_BYTES = 10
_MURMUR_SEED = 0x9747B28C
_MURMUR_MULTIPLIER = 0x5BD1E995
_UINT32_MASK = 0xFFFFFFFF


def require_row(row: RecordRow) -> None:
    if not isinstance(row, tuple):
        raise TypeError(f"a row is a tuple, not {type(row).__name__}")
    if len(row) < 4:
        raise ValueError("a row ends with timestamp, key, value and headers")


def make_rows(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    timestamp_ms: int,
    headers: Headers,
) -> list[RecordRow]:
    """Rows of values, with keys beside them or None, that share a timestamp and headers."""
    if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
        raise OverflowError(f"the timestamp {timestamp_ms} does not fit into 64 bits")
    if keys is None:
        return [
            (timestamp_ms, None, _as_payload(value, "value", index), headers)
            for index, value in enumerate(values)
        ]
    if len(keys) != len(values):
        raise ValueError(f"there are {len(values)} values and {len(keys)} keys")
    return [
        (timestamp_ms, _as_payload(key, "key", index), _as_payload(value, "value", index), headers)
        for index, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def _as_payload(content: bytes | None, field: str, index: int) -> bytes | None:
    """The bytes of a key or value, copied where the caller could still change them."""
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    raise TypeError(f"{field} {index} is {type(content).__name__}, not bytes")


def find_timestamps(rows: list[RecordRow]) -> tuple[int, int]:
    """The timestamp of the first row and the highest one; there is at least one row."""
    if not rows:
        raise ValueError("there is no row")
    timestamps = [_timestamp_of(row) for row in rows]
    return timestamps[0], max(timestamps)


def _timestamp_of(row: RecordRow) -> int:
    require_row(row)
    timestamp_ms = row[-4]
    if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
        raise OverflowError(f"the timestamp {timestamp_ms} does not fit into 64 bits")
    return timestamp_ms


def row_size(row: RecordRow) -> int:
    """About what a record takes in a batch, before compression."""
    require_row(row)
    _, key, value, headers = row[-4:]
    size = RECORD_OVERHEAD_BYTES
    size += 0 if key is None else len(key)
    size += 0 if value is None else len(value)
    for name, content in headers:
        size += _HEADER_OVERHEAD_BYTES + len(name.encode("utf-8", "surrogateescape"))
        size += 0 if content is None else len(content)
    return size


def count_fitting(rows: list[RecordRow], start: int, limit_bytes: int) -> tuple[int, int]:
    """How many rows from `start` on take at most so many bytes together, and what they take."""
    total = 0
    for index in range(start, len(rows)):
        size = row_size(rows[index])
        if total + size > limit_bytes:
            return index - start, total
        total += size
    return max(len(rows) - start, 0), total


def murmur2(data: bytes) -> int:
    """The hash as Java shows it: a signed 32-bit number (`Utils.murmur2`)."""
    length = len(data)
    value = (_MURMUR_SEED ^ length) & _UINT32_MASK
    word_count = length >> 2
    for word in struct.unpack_from(f"<{word_count}I", data):
        mixed = word * _MURMUR_MULTIPLIER & _UINT32_MASK
        mixed = (mixed ^ mixed >> 24) * _MURMUR_MULTIPLIER & _UINT32_MASK
        value = (value * _MURMUR_MULTIPLIER & _UINT32_MASK) ^ mixed
    tail = data[word_count << 2 :]
    if tail:
        value = (value ^ int.from_bytes(tail, "little")) * _MURMUR_MULTIPLIER & _UINT32_MASK
    value = (value ^ value >> 13) * _MURMUR_MULTIPLIER & _UINT32_MASK
    value ^= value >> 15
    return value - (1 << 32) if value > _INT32_MAX else value


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Where every Java client puts this key."""
    if partition_count <= 0:
        raise ValueError(f"a topic cannot have {partition_count} partitions")
    return (murmur2(key) & _INT32_MAX) % partition_count


def split_by_key(rows: list[RecordRow], partition_count: int) -> list[list[RecordRow]]:
    """The rows of each partition in order, and at the end of the list those without a key."""
    if partition_count <= 0:
        raise ValueError(f"a topic cannot have {partition_count} partitions")
    parts: list[list[RecordRow]] = [[] for _ in range(partition_count + 1)]
    for row in rows:
        require_row(row)
        key = row[-3]
        part = partition_count if key is None else partition_for_key(key, partition_count)
        parts[part].append(row)
    return parts


_MOST_BYTES_AROUND_PARTS: Final = 46
_COLUMN_HEADER_BYTES: Final = 10

_PutRecord = Callable[[bytearray, int, RecordRow, int], None]


class PlainColumnEncoder:
    """The twin of `ColumnEncoder`; `put_record` is that of `_codec_pure`."""

    def __init__(
        self,
        put_record: _PutRecord,
        row_count: int,
        *,
        values: BytesColumn | None,
        keys: BytesColumn | None = None,
        headers: HeadersColumn | None = None,
        timestamps: NumbersColumn | None = None,
        partitions: NumbersColumn | None = None,
        timestamp_ms: int = 0,
    ) -> None:
        if not 0 <= row_count < _INT32_MAX:
            raise ValueError(f"columns cannot have {row_count} rows")
        self.row_count = row_count
        self._put_record = put_record
        self._timestamp_ms = timestamp_ms
        self._values = _Texts(values, row_count)
        self._keys = _Texts(keys, row_count)
        self._timestamps = _Integers(timestamps, row_count, "q")
        self._partitions = _Integers(partitions, row_count, "i")
        self._header_count = 0
        self._header_offsets: Sequence[int] | None = None
        if headers is not None:
            _, validity, offsets, header_count, names, contents = headers
            if not 0 <= header_count < _INT32_MAX:
                raise ValueError(f"columns cannot have {header_count} headers")
            self._header_count = header_count
            self._header_offsets = _read(offsets, row_count + 1, "i")
            self._header_validity = _bits(validity, row_count)
            self._names = _Texts(names, header_count)
            self._contents = _Texts(contents, header_count)

    def row_size(self, row: int) -> int:
        """About what a record takes in a batch, before compression."""
        return self._measure(self._find(row))

    def append_to(
        self,
        output: bytearray,
        first_index: int,
        rows: Buffer | None,
        start: int,
        limit_bytes: int,
        base_timestamp: int | None,
    ) -> tuple[int, int, int, int, int]:
        """Encode rows from a place of their list on, as many as fit."""
        if start < 0:
            raise IndexError(f"a list has no place {start}")
        wanted = range(self.row_count) if rows is None else _read(rows, len(rows) // 4, "i")
        found: list[RecordRow] = []
        total = 0
        for row in wanted[start:]:
            try:
                record, size = self._measured(row, first_index, limit_bytes)
            except (IndexError, TypeError, ValueError, BatchTooLargeError):
                if found:
                    break  # those before it are taken
                raise
            if size > limit_bytes - total:
                break
            found.append(record)
            total += size
        if not found:
            return 0, 0, start, 0, 0
        base = found[0][-4] if base_timestamp is None else base_timestamp
        for index, record in enumerate(found, first_index):
            self._put_record(output, index, record, base)
        highest = max(record[-4] for record in found)
        return len(found), total, start + len(found), base, highest

    def _measured(self, row: int, index: int, limit_bytes: int) -> tuple[RecordRow, int]:
        record = self._find(row)
        size = self._measure(record)
        if limit_bytes >= size > _INT32_MAX - _MOST_BYTES_AROUND_PARTS:
            raise BatchTooLargeError(f"record {index} has {size} bytes")
        return record, size

    def split(self, partition_count: int, ignores_keys: bool = False) -> tuple[bytes, list[int]]:
        """The rows of each partition, and behind them those that are free to go anywhere."""
        if not 0 < partition_count < _INT32_MAX:
            raise ValueError(f"a topic cannot have {partition_count} partitions")
        parts: list[list[int]] = [[] for _ in range(partition_count + 1)]
        for row in range(self.row_count):
            parts[self._choose(row, partition_count, ignores_keys)].append(row)
        ordered = [row for part in parts for row in part]
        return struct.pack(f"={len(ordered)}i", *ordered), list(accumulate(map(len, parts)))

    def _choose(self, row: int, partition_count: int, ignores_keys: bool) -> int:
        """A number of a partition; their count stands for none."""
        part = self._partitions.find(row)
        if part is not None:
            if not 0 <= part < partition_count:
                raise ValueError(f"row {row} names partition {part} of {partition_count}")
            return part
        key = self._keys.find(row)
        if key is None or ignores_keys:
            return partition_count
        return partition_for_key(key, partition_count)

    def _find(self, row: int) -> RecordRow:
        if not 0 <= row < self.row_count:
            raise IndexError(f"there is no row {row} of {self.row_count}")
        timestamp_ms = self._timestamps.find(row)
        return (
            self._timestamp_ms if timestamp_ms is None else timestamp_ms,
            self._keys.find(row),
            self._values.find(row),
            tuple([self._find_header(number) for number in self._find_headers(row)]),
        )

    def _find_headers(self, row: int) -> range:
        offsets = self._header_offsets
        if offsets is None or _is_null(self._header_validity, row):
            return range(0)
        first, end = offsets[row], offsets[row + 1]
        if not 0 <= first <= end <= self._header_count:
            raise _outside(row)
        return range(first, end)

    def _find_header(self, number: int) -> tuple[str, bytes | None]:
        try:
            name, content = self._names.find(number), self._contents.find(number)
        except ValueError:
            raise ValueError(f"header {number} lies outside of its data") from None
        if name is None:
            raise TypeError("a header's name is text, not NoneType")
        return name.decode("utf-8", "surrogateescape"), content

    def _measure(self, record: RecordRow) -> int:
        key, value, headers = record[-3:]
        size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
        for name, content in headers:
            name_bytes = len(name.encode("utf-8", "surrogateescape"))
            size += _COLUMN_HEADER_BYTES + name_bytes + len(content or b"")
        return size


class _Texts:
    """A column of byte strings; one that is not there is null throughout."""

    def __init__(self, column: BytesColumn | None, rows: int) -> None:
        self._offsets: Sequence[int] | None = None
        if column is not None:
            _, validity, offsets, self._data = column
            self._validity = _bits(validity, rows)
            self._offsets = _read(offsets, rows + 1, "i")

    def find(self, row: int) -> bytes | None:
        offsets = self._offsets
        if offsets is None or _is_null(self._validity, row):
            return None
        first, end = offsets[row], offsets[row + 1]
        if not 0 <= first <= end <= len(self._data):
            raise _outside(row)
        return bytes(self._data[first:end])


class _Integers:
    """A column of whole numbers; one that is not there is null throughout."""

    def __init__(self, column: NumbersColumn | None, rows: int, letter: str) -> None:
        self._numbers: Sequence[int] | None = None
        if column is not None:
            validity, data = column
            self._validity = _bits(validity, rows)
            self._numbers = _read(data, rows, letter)

    def find(self, row: int) -> int | None:
        if self._numbers is None or _is_null(self._validity, row):
            return None
        return self._numbers[row]


def _read(data: Buffer, count: int, letter: str) -> Sequence[int]:
    needed = struct.calcsize(letter) * count
    _require_bytes(data, needed)
    return memoryview(data).cast("B")[:needed].cast(letter)  # type: ignore[call-overload, no-any-return]


def _bits(validity: Buffer | None, rows: int) -> Buffer | None:
    if validity is not None:
        _require_bytes(validity, (rows + 7) // 8)
    return validity


def _require_bytes(data: Buffer, needed: int) -> None:
    if len(data) < needed:
        raise ValueError(f"a column has {len(data)} bytes where {needed} are needed")


def _is_null(validity: Buffer | None, row: int) -> bool:
    return validity is not None and not validity[row >> 3] >> (row & 7) & 1


def _outside(row: int) -> ValueError:
    return ValueError(f"row {row} lies outside of its column")
