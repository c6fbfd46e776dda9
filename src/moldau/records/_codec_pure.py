"""The record codec in plain Python: serves where no compiler was found, and explains the other.

    record:  length varint, attributes int8 (unused), timestamp delta varlong, offset delta varint,
             key bytes, value bytes, header count varint, headers
    header:  name bytes (never null), value bytes
    bytes:   length varint (-1 is null), then as many bytes

Varints are zigzagged. What counts as wrong is what Kafka's `DefaultRecord.readFrom` and
`LogValidator` refuse. `_codec_native` is the twin in C; one test suite runs on both. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import blake2b
from itertools import accumulate
from typing import Final, NamedTuple, TypeAlias, TypeVar

from moldau.errors import BatchTooLargeError, InvalidRecordError
from moldau.records._rows_pure import PlainColumnEncoder, require_row
from moldau.records._rows_pure import count_fitting as count_fitting
from moldau.records._rows_pure import find_timestamps as find_timestamps
from moldau.records._rows_pure import make_rows as make_rows
from moldau.records._rows_pure import murmur2 as murmur2
from moldau.records._rows_pure import partition_for_key as partition_for_key
from moldau.records._rows_pure import row_size as row_size
from moldau.records._rows_pure import split_by_key as split_by_key
from moldau.records.batch_header import Buffer
from moldau.records.columns import (
    MAX_PAYLOAD_BYTES,
    BytesColumn,
    ColumnSource,
    HeadersColumn,
    RecordColumns,
)
from moldau.records.record import (
    RECORD_OVERHEAD_BYTES,
    Headers,
    Record,
    RecordRow,
    shift_timestamp,
    split_records,
)
from moldau.records.record_faults import (
    ATTRIBUTES,
    CUT_SHORT,
    HEADER_COUNT,
    HEADER_KEY_LENGTH,
    HEADER_VALUE_LENGTH,
    KEY_LENGTH,
    KEY_MISSING,
    NEGATIVE,
    OFFSET_DELTA,
    OVERLONG,
    PAYLOAD_LEFT_OVER,
    RECORD_COUNT,
    RECORD_LEFT_OVER,
    RECORD_LENGTH,
    RECORD_MISSING,
    TIMESTAMP_DELTA,
    TOO_LARGE,
    UNEXPECTED_OFFSET_DELTA,
    VALUE_LENGTH,
    RecordFault,
    describe,
)

# A walk over records that come in pieces. It reads one field after the other, whatever piece it is
# in, and skips keys, values and headers without keeping them. A fault is what `find_fault` says; a
# record that is too long for what follows is noticed at the end only.


class _WalkFault(Exception):
    """Leaves the walk at once."""

    def __init__(self, kind: int, field: int, found: int = 0, allowed: int = 0) -> None:
        self.numbers = (kind, field, found, allowed)


class RecordWalk:
    """Feed all pieces, then `finish`. The first fault ends it."""

    def __init__(self, record_count: int, require_keys: bool) -> None:
        self._record_count = record_count
        self._require_keys = require_keys
        self._index = 0
        self._field = RECORD_LENGTH  # the one that is read, or whose bytes are skipped before it
        self._raw = 0  # of a varint, as far as it is known
        self._shift = 0
        self._skip = 0  # bytes to pass over before the field
        self._length = 0  # of the record
        self._left = 0  # bytes of the record that were not seen yet
        self._headers_left = 0
        self._left_over = 0
        self._fault: RecordFault | None = None
        if record_count < 0:
            self._fault = describe(0, NEGATIVE, RECORD_COUNT, record_count, 0)

    def feed(self, piece: Buffer) -> RecordFault | None:
        data = bytes(piece)
        position = 0
        try:
            while position < len(data) and self._fault is None:
                position = self._step(data, position)
        except _WalkFault as fault:
            self._fault = describe(self._index, *fault.numbers)
        return self._fault

    def finish(self) -> RecordFault | None:
        if self._fault is not None:
            return self._fault
        if self._left_over:
            return describe(self._index, PAYLOAD_LEFT_OVER, RECORD_COUNT, self._left_over, 0)
        if self._field != RECORD_LENGTH or self._skip:
            seen = self._length - self._left
            return describe(self._index, TOO_LARGE, RECORD_LENGTH, self._length, seen)
        if self._shift:
            return describe(self._index, CUT_SHORT, RECORD_LENGTH, 0, 0)
        if self._index < self._record_count:
            return describe(self._index, RECORD_MISSING, RECORD_LENGTH, 0, 0)
        return None

    def _step(self, data: bytes, position: int) -> int:
        """Take some bytes; returns the position behind them."""
        if self._skip:
            count = min(self._skip, len(data) - position)
            self._skip -= count
            self._left -= count
            if not self._skip and self._field == RECORD_LENGTH:
                self._end_record()
            return position + count
        if self._index == self._record_count:
            self._left_over += len(data) - position
            return len(data)
        if self._field == ATTRIBUTES:
            self._left -= 1
            self._next(TIMESTAMP_DELTA)
            return position + 1
        self._take_byte(data[position])
        return position + 1

    def _take_byte(self, byte: int) -> None:
        field = self._field
        bits = _VARLONG_BITS if field == TIMESTAMP_DELTA else _VARINT_BITS
        self._raw |= (byte & 0x7F) << self._shift
        self._shift += 7
        if field != RECORD_LENGTH:
            self._left -= 1
        if byte < 0x80:
            raw = self._raw & ((1 << bits) - 1)
            self._raw = self._shift = 0
            self._take((raw >> 1) ^ -(raw & 1))
        elif self._shift >= bits + 3:
            raise _WalkFault(OVERLONG, field)
        elif field != RECORD_LENGTH and not self._left:
            raise _WalkFault(CUT_SHORT, field)

    def _take(self, value: int) -> None:
        """The value of the field is known."""
        field = self._field
        if field == RECORD_LENGTH:
            if value < 0:
                raise _WalkFault(NEGATIVE, RECORD_LENGTH, value)
            self._length = self._left = value
            self._next(ATTRIBUTES)
        elif field == TIMESTAMP_DELTA:
            self._next(OFFSET_DELTA)
        elif field == OFFSET_DELTA:
            if value != self._index:
                raise _WalkFault(UNEXPECTED_OFFSET_DELTA, OFFSET_DELTA, value, self._index)
            self._next(KEY_LENGTH)
        elif field == HEADER_COUNT:
            self._take_header_count(value)
        else:
            self._take_length(field, value)

    def _take_length(self, field: int, length: int) -> None:
        if field == KEY_LENGTH:
            if length < 0 and self._require_keys:
                raise _WalkFault(KEY_MISSING, KEY_LENGTH)
            self._pass_over(length, VALUE_LENGTH)
        elif field == VALUE_LENGTH:
            self._pass_over(length, HEADER_COUNT)
        elif field == HEADER_KEY_LENGTH:
            self._pass_over(length, HEADER_VALUE_LENGTH, smallest=0)
        else:
            self._headers_left -= 1
            self._pass_over(length, HEADER_KEY_LENGTH if self._headers_left else RECORD_LENGTH)

    def _take_header_count(self, count: int) -> None:
        if count < 0:
            raise _WalkFault(NEGATIVE, HEADER_COUNT, count)
        if count > self._left:
            raise _WalkFault(TOO_LARGE, HEADER_COUNT, count, self._left)
        self._headers_left = count
        if count:
            self._next(HEADER_KEY_LENGTH)
        else:
            self._field = RECORD_LENGTH
            self._end_record()

    def _pass_over(self, length: int, field: int, smallest: int = -1) -> None:
        """Skip bytes of so many, and read a field behind them."""
        if length < smallest:
            raise _WalkFault(NEGATIVE, self._field, length)
        if length > self._left:
            raise _WalkFault(TOO_LARGE, self._field, length, self._left)
        self._skip = max(length, 0)
        if field == RECORD_LENGTH:
            self._field = RECORD_LENGTH
            if not self._skip:
                self._end_record()
        elif self._left == self._skip:
            raise _WalkFault(CUT_SHORT, field)
        else:
            self._field = field

    def _next(self, field: int) -> None:
        if not self._left:
            raise _WalkFault(CUT_SHORT, field)
        self._field = field

    def _end_record(self) -> None:
        if self._left:
            raise _WalkFault(RECORD_LEFT_OVER, RECORD_LENGTH, self._left)
        self._index += 1


# The last offset of each key: a dictionary, where `LatestOffsets` of `_codec_native` has an open
# hash table. What stays of a batch, and its bytes, are the same.


LATEST_KEY_BYTES = 150
"""What an entry of a dictionary from a short key to an offset costs."""

MAX_PLAIN_KEY_BYTES = 32
_SECRET_BYTES = 16
_DIGEST_BYTES = 16

_Key: TypeAlias = bytes | int
"""A key, or the digest of a long one: an integer, so that it never equals a key."""

_Decode = Callable[[Buffer, int, int, int], list[Record]]


class LatestKeys:
    """The twin of `LatestOffsets`; `decode` is `decode_records` of `_codec_pure`."""

    def __init__(self, decode: _Decode, expected_keys: int, secret: bytes) -> None:
        if len(secret) != _SECRET_BYTES:
            raise ValueError(f"the secret has {len(secret)} bytes, not {_SECRET_BYTES}")
        self._decode = decode
        self._secret = secret
        self._offsets: dict[_Key, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def clear(self) -> None:
        self._offsets = {}

    def add(self, payload: Buffer, record_count: int, base_offset: int, from_offset: int) -> None:
        for record in self._decode(payload, record_count, base_offset, 0):
            if record.key is not None and record.offset >= from_offset:
                self._offsets[self._shorten(record.key)] = record.offset

    def select(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp: int,
        end_offset: int,
        drop_tombstones: bool,
        horizon_ms: int | None,
    ) -> tuple[int, int, bool, bytes | None]:
        records = self._decode(payload, record_count, base_offset, base_timestamp)
        stays = [self._stays(record, end_offset, drop_tombstones) for record in records]
        kept = [record for record, is_kept in zip(records, stays, strict=True) if is_kept]
        if not kept:
            return 0, 0, False, None
        sets_horizon = horizon_ms is not None and any(record.value is None for record in kept)
        max_timestamp = max(record.timestamp_ms for record in kept)
        if not sets_horizon and len(kept) == len(records):
            return len(kept), max_timestamp, False, None
        shift_ms = base_timestamp - (horizon_ms or 0) if sets_horizon else 0
        parts = [
            shift_timestamp(part, shift_ms) if shift_ms else part
            for part, is_kept in zip(split_records(payload, len(records)), stays, strict=True)
            if is_kept
        ]
        return len(kept), max_timestamp, sets_horizon, b"".join(parts)

    def _stays(self, record: Record, end_offset: int, drop_tombstones: bool) -> bool:
        if record.offset >= end_offset:
            return True
        if record.key is None or (record.value is None and drop_tombstones):
            return False
        return self._offsets.get(self._shorten(record.key), -1) <= record.offset

    def _shorten(self, key: bytes) -> _Key:
        if len(key) <= MAX_PLAIN_KEY_BYTES:
            return key
        digest = blake2b(key, digest_size=_DIGEST_BYTES, key=self._secret).digest()
        return int.from_bytes(digest, "big")


IMPLEMENTATION: Final = "pure"

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64
_INT32_MAX: Final = (1 << 31) - 1
T = TypeVar("T", bound=tuple[object, ...])

_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_UINT64_MASK: Final = (1 << 64) - 1


class _Fault(Exception):
    """Leaves the reading functions at once; `index` is known only to the loop outside."""

    def __init__(self, kind: int, field: int, found: int = 0, allowed: int = 0) -> None:
        self.numbers = (kind, field, found, allowed)


class _Parts(NamedTuple):
    """Where the parts of a record are; a length of -1 stands for null."""

    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_bytes: int
    value_at: int
    value_bytes: int
    header_count: int
    headers_at: int
    end: int


# --- reading ----------------------------------------------------------------------------------


def _read_varint(data: bytes, position: int, end: int, field: int, bits: int) -> tuple[int, int]:
    """Value and the position behind it; what does not fit into the bits is lost, as in Kafka."""
    if position < end and (byte := data[position]) < 0x80:  # most of them, and much faster
        return (byte >> 1) ^ -(byte & 1), position + 1
    raw = 0
    for shift in range(0, bits + 3, 7):
        if position >= end:
            raise _Fault(CUT_SHORT, field)
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            raw &= (1 << bits) - 1
            return (raw >> 1) ^ -(raw & 1), position
    raise _Fault(OVERLONG, field)


def _read_bytes(
    data: bytes, position: int, end: int, field: int, smallest: int = -1
) -> tuple[int, int, int]:
    """Start, length and the position behind; `smallest` is -1 where null is allowed."""
    length, start = _read_varint(data, position, end, field, _VARINT_BITS)
    if length < smallest:
        raise _Fault(NEGATIVE, field, length)
    if length > end - start:
        raise _Fault(TOO_LARGE, field, length, end - start)
    return start, length, start + max(length, 0)


def _read_record(data: bytes, position: int) -> _Parts:
    if position >= len(data):
        raise _Fault(RECORD_MISSING, RECORD_LENGTH)
    start, _, end = _read_bytes(data, position, len(data), RECORD_LENGTH, smallest=0)
    if start >= end:
        raise _Fault(CUT_SHORT, ATTRIBUTES)
    timestamp_delta, at = _read_varint(data, start + 1, end, TIMESTAMP_DELTA, _VARLONG_BITS)
    offset_delta, at = _read_varint(data, at, end, OFFSET_DELTA, _VARINT_BITS)
    key_at, key_bytes, at = _read_bytes(data, at, end, KEY_LENGTH)
    value_at, value_bytes, at = _read_bytes(data, at, end, VALUE_LENGTH)
    header_count, headers_at = _read_varint(data, at, end, HEADER_COUNT, _VARINT_BITS)
    _check_headers(data, header_count, headers_at, end)
    return _Parts(
        timestamp_delta,
        offset_delta,
        key_at,
        key_bytes,
        value_at,
        value_bytes,
        header_count,
        headers_at,
        end,
    )


def _check_headers(data: bytes, count: int, position: int, end: int) -> None:
    """The headers must fill the rest of their record exactly."""
    if count < 0:
        raise _Fault(NEGATIVE, HEADER_COUNT, count)
    if count > end - position:
        raise _Fault(TOO_LARGE, HEADER_COUNT, count, end - position)
    for _ in range(count):
        _, _, position = _read_bytes(data, position, end, HEADER_KEY_LENGTH, smallest=0)
        _, _, position = _read_bytes(data, position, end, HEADER_VALUE_LENGTH)
    if position != end:
        raise _Fault(RECORD_LEFT_OVER, RECORD_LENGTH, end - position)


def _find_count_fault(record_count: int) -> RecordFault | None:
    if record_count < 0:
        return describe(0, NEGATIVE, RECORD_COUNT, record_count, 0)
    return None


def _find_end_fault(data: bytes, position: int, record_count: int) -> RecordFault | None:
    if position != len(data):
        left_over = len(data) - position
        return describe(record_count, PAYLOAD_LEFT_OVER, RECORD_COUNT, left_over, 0)
    return None


def _raise_if(fault: RecordFault | None) -> None:
    if fault is not None:
        raise InvalidRecordError(f"record {fault.index}: {fault.reason}")


def _require_record(data: bytes, position: int, index: int) -> _Parts:
    try:
        return _read_record(data, position)
    except _Fault as fault:
        _raise_if(describe(index, *fault.numbers))
        raise


# --- walking ----------------------------------------------------------------------------------


def read_usual_batch(
    batch: Buffer,
    most_bytes: int,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
    most_records: int,
    looks_inside: bool,
    require_keys: bool,
    header_class: type[T],
) -> T | None:
    """Says nothing of any batch: who asks looks at each in full then, which is as quick here."""
    return None


def find_fault(payload: Buffer, record_count: int, require_keys: bool) -> RecordFault | None:
    """The first thing that is wrong with the uncompressed records of a batch, or None."""
    data = bytes(payload)
    count_fault = _find_count_fault(record_count)
    if count_fault is not None:
        return count_fault
    position = 0
    for index in range(record_count):
        try:
            parts = _read_record(data, position)
        except _Fault as fault:
            return describe(index, *fault.numbers)
        if parts.offset_delta != index:
            delta = parts.offset_delta
            return describe(index, UNEXPECTED_OFFSET_DELTA, OFFSET_DELTA, delta, index)
        if require_keys and parts.key_bytes < 0:
            return describe(index, KEY_MISSING, KEY_LENGTH, 0, 0)
        position = parts.end
    return _find_end_fault(data, position, record_count)


def find_first_at_or_after(
    payload: Buffer,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    target_timestamp: int,
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record that is not older than the target, or None."""
    data = bytes(payload)
    _raise_if(_find_count_fault(record_count))
    position = 0
    for index in range(record_count):
        parts = _require_record(data, position, index)
        timestamp = _add_wrapping(base_timestamp, parts.timestamp_delta)
        if timestamp >= target_timestamp:
            return _add_wrapping(base_offset, parts.offset_delta), timestamp
        position = parts.end
    _raise_if(_find_end_fault(data, position, record_count))
    return None


