"""Reads the files of a log and shows what is in them: segments, indexes, snapshots, checkpoints."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from moldau.cli.record_format import bytes_to_document, headers_to_document
from moldau.errors import ConfigurationError, DamagedFileError, KafkaError
from moldau.model import NO_TIMESTAMP
from moldau.records.batch_header import (
    CURRENT_MAGIC,
    DELETE_HORIZON_FLAG,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    BatchHeader,
    crc_matches,
    read_header,
    read_size,
)
from moldau.records.compression import Codec
from moldau.records.record import Record
from moldau.records.record_batch import find_marker, records_of
from moldau.storage.checkpoint_files import decode_lines
from moldau.storage.files import RealFiles
from moldau.storage.producer_snapshots import decode_snapshot
from moldau.storage.rules import file_names
from moldau.storage.transaction_index import TransactionIndex

# Walks a segment file of any Kafka version, and says where it is damaged instead of giving up.
#
# Reads one batch at a time, so the size of the file does not matter. Unlike the broker's own walk
# it does not stop at a batch that fails its CRC: its length usually still leads to the next one.


_OLD_MIN_BYTES = (
    26  # the smallest message of format 0: offset, size, CRC, magic, attributes, lengths
)
_OLD_HEAD = struct.Struct(">qiIbb")
_OLD_CRC_AT = 12
_OLD_TIMESTAMP = struct.Struct(">q")
_CODEC_MASK = 0x07
_MAX_SIZE_BYTES = 1 << 31
_ZEROS_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedBatch:
    """A whole batch of format 2."""

    position: int
    header: BatchHeader
    is_crc_right: bool
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkedMessage:
    """A whole message of format 0 or 1; a compressed one wraps others."""

    position: int
    offset: int
    size_bytes: int
    magic: int
    codec: int
    timestamp_ms: int
    is_crc_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Where the walk ended before the file did, and why."""

    position: int
    left_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Preallocated:
    """Zeros that wait to be written to (`preallocate=true`); no damage."""

    position: int
    left_bytes: int


Walked = WalkedBatch | WalkedMessage | Damage | Preallocated


def walk_segment(file: BinaryIO, size_bytes: int) -> Iterator[Walked]:
    """Everything in the file, in order; `Damage` or `Preallocated` only as the last."""
    position = 0
    while position < size_bytes:
        left = size_bytes - position
        file.seek(position)
        head = file.read(min(HEADER_BYTES, left))
        size = read_size(head) if len(head) >= LOG_OVERHEAD_BYTES else 0
        reason = _find_fault(head, size, left)
        if reason is not None:
            yield _end(file, position, left, reason)
            return
        data = head[:size] + file.read(max(size - len(head), 0))
        if head[MAGIC_AT] == CURRENT_MAGIC:
            header = read_header(head)
            is_right = crc_matches(data, header)
            yield WalkedBatch(position=position, header=header, is_crc_right=is_right, data=data)
        else:
            yield _read_message(position, data)
        position += size


def _find_fault(head: bytes, size: int, left: int) -> str | None:
    if len(head) <= MAGIC_AT:
        return f"{len(head)} bytes are too few for a batch"
    magic = head[MAGIC_AT]
    least = HEADER_BYTES if magic == CURRENT_MAGIC else _OLD_MIN_BYTES
    if magic > CURRENT_MAGIC:
        return f"format {magic} is not known"
    if not least <= size < _MAX_SIZE_BYTES:
        return f"a batch cannot have {size} bytes"
    if size > left:
        return f"the batch has {size} bytes, but only {left} are there"
    return None


def _end(file: BinaryIO, position: int, left: int, reason: str) -> Damage | Preallocated:
    file.seek(position)
    while chunk := file.read(_ZEROS_CHUNK_BYTES):
        if chunk.count(0) != len(chunk):
            return Damage(position=position, left_bytes=left, reason=reason)
    return Preallocated(position=position, left_bytes=left)


def _read_message(position: int, data: bytes) -> WalkedMessage:
    offset, _, crc, magic, attributes = _OLD_HEAD.unpack_from(data)
    timestamp = _OLD_TIMESTAMP.unpack_from(data, _OLD_HEAD.size)[0] if magic else NO_TIMESTAMP
    return WalkedMessage(
        position=position,
        offset=offset,
        size_bytes=len(data),
        magic=magic,
        codec=attributes & _CODEC_MASK,
        timestamp_ms=timestamp,
        is_crc_right=zlib.crc32(data[_OLD_CRC_AT + 4 :]) == crc,
    )


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


# Reads the files beside a segment: indexes, producer snapshots, checkpoints.
#
# Each becomes rows of names and values, which are printed as a table or as an object per line.


