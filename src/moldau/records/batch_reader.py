"""Reads whole batches: from the bytes in a log to records.

Answers for undoing what the batch builder did. The CRC is not checked here; whoever got the bytes
from outside has done that. A rule.
"""

from __future__ import annotations

from moldau.errors import CorruptBatchError, UnsupportedForMessageFormatError
from moldau.records.batch_header import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    BatchHeader,
    Buffer,
    read_header,
)
from moldau.records.codec import decode_records
from moldau.records.compression import Codec, decompress
from moldau.records.record import Record

DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024
"""More than any sensible `max.message.bytes` unfolds to, and less than a broker has memory for."""


def payload_of(
    batch: Buffer, header: BatchHeader, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Buffer:
    """The uncompressed records of a batch: a view where nothing was compressed, never a copy."""
    payload = memoryview(batch)[HEADER_BYTES:]
    if header.codec == Codec.NONE:
        return payload
    return decompress(Codec.require(header.codec), payload, limit_bytes)


def records_of(
    batch: Buffer, header: BatchHeader | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> list[Record]:
    """All records of one whole batch; control batches too, whose records are markers."""
    if header is None:
        header = _require_header(batch)
    return decode_records(
        payload_of(batch, header, limit_bytes),
        header.record_count,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if header.is_log_append_time else None,
    )


def _require_header(batch: Buffer) -> BatchHeader:
    if len(batch) < HEADER_BYTES:
        raise CorruptBatchError(f"{len(batch)} bytes are no whole batch")
    header = read_header(batch)
    if header.magic != CURRENT_MAGIC:
        raise UnsupportedForMessageFormatError(f"the batch has format {header.magic}, not 2")
    if header.size_bytes != len(batch):
        raise CorruptBatchError(
            f"the batch says that it has {header.size_bytes} bytes, but there are {len(batch)}"
        )
    return header
