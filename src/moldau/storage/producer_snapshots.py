"""Producer snapshots: the table of producers as it was at the offset that names the file.

Kafka's format (its `ProducerStateManager`), big endian:

    int16   version        1
    uint32  CRC-32C        of everything after it
    int32   rows
    then for each: producer id int64, epoch int16, last sequence int32, last offset int64,
    offset delta int32, timestamp int64, coordinator epoch int32, first offset of the open
    transaction int64 (-1 when there is none)

A producer has a row for each batch that is remembered of it, the last one at the end: whatever was
under way when a leader stopped is recognised when it comes again (SEQ-2). Kafka writes a row for
the last batch alone, and of several rows reads the last. A codec and a tiny shell; which snapshots
to take, keep and delete is decided by the log.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.model import NO_OFFSET, NO_SEQUENCE
from moldau.records.batch_header import crc32c
from moldau.storage.files import Files
from moldau.storage.rules.producer_sequences import (
    REMEMBERED_BATCHES,
    ProducerEntry,
    RememberedBatch,
)

VERSION = 1

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_BATCH = RememberedBatch(NO_SEQUENCE, NO_OFFSET, 0, 0)


def encode_snapshot(entries: Collection[ProducerEntry]) -> bytes:
    rows = [row for entry in entries for row in _encode_entry(entry)]
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Read a whole file; raise `DamagedFileError` when it is not one."""
    body = memoryview(data)[_HEAD.size :]
    if len(body) < _COUNT.size:
        raise DamagedFileError(f"a producer snapshot of {len(data)} bytes is cut short")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise DamagedFileError(f"a producer snapshot has version {version}, not {VERSION}")
    if crc != crc32c(body):
        raise DamagedFileError("a producer snapshot fails its CRC")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise DamagedFileError(f"a producer snapshot has no room for its {count} rows")
    found: dict[int, ProducerEntry] = {}
    for row in _ENTRY.iter_unpack(body[_COUNT.size :]):
        entry = _decode_row(row)
        former = found.get(entry.producer_id)
        if former is not None and former.producer_epoch == entry.producer_epoch:
            batches = (*former.batches, *entry.batches)[-REMEMBERED_BATCHES:]
            entry = entry._replace(batches=batches)
        found[entry.producer_id] = entry
    return list(found.values())


def read_snapshot(files: Files, path: Path) -> list[ProducerEntry]:
    return decode_snapshot(files.read(path))


def _encode_entry(entry: ProducerEntry) -> Iterator[bytes]:
    *former, last = entry.batches or (_NO_BATCH,)
    for batch in former:
        yield _encode_row(entry, batch, batch.timestamp_ms)
    yield _encode_row(entry, last, entry.last_timestamp_ms)


def _encode_row(entry: ProducerEntry, batch: RememberedBatch, timestamp_ms: int) -> bytes:
    first_offset = entry.transaction_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        batch.last_sequence,
        batch.last_offset,
        batch.offset_delta,
        timestamp_ms,
        entry.coordinator_epoch,
        NO_OFFSET if first_offset is None else first_offset,
    )


def _decode_row(row: tuple[int, int, int, int, int, int, int, int]) -> ProducerEntry:
    (
        producer_id,
        producer_epoch,
        last_sequence,
        last_offset,
        offset_delta,
        timestamp_ms,
        coordinator_epoch,
        transaction_first_offset,
    ) = row
    last = RememberedBatch(last_sequence, last_offset, offset_delta, timestamp_ms)
    return ProducerEntry(
        producer_id,
        producer_epoch,
        (last,) if last_offset >= 0 else (),
        timestamp_ms,
        coordinator_epoch,
        transaction_first_offset if transaction_first_offset >= 0 else None,
    )
