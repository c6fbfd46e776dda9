"""Rows on their way into batches, in plain Python; a part of `_codec_pure`.

`_codec_native` is the twin in C; one test suite runs on both. A rule.
"""

from __future__ import annotations

import struct
from typing import Final

from moldau.records.record import RECORD_OVERHEAD_BYTES, Headers, RecordRow

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
