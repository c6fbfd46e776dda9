"""Whole record batches: built from records, read back, and the markers of transactions.

Clients and the broker build batches from records in memory. Sizes and sequence numbers are
chosen by the client. Reading does not check the CRC: whoever received the bytes has done that.
A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from moldau.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    UnsupportedForMessageFormatError,
)
from moldau.model import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from moldau.records.batch_header import (
    ATTRIBUTES_AT,
    CONTROL_FLAG,
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    read_header,
    write_crc,
)
from moldau.records.codec import decode_records, encode_records, find_timestamps
from moldau.records.compression import Codec, compress, decompress
from moldau.records.lines import PackedRows
from moldau.records.record import NewRecord, Record, RecordRow

# Builds record batches: what producers send and the broker writes of its own accord.
#
# Answers for one whole, sealed batch from records in memory. Collecting records, choosing sizes and
# assigning sequences are the client's business. A rule.


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
    write_crc(batch)
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


# Answers for the end-transaction markers, their key and value, and the batch around one. What they
# mean for readers is decided elsewhere. A rule.
#
#     key:    version int16, type int16
#     value:  version int16, coordinator epoch int32
#
# Readers accept later versions and take the fields they know, as Kafka does.


_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")
_MARKER_VERSION = 0


class ControlType(IntEnum):
    """What a control record says; the others of Kafka are the Raft quorum's."""

    ABORT = 0
    COMMIT = 1


class EndTransactionMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    control_type: ControlType
    coordinator_epoch: int


def find_control_type(key: bytes | None) -> ControlType | None:
    """The type in the key of a control record; None for the types of others."""
    if key is None or len(key) < _MARKER_KEY.size:
        raise InvalidRecordError("the key of a control record is cut short")
    version, number = _MARKER_KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecordError(f"the key of a control record has version {version}")
    return ControlType(number) if number in (ControlType.ABORT, ControlType.COMMIT) else None


def find_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a record of a control batch; None for control records of other kinds."""
    control_type = find_control_type(record.key)
    if control_type is None:
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise InvalidRecordError("the value of an end-transaction marker is cut short")
    version, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    if version < 0:
        raise InvalidRecordError(f"the value of an end-transaction marker has version {version}")
    return EndTransactionMarker(control_type, coordinator_epoch)


def build_marker_batch(
    marker: EndTransactionMarker,
    *,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
) -> bytearray:
    """The control batch that ends a transaction: one record, no sequence."""
    key = _MARKER_KEY.pack(_MARKER_VERSION, marker.control_type)
    value = _MARKER_VALUE.pack(_MARKER_VERSION, marker.coordinator_epoch)
    return build_batch(
        [NewRecord(timestamp_ms, key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
