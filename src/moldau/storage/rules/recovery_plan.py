"""What to make of a partition's folder when its log is opened: plans over names and offsets.

Kafka's rules (`LogLoader`):

- `.deleted` and `.cleaned` files are left over and go.
- `.swap` files are the finished work of compaction. They take the place of the segments they were
  made from, all at once; those which a `.cleaned` file precedes belong to a split that was not
  finished and go.
- An index without its log goes; a log without its index is scanned, which rebuilds it.
- After a clean shutdown nothing is scanned. Otherwise all from the segment that ends with the
  recovery point or holds it: what lies before it was flushed. Beyond Kafka: a segment that does
  not begin where the one before it ends is no part of the log, unless compaction has been there.

A rule: names in, plans out. Nothing is opened or removed here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from moldau.model import TopicPartition
from moldau.storage.rules.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    SegmentFile,
    find_segment_file,
    name_when_deleted,
)


class FolderPlan(NamedTuple):
    """What to do with a folder's files, in this order, and what is there afterwards.

    A crash in the middle does no harm: the same plan is made again for what is left to do.
    """

    removals: tuple[str, ...]
    renames: tuple[tuple[str, str], ...]
    """From and to; a file that is there is replaced."""
    segments: tuple[int, ...]
    """Base offsets, ascending."""
    snapshots: tuple[int, ...]
    """Offsets of producer snapshots, ascending."""


def find_swap_segments(names: Collection[str]) -> tuple[int, ...]:
    """Base offsets of segments that compaction had ready, ascending.

    When there are any, the shell looks where the last one ends before it asks for a folder plan.
    """
    parsed = _parse(names)
    return tuple(
        sorted(
            file.base_offset for file in _valid_swaps(parsed).values() if file.suffix == LOG_SUFFIX
        )
    )


def plan_folder(names: Collection[str], swap_end_offset: int | None = None) -> FolderPlan:
    """Tell what each name means. `swap_end_offset` is the end of the last swap segment, if any.

    Names that mean nothing are left alone: they are not ours.
    """
    parsed = _parse(names)
    swaps = _valid_swaps(parsed)
    kept = _without_replaced(parsed, swaps, swap_end_offset)
    renames = {name: name.removesuffix(SWAP_SUFFIX) for name in swaps}
    kept |= {target: swaps[name]._replace(stage="") for name, target in renames.items()}
    segments = {file.base_offset for file in kept.values() if file.suffix == LOG_SUFFIX}
    orphans = _orphaned_indexes(kept, segments)
    snapshots = {f.base_offset for f in kept.values() if f.suffix == PRODUCER_SNAPSHOT_SUFFIX}
    gone = parsed.keys() - kept.keys() - swaps.keys()
    return FolderPlan(
        removals=tuple(sorted(gone | (orphans & parsed.keys()))),
        renames=tuple(sorted(renames.items())),
        segments=tuple(sorted(segments)),
        snapshots=tuple(sorted(snapshots)),
    )


def plan_scan(
    segments: Sequence[int], recovery_point: int, clean_shutdown: bool
) -> tuple[int, ...]:
    """The base offsets of the segments whose batches have to be checked one by one.

    They begin with the one that was active when the recovery point was reached, also when that is
    where the next one begins: its indexes were completed after the flush.
    """
    if clean_shutdown:
        return ()
    return tuple(segments[max(0, bisect_left(segments, recovery_point) - 1) :])


def fits_behind(
    end_offset: int, start_offset: int, cleaned_offset: int, recovery_point: int
) -> bool:
    """Whether a segment that begins at `start_offset` can follow one that ends at `end_offset`.

    A power loss may take the end of one file and spare the next one; and it may bring back the
    files that a truncation removed, behind or below what was written in their place. A log is all
    up to some offset, or replicas would disagree for ever (LOG-6). Only compaction leaves gaps,
    and only below what its checkpoint says, or where all was flushed: ours keeps the end of each
    segment, but Kafka's does not.
    """
    known_offset = max(cleaned_offset, recovery_point)
    return end_offset == start_offset or end_offset < start_offset <= known_offset


def plan_snapshot_removals(snapshots: Sequence[int], segments: Sequence[int]) -> tuple[int, ...]:
    """Snapshots of no use: those at which no segment begins.

    The newest of these stays when it is past the last segment's beginning: it was taken at a clean
    shutdown and spares reading the active segment.
    """
    starts = set(segments)
    strays = [offset for offset in snapshots if offset not in starts]
    if strays and (not segments or strays[-1] >= segments[-1]):
        strays.pop()
    return tuple(strays)


def usable_snapshots(
    snapshots: Sequence[int], log_start_offset: int, log_end_offset: int
) -> tuple[int, ...]:
    """Snapshots that say something about this log, the best first."""
    return tuple(
        offset for offset in reversed(snapshots) if log_start_offset < offset <= log_end_offset
    )


def _parse(names: Collection[str]) -> dict[str, SegmentFile]:
    parsed = ((name, find_segment_file(name)) for name in names)
    return {name: file for name, file in parsed if file is not None}


def _valid_swaps(parsed: dict[str, SegmentFile]) -> dict[str, SegmentFile]:
    unfinished = [file.base_offset for file in parsed.values() if file.stage == CLEANED_SUFFIX]
    first_unfinished = min(unfinished, default=None)
    return {
        name: file
        for name, file in parsed.items()
        if file.stage == SWAP_SUFFIX
        and (first_unfinished is None or file.base_offset < first_unfinished)
    }


def _without_replaced(
    parsed: dict[str, SegmentFile], swaps: dict[str, SegmentFile], swap_end_offset: int | None
) -> dict[str, SegmentFile]:
    """The files in use that no swap segment takes the place of."""
    in_use = {name: file for name, file in parsed.items() if not file.stage}
    bases = [file.base_offset for file in swaps.values() if file.suffix == LOG_SUFFIX]
    if not bases or swap_end_offset is None:
        return in_use
    replaced = range(min(bases), swap_end_offset)
    return {name: file for name, file in in_use.items() if file.base_offset not in replaced}


def _orphaned_indexes(kept: dict[str, SegmentFile], segments: set[int]) -> set[str]:
    """A snapshot needs no log beside it, an index does."""
    return {
        name
        for name, file in kept.items()
        if file.suffix not in (LOG_SUFFIX, PRODUCER_SNAPSHOT_SUFFIX)
        and file.base_offset not in segments
    }


# Checkpoints speak of every log in a directory, and of one that is deleted or moved they are told
# soon after. So where one says that a log had records, and there is no folder of it, nor one that
# is about to be deleted, its records are gone though nobody asked for it (LOG-14). An empty log
# that is gone has lost nothing.


def find_missed(
    recovery_points: Mapping[TopicPartition, int],
    high_watermarks: Mapping[TopicPartition, int],
    present: Collection[TopicPartition],
    deleted: Collection[TopicPartition],
) -> frozenset[TopicPartition]:
    """Those that had records by these checkpoints, without those that are there or were about to be
    deleted, as the names of folders tell."""
    had_records = {
        key
        for offsets in (recovery_points, high_watermarks)
        for key, offset in offsets.items()
        if offset > 0
    }
    return frozenset(
        key for key in had_records.difference(present) if name_when_deleted(key) not in deleted
    )
