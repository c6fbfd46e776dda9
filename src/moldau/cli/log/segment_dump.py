"""Shows what was found in a segment, for people (a line each) and for machines (an object each)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from moldau.cli.log.segment_walk import (
    Damage,
    Preallocated,
    Walked,
    WalkedBatch,
    WalkedMessage,
)
from moldau.cli.record_format import bytes_to_document, headers_to_document
from moldau.errors import KafkaError
from moldau.records.batch_header import DELETE_HORIZON_FLAG, BatchHeader
from moldau.records.batch_reader import records_of
from moldau.records.compression import Codec
from moldau.records.control_records import find_marker
from moldau.records.record import Record


def is_fault(walked: Walked) -> bool:
    """Whether this makes the segment a damaged one."""
    match walked:
        case Damage():
            return True
        case Preallocated():
            return False
        case WalkedBatch() | WalkedMessage():
            return not walked.is_crc_right


def to_lines(walked: Walked, with_records: bool) -> Sequence[str]:
    """What a person sees of it."""
    match walked:
        case WalkedBatch():
            lines = [_batch_line(walked)]
            if with_records:
                lines += _record_lines(walked)
            return lines
        case WalkedMessage():
            return [
                f"offset {walked.offset}  at {walked.position}  {walked.size_bytes} bytes  "
                f"format {walked.magic}  {codec_label(walked.codec)}  "
                f"{show_time(walked.timestamp_ms)}  {_crc_word(walked.is_crc_right)}"
            ]
        case Damage():
            return [
                f"DAMAGED at {walked.position}: {walked.reason}; "
                f"the last {walked.left_bytes} bytes cannot be read"
            ]
        case Preallocated():
            return [f"{walked.left_bytes} preallocated bytes from {walked.position} on"]


def to_document(walked: Walked, with_records: bool) -> dict[str, object]:
    """What a machine sees of it."""
    match walked:
        case WalkedBatch():
            return _batch_document(walked, with_records)
        case WalkedMessage():
            return {
                "type": "message",
                "position": walked.position,
                "size_bytes": walked.size_bytes,
                "magic": walked.magic,
                "offset": walked.offset,
                "timestamp_ms": walked.timestamp_ms,
                "codec": codec_label(walked.codec),
                "crc_ok": walked.is_crc_right,
            }
        case Damage():
            return {
                "type": "damage",
                "position": walked.position,
                "left_bytes": walked.left_bytes,
                "reason": walked.reason,
            }
        case Preallocated():
            return {
                "type": "preallocated",
                "position": walked.position,
                "left_bytes": walked.left_bytes,
            }


def _batch_line(walked: WalkedBatch) -> str:
    header = walked.header
    count = "1 record" if header.record_count == 1 else f"{header.record_count} records"
    parts = [
        f"offset {header.base_offset}..{header.last_offset}",
        count,
        f"at {walked.position}",
        f"{header.size_bytes} bytes",
        codec_label(header.codec),
        f"epoch {header.leader_epoch}",
        f"{_timestamp_type(header)} {show_time(header.max_timestamp)}",
    ]
    if header.has_producer:
        parts.append(
            f"producer {header.producer_id}/{header.producer_epoch} "
            f"sequence {header.base_sequence}..{header.last_sequence}"
        )
    parts += [
        word
        for word, is_so in (
            ("transactional", header.is_transactional),
            ("control", header.is_control),
            ("delete horizon", bool(header.attributes & DELETE_HORIZON_FLAG)),
        )
        if is_so
    ]
    parts.append(_crc_word(walked.is_crc_right))
    return "  ".join(parts)


def _record_lines(walked: WalkedBatch) -> Sequence[str]:
    try:
        records = records_of(walked.data, walked.header)
    except KafkaError as error:
        return [f"  | records cannot be read: {error}"]
    return [_record_line(record, walked.header.is_control) for record in records]


def _record_line(record: Record, is_control: bool) -> str:
    parts = [f"  | offset {record.offset}", show_time(record.timestamp_ms)]
    if is_control:
        parts.append(_marker_words(record))
    else:
        parts += [f"key {show_bytes(record.key)}", f"value {show_bytes(record.value)}"]
    if record.headers:
        pairs = [f"{name}={show_bytes(value)}" for name, value in record.headers]
        parts.append(f"headers {' '.join(pairs)}")
    return "  ".join(parts)


def _marker_words(record: Record) -> str:
    try:
        marker = find_marker(record)
    except KafkaError as error:
        return f"control record that cannot be read: {error}"
    if marker is None:
        return f"control record {show_bytes(record.key)}"
    return f"{marker.control_type.name} marker of coordinator epoch {marker.coordinator_epoch}"


def _batch_document(walked: WalkedBatch, with_records: bool) -> dict[str, object]:
    header = walked.header
    document: dict[str, object] = {
        "type": "batch",
        "position": walked.position,
        "size_bytes": header.size_bytes,
        "magic": header.magic,
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "record_count": header.record_count,
        "leader_epoch": header.leader_epoch,
        "codec": codec_label(header.codec),
        "timestamp_type": _timestamp_type(header),
        "base_timestamp_ms": header.base_timestamp,
        "max_timestamp_ms": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": bool(header.attributes & DELETE_HORIZON_FLAG),
        "crc": header.crc,
        "crc_ok": walked.is_crc_right,
    }
    if with_records:
        try:
            records = records_of(walked.data, header)
            document["records"] = [_record_document(record) for record in records]
        except KafkaError as error:
            document["records_fault"] = str(error)
    return document


def _record_document(record: Record) -> dict[str, object]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **bytes_to_document("key", record.key),
        **bytes_to_document("value", record.value),
        "headers": headers_to_document(record.headers),
    }


def codec_label(number: int) -> str:
    return Codec(number).label if number <= Codec.ZSTD else f"codec {number}"


def show_time(timestamp_ms: int) -> str:
    """ISO 8601 with milliseconds in UTC; numbers that are no time stay numbers."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    if timestamp_ms < 0:
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def show_bytes(data: bytes | None) -> str:
    """Text in quotes where it is text, escaped bytes where it is not."""
    if data is None:
        return "null"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return repr(text)


def _timestamp_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _crc_word(is_right: bool) -> str:
    return "crc ok" if is_right else "CRC WRONG"