# --- decoding ---------------------------------------------------------------------------------


def decode_records(
    payload: Buffer,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time_ms: int | None = None,
) -> list[Record]:
    """The records of a batch; with a log append time, all of them have that timestamp."""
    data = bytes(payload)
    _raise_if(_find_count_fault(record_count))
    records = []
    position = 0
    for index in range(record_count):
        parts = _require_record(data, position, index)
        timestamp = log_append_time_ms
        if timestamp is None:
            timestamp = _add_wrapping(base_timestamp, parts.timestamp_delta)
        records.append(
            Record(
                _add_wrapping(base_offset, parts.offset_delta),
                timestamp,
                _bytes_or_none(data, parts.key_at, parts.key_bytes),
                _bytes_or_none(data, parts.value_at, parts.value_bytes),
                _decode_headers(data, parts) if parts.header_count else (),
            )
        )
        position = parts.end
    _raise_if(_find_end_fault(data, position, record_count))
    return records


LatestOffsets = partial(LatestKeys, decode_records)


def join_values(
    payload: Buffer,
    record_count: int,
    base_offset: int,
    from_offset: int,
    end_offset: int,
    most_records: int,
    null: bytes,
) -> tuple[bytearray, int]:
    """The values of the records between two offsets as lines, and how many they are."""
    records = decode_records(payload, record_count, base_offset, 0)
    wanted = [one for one in records if from_offset <= one.offset < end_offset][:most_records]
    lines = bytearray()
    for record in wanted:
        lines += (null if record.value is None else record.value) + b"\n"
    return lines, len(wanted)


