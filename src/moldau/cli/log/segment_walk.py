"""Walks a segment file of any Kafka version, and says where it is damaged instead of giving up.

Reads one batch at a time, so the size of the file does not matter. Unlike the broker's own walk it
does not stop at a batch that fails its CRC: its length usually still leads to the next one.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from moldau.model.protocol_numbers import NO_TIMESTAMP
from moldau.records.batch_header import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    BatchHeader,
    read_header,
    read_size,
)
from moldau.records.crc import crc_matches

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