Row = Mapping[str, object]
ReadRows = Callable[[Path, int], Iterator[Row]]

_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qi")
_ENTRIES_AT_ONCE = 4096
_STAGES = (
    file_names.DELETED_SUFFIX,
    file_names.CLEANED_SUFFIX,
    file_names.SWAP_SUFFIX,
    file_names.UNSHARED_SUFFIX,
)


def find_reader(path: Path) -> ReadRows | None:
    """How to read this file, by its name; None for a segment's own log."""
    name = _plain_name(path)
    if name.endswith(file_names.LOG_SUFFIX):
        return None
    for ending, reader in _READERS.items():
        if name.endswith(ending):
            return reader
    kinds = ", ".join((file_names.LOG_SUFFIX, *_READERS))
    raise ConfigurationError(f"{path} is no file that can be dumped; these can: {kinds}")


def base_offset_of(path: Path) -> int:
    """The offset in the file's name; 0 when it was given another name."""
    found = file_names.find_segment_file(path.name)
    return 0 if found is None else found.base_offset


def _plain_name(path: Path) -> str:
    name = path.name
    for stage in _STAGES:
        name = name.removesuffix(stage)
    return name


def _read_offset_index(path: Path, base_offset: int) -> Iterator[Row]:
    for relative_offset, position in _read_entries(path, _OFFSET_ENTRY):
        yield {"offset": base_offset + relative_offset, "position": position}


def _read_time_index(path: Path, base_offset: int) -> Iterator[Row]:
    for timestamp_ms, relative_offset in _read_entries(path, _TIME_ENTRY):
        yield {"timestamp_ms": timestamp_ms, "offset": base_offset + relative_offset}


def _read_entries(path: Path, layout: struct.Struct) -> Iterator[tuple[int, int]]:
    """Entries up to the zeros that Kafka preallocates behind them."""
    width = layout.size
    blank = bytes(width)
    with path.open("rb") as file:
        while block := file.read(width * _ENTRIES_AT_ONCE):
            for start in range(0, len(block), width):
                entry = block[start : start + width]
                if len(entry) < width:
                    raise DamagedFileError(f"{path} ends with {len(entry)} of {width} bytes")
                if entry == blank:
                    return
                first, second = layout.unpack(entry)
                yield first, second


def _read_transaction_index(path: Path, base_offset: int) -> Iterator[Row]:
    for aborted in TransactionIndex(RealFiles(), path).entries():
        yield aborted._asdict()


def _read_snapshot(path: Path, base_offset: int) -> Iterator[Row]:
    for entry in decode_snapshot(path.read_bytes()):
        last = entry.batches[-1] if entry.batches else None
        yield {
            "producer_id": entry.producer_id,
            "producer_epoch": entry.producer_epoch,
            "coordinator_epoch": entry.coordinator_epoch,
            "last_timestamp_ms": entry.last_timestamp_ms,
            "last_sequence": None if last is None else last.last_sequence,
            "last_offset": None if last is None else last.last_offset,
            "transaction_first_offset": entry.transaction_first_offset,
        }


def _read_offset_checkpoint(path: Path, base_offset: int) -> Iterator[Row]:
    for line in decode_lines(path.read_bytes()):
        topic, partition, offset = _split(line, 3)
        yield {"topic": topic, "partition": int(partition), "offset": int(offset)}


def _read_leader_epochs(path: Path, base_offset: int) -> Iterator[Row]:
    for line in decode_lines(path.read_bytes()):
        epoch, start_offset = _split(line, 2)
        yield {"leader_epoch": int(epoch), "start_offset": int(start_offset)}


def _split(line: str, count: int) -> list[str]:
    fields = line.split()
    numbers = fields[-2:]
    if len(fields) != count or not all(text.lstrip("-").isdecimal() for text in numbers):
        raise DamagedFileError(f"the line {line!r} is damaged")
    return fields


_READERS: Mapping[str, ReadRows] = {
    file_names.OFFSET_INDEX_SUFFIX: _read_offset_index,
    file_names.TIME_INDEX_SUFFIX: _read_time_index,
    file_names.TRANSACTION_INDEX_SUFFIX: _read_transaction_index,
    file_names.PRODUCER_SNAPSHOT_SUFFIX: _read_snapshot,
    file_names.LEADER_EPOCHS_FILE: _read_leader_epochs,
    file_names.RECOVERY_POINTS_FILE: _read_offset_checkpoint,
    file_names.HIGH_WATERMARKS_FILE: _read_offset_checkpoint,
    file_names.LOG_START_OFFSETS_FILE: _read_offset_checkpoint,
    file_names.CLEANER_OFFSETS_FILE: _read_offset_checkpoint,
}
