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
the last batch alone, and of several rows reads the last.

A snapshot spares reading the log again. It is written without waiting for the disk, since its CRC
tells whether it arrived: a damaged one is ignored, and the log is read from an older one on.
Appending, recovery and truncation all apply batches with the functions at the end, so the table is
the same whether it was kept or read back.

A codec and a shell. `ProducerSnapshots.write` may run in a worker; the rest belongs to the log's
owner.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.model import NO_OFFSET, NO_SEQUENCE
from moldau.records.batch_header import LOG_OVERHEAD_BYTES, BatchHeader, Buffer, crc32c
from moldau.records.record_batch import EndTransactionMarker, find_marker, records_of
from moldau.storage.file_records import walk_batches
from moldau.storage.files import File, Files
from moldau.storage.rules.file_names import PRODUCER_SNAPSHOT_SUFFIX, segment_file_name
from moldau.storage.rules.producer_state import (
    REMEMBERED_BATCHES,
    ProducerEntry,
    ProducerState,
    RememberedBatch,
)
from moldau.storage.rules.recovery_plan import plan_snapshot_removals, usable_snapshots
from moldau.storage.segment import Segment
from moldau.storage.transaction_index import AbortedTransaction

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
        epoch,
        last_sequence,
        last_offset,
        delta,
        timestamp_ms,
        coordinator_epoch,
        first,
    ) = row
    last = RememberedBatch(last_sequence, last_offset, delta, timestamp_ms)
    return ProducerEntry(
        producer_id,
        epoch,
        (last,) if last_offset >= 0 else (),
        timestamp_ms,
        coordinator_epoch,
        first if first >= 0 else None,
    )


class ProducerSnapshots:
    """The snapshots of one log."""

    def __init__(self, files: Files, folder: Path, offsets: Iterable[int] = ()) -> None:
        self.offsets = tuple(sorted(offsets))
        self._files = files
        self._folder = folder

    def follow_folder(self, folder: Path) -> None:
        """The folder of the log was renamed."""
        self._folder = folder

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def add(self, offset: int) -> None:
        """Take note of a snapshot that is about to be written."""
        self.offsets = tuple(sorted({*self.offsets, offset}))

    def write(self, offset: int, entries: Collection[ProducerEntry]) -> None:
        data = encode_snapshot(entries)
        with contextlib.closing(self._files.open(self._path(offset), create=True)) as file:
            file.truncate(0)
            file.write_at(0, data)

    def read_best(
        self, log_start_offset: int, end_offset: int
    ) -> tuple[int, list[ProducerEntry]] | None:
        """The newest sound snapshot not after an offset; damaged ones are removed."""
        for offset in usable_snapshots(self.offsets, log_start_offset, end_offset):
            try:
                return offset, read_snapshot(self._files, self._path(offset))
            except (DamagedFileError, FileNotFoundError):
                self.remove([offset])
        return None

    def remove(self, offsets: Collection[int]) -> None:
        for offset in offsets:
            if offset in self.offsets:
                self._files.remove(self._path(offset))
        self.offsets = tuple(offset for offset in self.offsets if offset not in offsets)

    def remove_strays(self, segment_starts: Collection[int]) -> None:
        """Keep those at which a segment begins, and the last one."""
        self.remove(plan_snapshot_removals(self.offsets, tuple(segment_starts)))

    def _path(self, offset: int) -> Path:
        return self._folder / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)


def read_marker(batch: Buffer, header: BatchHeader) -> EndTransactionMarker | None:
    """What a control batch says about a transaction; None for control batches of other kinds."""
    records = records_of(batch, header)
    return find_marker(records[0]) if records else None


def replay_marker(
    producers: ProducerState,
    segment: Segment,
    header: BatchHeader,
    base_offset: int,
    marker: EndTransactionMarker,
    heard_ms: int,
    index_file: File | None = None,
) -> None:
    """End a transaction; one that was aborted goes into the segment's index, whose file may be open
    already."""
    completed = producers.apply_marker(header, base_offset, marker, heard_ms)
    if completed is not None and completed.aborted:
        segment.transaction_index.append(
            AbortedTransaction(
                completed.producer_id,
                completed.first_offset,
                completed.last_offset,
                completed.last_stable_offset,
            ),
            index_file,
        )


def apply_stored(
    producers: ProducerState, segment: Segment, position: int, header: BatchHeader, now_ms: int
) -> EndTransactionMarker | None:
    """Apply a batch that is in a segment; an end marker is returned as well.

    The log does not say when the batch came, so its producer counts as heard now.
    """
    marker = None
    if header.is_control:
        batch = segment.opened().read_at(position, header.batch_length + LOG_OVERHEAD_BYTES)
        marker = read_marker(batch, header)
    if marker is None:
        producers.apply(header, header.base_offset, now_ms)
    return marker


def rebuild_producers(
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Sequence[Segment],
    log_start_offset: int,
    end_offset: int,
    now_ms: int,
) -> None:
    """Replace the table by what it was at an offset, which is a batch boundary."""
    best = snapshots.read_best(log_start_offset, end_offset)
    if best is None:
        producers.reset(log_start_offset)
    else:
        producers.load(best[1], best[0], now_ms)
    for segment in segments:
        if segment.base_offset < end_offset:
            _replay(producers, segment, end_offset, now_ms)
    producers.end_offset = end_offset


def _replay(producers: ProducerState, segment: Segment, end_offset: int, now_ms: int) -> None:
    """Apply the batches of a segment from where the table ends; indexes are left as they are."""
    if producers.end_offset >= end_offset:
        return
    first = segment.find_batch(producers.end_offset)
    start = first.position if first is not None else segment.size_bytes
    for position, header in walk_batches(segment.opened(), start, segment.size_bytes):
        if header.base_offset >= end_offset:
            return
        marker = apply_stored(producers, segment, position, header, now_ms)
        if marker is not None:
            producers.apply_marker(header, header.base_offset, marker, now_ms)
