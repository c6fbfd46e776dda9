"""A walk over records that come in pieces, in plain Python; a part of `_codec_pure`.

Reads one field after the other, whatever piece it is in, and passes over keys, values and headers
without keeping them. What counts as wrong is what `find_fault` says; a record that is too long for
what follows is noticed at the end only. `RecordWalk` in `_codec_native` is the twin in C. A rule.
"""

from __future__ import annotations

from typing import Final

from moldau.records.batch_header import Buffer
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

_VARINT_BITS: Final = 32
_VARLONG_BITS: Final = 64


class _Fault(Exception):
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
        except _Fault as fault:
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
            raise _Fault(OVERLONG, field)
        elif field != RECORD_LENGTH and not self._left:
            raise _Fault(CUT_SHORT, field)

    def _take(self, value: int) -> None:
        """The value of the field is known."""
        field = self._field
        if field == RECORD_LENGTH:
            if value < 0:
                raise _Fault(NEGATIVE, RECORD_LENGTH, value)
            self._length = self._left = value
            self._next(ATTRIBUTES)
        elif field == TIMESTAMP_DELTA:
            self._next(OFFSET_DELTA)
        elif field == OFFSET_DELTA:
            if value != self._index:
                raise _Fault(UNEXPECTED_OFFSET_DELTA, OFFSET_DELTA, value, self._index)
            self._next(KEY_LENGTH)
        elif field == HEADER_COUNT:
            self._take_header_count(value)
        else:
            self._take_length(field, value)

    def _take_length(self, field: int, length: int) -> None:
        if field == KEY_LENGTH:
            if length < 0 and self._require_keys:
                raise _Fault(KEY_MISSING, KEY_LENGTH)
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
            raise _Fault(NEGATIVE, HEADER_COUNT, count)
        if count > self._left:
            raise _Fault(TOO_LARGE, HEADER_COUNT, count, self._left)
        self._headers_left = count
        if count:
            self._next(HEADER_KEY_LENGTH)
        else:
            self._field = RECORD_LENGTH
            self._end_record()

    def _pass_over(self, length: int, field: int, smallest: int = -1) -> None:
        """Skip bytes of so many, and read a field behind them."""
        if length < smallest:
            raise _Fault(NEGATIVE, self._field, length)
        if length > self._left:
            raise _Fault(TOO_LARGE, self._field, length, self._left)
        self._skip = max(length, 0)
        if field == RECORD_LENGTH:
            self._field = RECORD_LENGTH
            if not self._skip:
                self._end_record()
        elif self._left == self._skip:
            raise _Fault(CUT_SHORT, field)
        else:
            self._field = field

    def _next(self, field: int) -> None:
        if not self._left:
            raise _Fault(CUT_SHORT, field)
        self._field = field

    def _end_record(self) -> None:
        if self._left:
            raise _Fault(RECORD_LEFT_OVER, RECORD_LENGTH, self._left)
        self._index += 1
