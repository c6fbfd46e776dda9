"""From the bytes of a fetch answer to records. A rule.

A broker answers with whole batches, from the one that holds the offset asked for: what precedes
the offset is skipped here. The last batch may be cut short; it comes whole with the next fetch.
Control batches (transaction markers) are for the reader's bookkeeping, not for its user.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.errors import BatchTooLargeError, CorruptBatchError, UnsupportedForMessageFormatError
from moldau.records.batch_header import (
    CURRENT_MAGIC,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    BatchHeader,
    Buffer,
    read_size,
    walk_headers,
)
from moldau.records.batch_reader import records_of
from moldau.records.crc import crc_matches
from moldau.records.record import Record


class Decoded(NamedTuple):
    """Records at or after an offset, and the offset to fetch from next."""

    records: list[Record]
    next_offset: int


def decode_fetched(data: Buffer, from_offset: int) -> Decoded:
    """All records of the whole batches in an answer, from an offset on."""
    view = memoryview(data)
    records: list[Record] = []
    next_offset = from_offset
    batch_count = 0
    for position, header in walk_headers(view):
        batch = view[position : position + header.size_bytes]
        _require_sound(batch, header)
        batch_count += 1
        if header.next_offset <= from_offset:
            continue
        next_offset = header.next_offset
        if not header.is_control:
            records += _from(records_of(batch, header), from_offset)
    if not batch_count and len(view) > LOG_OVERHEAD_BYTES:
        _explain_no_batch(view)
    return Decoded(records, next_offset)


def _from(records: list[Record], offset: int) -> list[Record]:
    if records and records[0].offset >= offset:
        return records
    return [record for record in records if record.offset >= offset]


def _require_sound(batch: memoryview, header: BatchHeader) -> None:
    if header.magic != CURRENT_MAGIC:
        raise UnsupportedForMessageFormatError(
            f"the batch at offset {header.base_offset} has format {header.magic}; only 2 is read"
        )
    if not crc_matches(batch, header):
        raise CorruptBatchError(f"the batch at offset {header.base_offset} fails its CRC")


def _explain_no_batch(view: memoryview) -> None:
    """Bytes came, but no whole batch: older formats are shorter than a header, or it was cut."""
    if len(view) > MAGIC_AT and view[MAGIC_AT] < CURRENT_MAGIC:
        raise UnsupportedForMessageFormatError(
            f"the records have format {view[MAGIC_AT]}; only 2 is read"
        )
    raise BatchTooLargeError(
        f"a batch of {read_size(view)} bytes was cut to {len(view)}; fetch with a higher limit"
    )
