"""Finds things in the segments of a log: where an offset is, where a range ends, what a time is.

Functions over a tuple of segments; they may run in any thread. A shell: it reads files and changes
nothing in them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from moldau.records.batch_header import LOG_OVERHEAD_BYTES, BatchHeader
from moldau.records.codec import decode_columns, find_first_at_or_after
from moldau.records.columns import source_of
from moldau.records.record_batch import payload_of
from moldau.storage.batch_scan import walk_batches
from moldau.storage.files import FileSlice
from moldau.storage.position_hints import BatchPlace
from moldau.storage.segment import Boundary, Segment
from moldau.storage.transaction_index import AbortedTransaction

_base_offset_of = attrgetter("base_offset")


class LogRead(NamedTuple):
    """What a fetch gets of one log."""

    slice: FileSlice | None
    """Whole batches; None when there is nothing to send."""
    end_offset: int
    """Where the reader goes on: all records before it, from the asked offset, are in the slice."""


class TimestampedOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def segment_index(segments: Sequence[Segment], offset: int) -> int:
    """Which segment an offset belongs to; the first one when it is before all."""
    return max(0, bisect_right(segments, offset, key=_base_offset_of) - 1)


def find_place(segments: Sequence[Segment], offset: int) -> BatchPlace:
    """Where the first batch begins that ends at or after an offset; the end when there is none."""
    for segment in segments[segment_index(segments, offset) :]:
        boundary = segment.find_batch(offset)
        if boundary is not None:
            return segment, boundary.position
    return segments[-1], segments[-1].size_bytes


def cut_range(segment: Segment, start: int, max_bytes: int, min_one: bool) -> Boundary | None:
    """Where a range that is too long for the limit has to end: on a batch boundary before it.

    When not even one batch fits, the first one is the range if `min_one` asks for it (KIP-74);
    otherwise there is none.
    """
    boundary = segment.find_boundary(start, start + max(0, max_bytes))
    if boundary is None and min_one:
        return segment.find_end_of_batch(start)
    return boundary


def find_aborted(
    segments: Sequence[Segment], start_offset: int, end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions with a record in a range; one may end in a later segment."""
    found: list[AbortedTransaction] = []
    for segment in segments[segment_index(segments, start_offset) :]:
        found += segment.transaction_index.find_overlapping(start_offset, end_offset)
        if segment.transaction_index.covers(end_offset):
            break
    return tuple(found)


def find_offset_by_timestamp(
    segments: Sequence[Segment], log_start_offset: int, timestamp_ms: int, unpacked_bytes: int
) -> TimestampedOffset | None:
    """The first record, from the log's start on, that is not older than a timestamp."""
    for segment in segments:
        if segment.largest_timestamp() >= timestamp_ms:
            found = _find_in_segment(segment, log_start_offset, timestamp_ms, unpacked_bytes)
            if found is not None:
                return found
    return None


def find_max_timestamp(
    segments: Sequence[Segment], log_start_offset: int, unpacked_bytes: int
) -> TimestampedOffset | None:
    """The first of the youngest records from the log's start on."""
    timestamp_ms = max(segment.largest_timestamp() for segment in segments)
    if timestamp_ms < 0:
        return None
    found = find_offset_by_timestamp(segments, log_start_offset, timestamp_ms, unpacked_bytes)
    if found is not None:
        return found
    # Rare: the youngest record was there, but it is before the log's start or was compacted away.
    timestamp_ms = max(_timestamps_from(segments, log_start_offset, unpacked_bytes), default=-1)
    if timestamp_ms < 0:
        return None
    return find_offset_by_timestamp(segments, log_start_offset, timestamp_ms, unpacked_bytes)


def _timestamps_from(
    segments: Sequence[Segment], log_start_offset: int, unpacked_bytes: int
) -> Iterator[int]:
    """The largest timestamp of each batch, as far as it is not before the log's start."""
    for segment in segments:
        file = segment.opened()
        for position, header in walk_batches(file, 0, segment.size_bytes):
            if header.last_offset < log_start_offset or not header.record_count:
                continue
            if header.base_offset >= log_start_offset or header.is_log_append_time:
                yield header.max_timestamp
            else:
                batch = file.read_at(position, header.batch_length + LOG_OVERHEAD_BYTES)
                for _, timestamp_ms in _times_from(batch, header, log_start_offset, unpacked_bytes):
                    yield timestamp_ms


def _times_from(
    batch: bytes, header: BatchHeader, start_offset: int, unpacked_bytes: int
) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record from an offset on; of millions, if a batch has them."""
    payload = payload_of(batch, header, unpacked_bytes)
    source = source_of(header, payload, start_offset)
    columns = decode_columns([source], keys=False, values=False, headers=False)
    yield from zip(
        memoryview(columns.offsets).cast("B").cast("q"),
        memoryview(columns.timestamps).cast("B").cast("q"),
        strict=True,
    )


def _find_in_segment(
    segment: Segment, log_start_offset: int, timestamp_ms: int, unpacked_bytes: int
) -> TimestampedOffset | None:
    first_offset = max(log_start_offset, segment.base_offset)
    entry = segment.time_index.find_by_timestamp(timestamp_ms)
    if entry is not None and segment.bears_out(entry):
        first_offset = max(first_offset, entry.offset)
    file = segment.opened()
    for position, header in segment.walk_from(segment.offset_index.find_by_offset(first_offset)):
        if not header.record_count:
            continue  # what compaction leaves of a batch has the timestamp and no record of it
        if header.max_timestamp >= timestamp_ms and header.last_offset >= log_start_offset:
            if header.is_log_append_time:
                first_offset = max(header.base_offset, log_start_offset)
                return TimestampedOffset(first_offset, header.max_timestamp, header.leader_epoch)
            batch = file.read_at(position, header.batch_length + LOG_OVERHEAD_BYTES)
            found = _find_in_batch(batch, header, log_start_offset, timestamp_ms, unpacked_bytes)
            if found is not None:
                return TimestampedOffset(*found, header.leader_epoch)
    return None


def _find_in_batch(
    batch: bytes, header: BatchHeader, log_start_offset: int, timestamp_ms: int, unpacked_bytes: int
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record in a batch that is late enough in both."""
    if header.base_offset >= log_start_offset:
        return find_first_at_or_after(
            payload_of(batch, header, unpacked_bytes),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            timestamp_ms,
        )
    for offset, found_ms in _times_from(batch, header, log_start_offset, unpacked_bytes):
        if found_ms >= timestamp_ms:
            return offset, found_ms
    return None
