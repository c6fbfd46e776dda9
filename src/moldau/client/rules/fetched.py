"""From the bytes of a fetch answer to records. A rule.

A broker answers with whole batches, from the one that holds the offset asked for: what precedes
the offset is skipped here. The last batch may be cut short; it comes whole with the next fetch.
Control batches (transaction markers) are for the reader's bookkeeping, not for its user.
"""

from __future__ import annotations

from typing import NamedTuple

from moldau.client.rules.fetched_batches import explain_no_batch, require_current_format
from moldau.errors import CorruptBatchError
from moldau.records.batch_header import (
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    Buffer,
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
        explain_no_batch(view)
    return Decoded(records, next_offset)


def _from(records: list[Record], offset: int) -> list[Record]:
    if records and records[0].offset >= offset:
        return records
    return [record for record in records if record.offset >= offset]


def _require_sound(batch: memoryview, header: BatchHeader) -> None:
    require_current_format(header)
    if not crc_matches(batch, header):
        raise CorruptBatchError(f"the batch at offset {header.base_offset} fails its CRC")
