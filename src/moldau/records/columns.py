"""Records as columns: the buffers of Arrow arrays, without Arrow.

What the codecs' `decode_columns` takes and gives, and `ColumnEncoder` takes. Integers are in the
machine's byte order and offsets into data are 32 bits wide, as in Arrow's `binary`, `string` and
`list`. A bitmap has a bit for each row, the lowest bit of a byte first; it is None where no row is
null. Values, nothing more.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.records.batch_header import BatchHeader, Buffer

FIRST_OFFSET = -(1 << 63)
END_OFFSET = (1 << 63) - 1
"""Beyond every offset that a record can have: the limits of a source that has none."""

MAX_PAYLOAD_BYTES = 1 << 29
"""How much may be decoded at once. No column can then outgrow its offsets, not even the names of
headers, in which each byte that is no UTF-8 becomes three."""


class ColumnSource(NamedTuple):
    """The uncompressed records of one batch, and which of them are wanted, by their offsets."""

    payload: Buffer
    record_count: int
    base_offset: int
    base_timestamp: int
    log_append_time_ms: int | None = None
    start_offset: int = FIRST_OFFSET
    end_offset: int = END_OFFSET


def source_of(
    header: BatchHeader,
    payload: Buffer,
    start_offset: int = FIRST_OFFSET,
    end_offset: int = END_OFFSET,
) -> ColumnSource:
    """The source that is a batch, or the part of it between two offsets."""
    return ColumnSource(
        payload,
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
        start_offset,
        end_offset,
    )


class BytesColumn(NamedTuple):
    """Byte strings, some of which may be null: row n is `data[offsets[n]:offsets[n + 1]]`."""

    null_count: int
    validity: Buffer | None
    offsets: Buffer
    data: Buffer


class HeadersColumn(NamedTuple):
    """Lists of names and values; a record without headers has null, as in Spark's Kafka source.

    Names are UTF-8: what is not is replaced by U+FFFD, as Java's consumers do.
    """

    null_count: int
    validity: Buffer | None
    offsets: Buffer
    header_count: int
    names: BytesColumn
    values: BytesColumn


class NumbersColumn(NamedTuple):
    """Whole numbers, some of which may be null."""

    validity: Buffer | None
    data: Buffer


class RecordColumns(NamedTuple):
    """The records of all sources, one source after the other; what was not asked for is None."""

    row_count: int
    source_rows: list[int]
    """How many rows came from each source."""
    offsets: Buffer
    timestamps: Buffer
    """In milliseconds, unless microseconds were asked for."""
    keys: BytesColumn | None
    values: BytesColumn | None
    headers: HeadersColumn | None