def _bytes_or_none(data: bytes, start: int, length: int) -> bytes | None:
    return None if length < 0 else data[start : start + length]


def _decode_headers(data: bytes, parts: _Parts) -> Headers:
    headers = []
    position = parts.headers_at
    for _ in range(parts.header_count):
        start, length, position = _read_bytes(data, position, parts.end, HEADER_KEY_LENGTH)
        name = data[start : start + length].decode("utf-8", "surrogateescape")
        start, length, position = _read_bytes(data, position, parts.end, HEADER_VALUE_LENGTH)
        headers.append((name, _bytes_or_none(data, start, length)))
    return tuple(headers)


def _add_wrapping(left: int, right: int) -> int:
    """Java's addition of longs: hostile deltas wrap."""
    return ((left + right - _INT64_MIN) & _UINT64_MASK) + _INT64_MIN


def decode_consumer_records(
    payload: Buffer,
    record_count: int,
    base_offset: int,
    base_timestamp: int,
    log_append_time_ms: int | None,
    from_offset: int,
    record_class: type[T],
    topic: str,
    partition: int,
    leader_epoch: int,
) -> list[T]:
    """The records from an offset on, each with its place and the kind of its timestamp."""
    records = decode_records(payload, record_count, base_offset, base_timestamp, log_append_time_ms)
    timestamp_type = 0 if log_append_time_ms is None else 1
    return [
        tuple.__new__(record_class, (topic, partition, *record, timestamp_type, leader_epoch))
        for record in records
        if record.offset >= from_offset
    ]


