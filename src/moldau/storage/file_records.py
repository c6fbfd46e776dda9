"""Walks the batches of a log file, for lookups (headers only) and for recovery (every byte).

Reads only. Any thread.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from moldau.errors import StorageError
from moldau.records.batch_header import (
    CURRENT_MAGIC,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_AT,
    BatchHeader,
    crc_matches,
    read_header,
    read_size,
)
from moldau.storage.files import File

_HEADERS_CHUNK_BYTES = 8 * 1024
"""Holds what lies between two index entries at the default interval of 4 KiB."""

_RECOVERY_CHUNK_BYTES = 1024 * 1024

_OLD_CRC_AT = 12
_OLD_MIN_BYTES = 26  # the smallest message of format 0


def walk_batches(file: File, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from one boundary to another.

    Ends early at a batch that is cut short, which is what a truncation in another thread looks
    like from here.
    """
    position, chunk_start, chunk = start, start, b""
    while position + HEADER_BYTES <= end:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            chunk_start = position
            chunk = file.read_at(position, min(_HEADERS_CHUNK_BYTES, end - position))
            if len(chunk) < HEADER_BYTES:
                return
        header = read_header(chunk, position - chunk_start)
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        if size_bytes < HEADER_BYTES or position + size_bytes > end:
            return
        yield position, header
        position += size_bytes


def walk_valid_batches(
    file: File, end: int, leader_epoch: int = -1
) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch from the file's beginning, up to the first damaged one.

    A batch is sound when it is whole, its CRC matches, its offsets come after those before it, and
    its leader epoch is not smaller. A smaller one is what a truncation took away: after a power
    loss, bytes behind those that were written in their place may be there again. `leader_epoch` is
    that of the last batch before the file.
    """
    position, chunk_start, chunk = 0, 0, memoryview(b"")
    next_offset = -1
    while position + HEADER_BYTES <= end:
        at = position - chunk_start
        wanted = read_size(chunk, at) if at + HEADER_BYTES <= len(chunk) else HEADER_BYTES
        if wanted < HEADER_BYTES or position + wanted > end:
            _refuse_old_format(file, position, end)
            return
        if at + wanted > len(chunk):
            length = min(max(wanted, _RECOVERY_CHUNK_BYTES), end - position)
            chunk_start, chunk = position, memoryview(file.read_at(position, length))
            if len(chunk) < length:
                return
            continue
        header = read_header(chunk, at)
        is_left_over = header.leader_epoch < leader_epoch
        if is_left_over or not _is_sound(chunk[at : at + wanted], header, next_offset):
            _refuse_old_format(file, position, end)
            return
        yield position, header
        next_offset, leader_epoch = header.next_offset, header.leader_epoch
        position += wanted


def is_unfinished_write(file: File, position: int, end: int) -> bool:
    """Whether what lies there is the beginning of one batch, as a killed process leaves it."""
    head = file.read_at(position, min(HEADER_BYTES, end - position))
    if len(head) <= MAGIC_AT:
        return True
    return head[MAGIC_AT] == CURRENT_MAGIC and read_size(head) > end - position


def _is_sound(batch: memoryview, header: BatchHeader, next_offset: int) -> bool:
    return (
        header.magic == CURRENT_MAGIC
        and header.base_offset >= next_offset
        and header.last_offset_delta >= 0
        and crc_matches(batch, header)
    )


def _refuse_old_format(file: File, position: int, end: int) -> None:
    """Damage is cut off; sound messages of Kafka before 0.11 must not be taken for damage."""
    head = file.read_at(position, min(_OLD_MIN_BYTES, end - position))
    if len(head) < _OLD_MIN_BYTES or head[MAGIC_AT] not in (0, 1):
        return
    size_bytes = read_size(head)
    if not _OLD_MIN_BYTES <= size_bytes <= end - position:
        return
    message = file.read_at(position, size_bytes)
    stored = int.from_bytes(message[_OLD_CRC_AT : _OLD_CRC_AT + 4], "big")
    if zlib.crc32(memoryview(message)[_OLD_CRC_AT + 4 :]) == stored:
        raise StorageError(
            f"the log holds messages of format {head[MAGIC_AT]} at byte {position}; "
            "only format 2 (Kafka 0.11 and later) can be served"
        )
