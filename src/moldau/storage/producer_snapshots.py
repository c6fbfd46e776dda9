"""Producer snapshots: the table of producers as it was at the offset that names the file.

Kafka's format (its `ProducerStateManager`), big endian:

    int16   version        1
    uint32  CRC-32C        of everything after it
    int32   entries
    then for each: producer id int64, epoch int16, last sequence int32, last offset int64,
    offset delta int32, timestamp int64, coordinator epoch int32, first offset of the open
    transaction int64 (-1 when there is none)

Only the last batch of a producer is kept, so after a restart only that one is recognised when it
comes again, as in Kafka. A codec and a tiny shell; which snapshots to take, keep and delete is
decided by the log.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.model.protocol_numbers import NO_OFFSET, NO_SEQUENCE
from moldau.records.crc import crc32c
from moldau.storage.files import Files
from moldau.storage.rules.producer_sequences import ProducerEntry, RememberedBatch

VERSION = 1

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(entries: Collection[ProducerEntry]) -> bytes:
    body = _COUNT.pack(len(entries)) + b"".join(map(_encode_entry, entries))
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
        raise DamagedFileError(f"a producer snapshot has no room for its {count} entries")
    return [_decode_entry(row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]


def read_snapshot(files: Files, path: Path) -> list[ProducerEntry]:
    return decode_snapshot(files.read(path))


def _encode_entry(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    first_offset = entry.transaction_first_offset
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        last.last_sequence if last else NO_SEQUENCE,
        last.last_offset if last else NO_OFFSET,
        last.offset_delta if last else 0,
        entry.last_timestamp_ms,
        entry.coordinator_epoch,
        NO_OFFSET if first_offset is None else first_offset,
    )


def _decode_entry(row: tuple[int, int, int, int, int, int, int, int]) -> ProducerEntry:
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
