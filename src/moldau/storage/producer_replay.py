"""Rebuilds the table of producers from a snapshot and the batches behind it.

Appending, recovery and truncation all come here to apply a batch, so the table is the same whether
it was kept or read back. A shell: it reads log files; the decisions are in
`rules.producer_sequences`.
"""

from __future__ import annotations

from collections.abc import Sequence

from moldau.records.batch_header import LOG_OVERHEAD_BYTES, BatchHeader, Buffer
from moldau.records.record_batch import EndTransactionMarker, find_marker, records_of
from moldau.storage.batch_scan import walk_batches
from moldau.storage.files import File
from moldau.storage.producer_state import ProducerState
from moldau.storage.segment import Segment
from moldau.storage.snapshot_files import SnapshotFiles
from moldau.storage.transaction_index import AbortedTransaction


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
    snapshots: SnapshotFiles,
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
