"""Makes several segments of one that no index can describe.

Index entries have 31 bits for an offset relative to the segment's first, and as many for a
position. Nothing that is written here goes beyond that; but Kafka before 2.0 could let compaction
put offsets too far apart into one segment, and a file may come from anywhere. Such a segment is
sound, so it is neither cut off nor refused: as in Kafka (`splitOverflowedSegment`), its batches are
copied into segments that keep the limits, and these take its place.

What a crash leaves of it is judged by `rules.recovery_plan`: the copies count when all of them are
whole. A shell. It blocks: run it in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from moldau.errors import StorageError
from moldau.records.batch_header import LOG_OVERHEAD_BYTES
from moldau.storage.batch_scan import walk_valid_batches
from moldau.storage.log_directory import LogDirectory
from moldau.storage.rules.file_names import CLEANED_SUFFIX, SWAP_SUFFIX
from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET
from moldau.storage.segment import Segment, SegmentTooLargeError

_log = logging.getLogger("moldau.storage.recovery")

MAX_SEGMENT_BYTES = 0x7FFFFFFF
_COPIED_BYTES = 1024 * 1024


def require_describable(segment: Segment, end_offset: int | None) -> None:
    """Raise unless the indexes can describe a segment, which ends at an offset or before it.

    For most that is enough to know. None while nobody knows where the last one of a log ends.
    """
    if segment.size_bytes > MAX_SEGMENT_BYTES:
        raise SegmentTooLargeError(segment)
    furthest = segment.base_offset + MAX_RELATIVE_OFFSET
    if end_offset is None or end_offset - 1 <= furthest:
        return
    for _, header in segment.walk_from(segment.offset_index.last_entry()):
        if header.last_offset > furthest:
            raise SegmentTooLargeError(segment)


def split_segment(
    directory: LogDirectory,
    segment: Segment,
    index_interval_bytes: int,
    max_bytes: int = MAX_SEGMENT_BYTES,
) -> int:
    """Have copies ready, which take the place of a segment when the folder is tidied.

    What is behind the last sound batch is copied as it is: it is for recovery to judge. Returns up
    to where compaction must have been, since nothing else leaves gaps so wide that no segment spans
    them; 0 when there is none.
    """
    copies: list[Segment] = []
    next_offset, cleaned_offset, end = segment.base_offset, 0, 0
    source = segment.opened()
    for position, header in walk_valid_batches(source, segment.size_bytes):
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        if not copies or not _has_room(copies[-1], header.last_offset, size_bytes, max_bytes):
            start = next_offset
            if header.last_offset - start > MAX_RELATIVE_OFFSET:
                start = cleaned_offset = header.base_offset
            copies.append(_create(directory, segment, start))
        batch = source.read_at(position, size_bytes)
        copies[-1].append(
            batch, size_bytes, header.last_offset, header.max_timestamp, index_interval_bytes
        )
        next_offset, end = header.next_offset, position + size_bytes
    if len(copies) < 2:
        raise StorageError(
            f"{segment.path} has more bytes or offsets than its indexes can describe, and is "
            f"damaged at byte {end}: move it away, with all that is behind it"
        )
    for position in range(end, segment.size_bytes, _COPIED_BYTES):
        rest = source.read_at(position, min(_COPIED_BYTES, segment.size_bytes - position))
        copies[-1].opened().write_at(copies[-1].size_bytes + position - end, rest)
    _divide_aborted(segment, copies)
    _make_ready(directory, copies)
    segment.let_go()
    _log.warning(
        "%s has more bytes or offsets than its indexes can describe: %d segments take its place",
        segment.path,
        len(copies),
    )
    return cleaned_offset


def _has_room(copy: Segment, last_offset: int, size_bytes: int, max_bytes: int) -> bool:
    is_near = last_offset - copy.base_offset <= MAX_RELATIVE_OFFSET
    return is_near and copy.size_bytes + size_bytes <= max_bytes


def _divide_aborted(segment: Segment, copies: Sequence[Segment]) -> None:
    """A transaction is in the index of the segment that has its marker."""
    for aborted in segment.transaction_index.entries():
        holding = [copy for copy in copies if copy.base_offset <= aborted.last_offset]
        holding[-1].transaction_index.append(aborted)


def _make_ready(directory: LogDirectory, copies: Sequence[Segment]) -> None:
    """As `rules.recovery_plan` takes them up: all, or none."""
    folder = copies[0].path.parent
    for copy in copies:
        copy.seal()
        copy.sync()
    directory.files.sync_folder(folder)
    for copy in reversed(copies):
        copy.enter_stage(SWAP_SUFFIX)
        copy.let_go()
    directory.files.sync_folder(folder)


def _create(directory: LogDirectory, segment: Segment, base_offset: int) -> Segment:
    return Segment.create(
        directory.open_files,
        segment.path.parent,
        base_offset,
        segment.created_ms,
        CLEANED_SUFFIX,
    )
