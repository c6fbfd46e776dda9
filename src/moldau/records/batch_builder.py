"""Builds record batches: what producers send and the broker writes of its own accord.

Answers for one whole, sealed batch from records in memory. Collecting records, choosing sizes and
assigning sequences are the client's business. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from moldau.errors import BatchTooLargeError, InvalidRecordError
from moldau.model import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from moldau.records.batch_header import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    Buffer,
)
from moldau.records.codec import encode_records, find_timestamps
from moldau.records.compression import Codec, compress
from moldau.records.crc import seal
from moldau.records.lines import PackedRows
from moldau.records.record import RecordRow

_PREFIX = struct.Struct(">qiib")
_AFTER_CRC = struct.Struct(">hiqqqhii")
_MAX_BATCH_LENGTH = (1 << 31) - 1


def build_batch(
    records: Iterable[RecordRow] | PackedRows,
    *,
    base_offset: int = 0,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
) -> bytearray:
    """One batch of these records, in this order, with consecutive offsets.

    A record is any tuple that ends with timestamp, key, value and headers: a `Record`, a
    `NewRecord` or a plain one. The offset of a `Record` is not looked at.
    """
    rows = records if isinstance(records, list | PackedRows) else list(records)
    if not rows:
        raise InvalidRecordError("a batch has at least one record")
    payload: Buffer
    if isinstance(rows, PackedRows):
        base_timestamp, max_timestamp = rows.base_timestamp, rows.max_timestamp
        payload = rows.payload
    else:
        base_timestamp, max_timestamp = find_timestamps(rows)
        payload = encode_records(rows, base_timestamp)
    if log_append_time_ms is not None:
        max_timestamp = log_append_time_ms
    if codec is not Codec.NONE:
        payload = compress(codec, payload, level)
    batch = bytearray(HEADER_BYTES)
    batch += payload  # which fills no memory with zeros before
    _write_prefix(batch, base_offset, leader_epoch)
    _AFTER_CRC.pack_into(
        batch,
        ATTRIBUTES_AT,
        _attributes(codec, transactional, control, log_append_time_ms is not None),
        len(rows) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(rows),
    )
    seal(batch)
    return batch


def _write_prefix(batch: bytearray, base_offset: int, leader_epoch: int) -> None:
    length = len(batch) - LOG_OVERHEAD_BYTES
    if length > _MAX_BATCH_LENGTH:
        raise BatchTooLargeError(f"a batch of {len(batch)} bytes is more than the format can hold")
    _PREFIX.pack_into(batch, 0, base_offset, length, leader_epoch, CURRENT_MAGIC)


def _attributes(codec: Codec, transactional: bool, control: bool, log_append_time: bool) -> int:
    return (
        codec
        | (TIMESTAMP_TYPE_FLAG if log_append_time else 0)
        | (TRANSACTIONAL_FLAG if transactional else 0)
        | (CONTROL_FLAG if control else 0)
    )