# --- encoding ---------------------------------------------------------------------------------


def encode_records(rows: Iterable[RecordRow], base_timestamp: int) -> bytes:
    """The uncompressed records of a batch, with offset deltas from 0 on."""
    output = bytearray()
    for index, row in enumerate(rows):
        _put_record(output, index, row, base_timestamp)
    return bytes(output)


def append_rows(
    output: bytearray, first_index: int, rows: Iterable[RecordRow], base_timestamp: int
) -> None:
    """Encode rows behind those that are there already; all of them, or none."""
    encoded = bytearray()
    for index, row in enumerate(rows, first_index):
        _put_record(encoded, index, row, base_timestamp)
    output += encoded


def append_lines(
    output: bytearray,
    first_index: int,
    text: bytes,
    start: int,
    limit_bytes: int,
    timestamp_delta: int,
) -> tuple[int, int, int]:
    """Encode lines from a place of the text on, as many as fit, as values without a key."""
    count = size = 0
    while (end := text.find(b"\n", start)) >= 0:
        line = text[start:end].removesuffix(b"\r")
        line_bytes = RECORD_OVERHEAD_BYTES + len(line)
        if size + line_bytes > limit_bytes:
            break
        _put_record(output, first_index + count, (timestamp_delta, None, line, ()), 0)
        count += 1
        size += line_bytes
        start = end + 1
    return count, size, start


