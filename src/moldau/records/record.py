"""A record as a consumer gets it and a producer gives it, and its encoded bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from moldau.records.batch_header import Buffer

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Names may repeat. Bytes of a name that are no UTF-8 are kept as lone surrogates (PEP 383), so a
record that is read and written again is the same."""

RECORD_OVERHEAD_BYTES = 12
"""About what lengths, attributes and deltas take around key, value and headers of a record."""


class Record(NamedTuple):
    """A record with its place in the log. A named tuple: consumers get millions of them."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class NewRecord(NamedTuple):
    """A record that has no place yet; its offset follows from its position in a batch."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


RecordRow: TypeAlias = NewRecord | Record | tuple[int, bytes | None, bytes | None, Headers]
"""What can be encoded: any tuple that ends with timestamp, key, value and headers."""


# Encoded records, relative to another base timestamp. They were decoded before, so their lengths
# are valid.


_UINT64_MASK = (1 << 64) - 1


def shift_timestamps(payload: Buffer, record_count: int, shift_ms: int) -> bytes:
    """The records of a batch, relative to a base timestamp that is so much earlier."""
    parts = split_records(payload, record_count)
    return b"".join(shift_timestamp(part, shift_ms) for part in parts)


def split_records(payload: Buffer, count: int) -> Iterator[bytes]:
    """The bytes of each record, with its length before it."""
    data = bytes(payload)
    position = 0
    for _ in range(count):
        length, body_at = _read_varint(data, position)
        yield data[position : body_at + length]
        position = body_at + length


def shift_timestamp(record: bytes, shift_ms: int) -> bytes:
    """One record, relative to a base timestamp that is so much earlier; what does not fit wraps."""
    _, body_at = _read_varint(record, 0)
    delta, rest_at = _read_varint(record, body_at + 1)
    body = record[body_at : body_at + 1] + _varint(delta + shift_ms) + record[rest_at:]
    return _varint(len(body)) + body


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= _UINT64_MASK
            return (raw >> 1) ^ -(raw & 1), position
        shift += 7


def _varint(value: int) -> bytes:
    """Zigzag; what does not fit into 64 bits wraps, as everywhere with hostile timestamps."""
    value = ((value + (1 << 63)) & _UINT64_MASK) - (1 << 63)
    raw = ((value << 1) ^ (value >> 63)) & _UINT64_MASK
    encoded = bytearray()
    while raw >= 0x80:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)