def _put_record(output: bytearray, index: int, row: RecordRow, base_timestamp: int) -> None:
    require_row(row)
    timestamp_ms, key, value, headers = row[-4:]
    if not _INT64_MIN <= timestamp_ms <= _INT64_MAX:
        raise OverflowError(f"the timestamp {timestamp_ms} does not fit into 64 bits")
    body = bytearray(1)
    _put_varint(body, _add_wrapping(timestamp_ms, -base_timestamp))
    _put_varint(body, index)
    _put_bytes(body, key)
    _put_bytes(body, value)
    _put_headers(body, headers)
    if len(body) > _INT32_MAX:
        raise BatchTooLargeError(f"record {index} has {len(body)} bytes")
    _put_varint(output, len(body))
    output += body


ColumnEncoder = partial(PlainColumnEncoder, _put_record)


def _put_headers(output: bytearray, headers: Headers) -> None:
    encoded = bytearray()
    count = 0
    for name, value in headers:
        if not isinstance(name, str):
            raise TypeError(f"a header's name is text, not {type(name).__name__}")
        _put_bytes(encoded, name.encode("utf-8", "surrogateescape"))
        _put_bytes(encoded, value)
        count += 1
    _put_varint(output, count)
    output += encoded


def _put_bytes(output: bytearray, content: bytes | None) -> None:
    if content is None:
        _put_varint(output, -1)
        return
    view = memoryview(content)
    _put_varint(output, view.nbytes)
    output += view


def _put_varint(output: bytearray, value: int) -> None:
    """Varint and varlong differ in how much they may hold, not in how they are written."""
    raw = ((value << 1) ^ (value >> 63)) & _UINT64_MASK
    while raw >= 0x80:
        output.append(raw & 0x7F | 0x80)
        raw >>= 7
    output.append(raw)


# --- columns ----------------------------------------------------------------------------------


def decode_columns(
    sources: Iterable[ColumnSource],
    *,
    keys: bool = True,
    values: bool = True,
    headers: bool = True,
    microseconds: bool = False,
) -> RecordColumns:
    """The records of many batches as columns; nothing is made of columns that are not wanted."""
    given = list(sources)
    _require_room([len(memoryview(source.payload)) for source in given])
    decoded = [_decode_source(source) for source in given]
    rows = [row for rows in decoded for row in rows]
    scale = 1000 if microseconds else 1
    timestamps = [_add_wrapping(row.timestamp_ms * scale, 0) for row in rows]
    return RecordColumns(
        len(rows),
        [len(rows) for rows in decoded],
        struct.pack(f"={len(rows)}q", *(row.offset for row in rows)),
        struct.pack(f"={len(rows)}q", *timestamps),
        _bytes_column([row.key for row in rows]) if keys else None,
        _bytes_column([row.value for row in rows]) if values else None,
        _headers_column([row.headers for row in rows]) if headers else None,
    )


def _require_room(payload_bytes: list[int]) -> None:
    total = sum(payload_bytes)
    if total > MAX_PAYLOAD_BYTES:
        raise BatchTooLargeError(
            f"{total} bytes of records are too many for one table; "
            f"decode at most {MAX_PAYLOAD_BYTES} at a time"
        )


def _decode_source(source: ColumnSource) -> list[Record]:
    payload, record_count, base_offset, base_timestamp, log_append_time_ms, start, end = source
    try:
        rows = decode_records(
            payload, record_count, base_offset, base_timestamp, log_append_time_ms
        )
    except InvalidRecordError as error:
        raise InvalidRecordError(f"the batch at offset {base_offset}, {error}") from None
    return [row for row in rows if start <= row.offset < end]


def _bytes_column(rows: list[bytes | None]) -> BytesColumn:
    null_count, validity, offsets = _lay_out([None if row is None else len(row) for row in rows])
    return BytesColumn(null_count, validity, offsets, b"".join(row for row in rows if row))


def _headers_column(rows: list[Headers]) -> HeadersColumn:
    null_count, validity, offsets = _lay_out([len(row) or None for row in rows])
    headers = [header for row in rows for header in row]
    names: list[bytes | None] = [_repair(name) for name, _ in headers]
    return HeadersColumn(
        null_count,
        validity,
        offsets,
        len(headers),
        _bytes_column(names),
        _bytes_column([value for _, value in headers]),
    )


def _repair(name: str) -> bytes:
    """The name as UTF-8; bytes that are none become U+FFFD."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def _lay_out(lengths: list[int | None]) -> tuple[int, bytes | None, bytes]:
    """How many rows are null, their bitmap, and where in the data each row begins."""
    offsets = struct.pack(
        f"={len(lengths) + 1}i", *accumulate((length or 0 for length in lengths), initial=0)
    )
    null_count = lengths.count(None)
    if not null_count:
        return 0, None, offsets
    validity = bytearray((len(lengths) + 7) // 8)
    for row, length in enumerate(lengths):
        if length is not None:
            validity[row >> 3] |= 1 << (row & 7)
    return null_count, bytes(validity), offsets
