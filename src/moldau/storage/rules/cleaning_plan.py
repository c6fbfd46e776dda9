"""Which log the cleaner takes up, from where to where, and which segments it makes into one: plans.

Kafka's rules (`LogCleanerManager`, `Cleaner`). A compacted log has a clean part, up to the first
dirty offset, in which each key is once, and a dirty part behind it. The end of the log is left
alone: the active segment, what is not committed, not decided or not flushed, and what is younger
than `min.compaction.lag.ms`. A log is due when enough of what may be cleaned is dirty, or when
some of it has been dirty for `max.compaction.lag.ms`; the dirtiest one is first.

Only whole segments are cleaned, and several that have become small are made into one. A rule:
values in, plans out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET

Name = TypeVar("Name")

_FULLEST = 0.9
"""The part of a table for keys that may be in use: a fuller one is searched for long."""


class DirtySegment(NamedTuple):
    """What the plan looks at."""

    base_offset: int
    size_bytes: int
    first_timestamp_ms: int
    """Of the first batch; negative when it has none, or nobody asked."""
    largest_timestamp_ms: int
    offset_index_bytes: int
    time_index_bytes: int


class DirtyLog(NamedTuple):
    """The offsets of a log that bound its cleaning."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    recovery_point: int
    cleaned_offset: int
    """Where the last round ended; 0 when there was none."""


class CleaningTerms(NamedTuple):
    """What a topic's options say."""

    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    segment_bytes: int
    segment_index_bytes: int


class Cleanable(NamedTuple):
    """What a round of the cleaner could do for a log."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    """A segment begins here."""
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool
    """Some of it has been dirty for longer than `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total_bytes if total_bytes else 0.0


def survey(
    segments: Sequence[DirtySegment], log: DirtyLog, terms: CleaningTerms, now_ms: int
) -> Cleanable:
    """Measure a log. The last segment is the active one."""
    first_dirty = find_first_dirty_offset(log)
    dirty = _segments_from(segments, first_dirty)
    end = _find_first_uncleanable(segments, dirty, log, terms, now_ms)
    cleanable = [segment for segment in dirty if segment.base_offset < end]
    clean_bytes = sum(segment.size_bytes for segment in segments[:-1]) - sum(
        segment.size_bytes for segment in dirty
    )
    return Cleanable(
        first_dirty,
        max(first_dirty, end),
        clean_bytes,
        sum(segment.size_bytes for segment in cleanable),
        _is_overdue(cleanable, terms, now_ms),
    )


def find_first_dirty_offset(log: DirtyLog) -> int:
    """Where the dirty part begins: all is dirty when the log has been cut below its clean end."""
    if log.log_start_offset <= log.cleaned_offset <= log.log_end_offset:
        return log.cleaned_offset
    return log.log_start_offset


def is_due(cleanable: Cleanable, min_cleanable_dirty_ratio: float) -> bool:
    if not cleanable.cleanable_bytes:
        return False
    return cleanable.is_overdue or cleanable.dirty_ratio > min_cleanable_dirty_ratio


def explain_cleaning(cleanable: Cleanable, terms: CleaningTerms) -> str:
    """Why a log that is due is due."""
    if cleanable.dirty_ratio > terms.min_cleanable_dirty_ratio:
        return (
            f"min.cleanable.dirty.ratio {terms.min_cleanable_dirty_ratio}: "
            f"{cleanable.dirty_ratio:.2f} of it was dirty"
        )
    return f"max.compaction.lag.ms {terms.max_compaction_lag_ms}: a dirty record was older"


def find_dirtiest(due: Mapping[Name, Cleanable]) -> Name | None:
    return max(due, key=lambda name: due[name].dirty_ratio, default=None)


def max_keys(dedupe_buffer_bytes: int, load_factor: float, key_bytes: int) -> int:
    """How many keys one round may compare that take so many bytes each."""
    return max(1, int(dedupe_buffer_bytes * min(load_factor, _FULLEST)) // key_bytes)


def group_segments(
    segments: Sequence[DirtySegment], end_offset: int, terms: CleaningTerms
) -> tuple[range, ...]:
    """Numbers of the segments that become one, for all that begin before an offset.

    What a group has together fits into one segment: bytes, both indexes, and offsets relative to
    its first. A segment that is not cleaned follows the last group, so ends are known.
    """
    count = sum(segment.base_offset < end_offset for segment in segments[:-1])
    groups: list[range] = []
    start = 0
    while start < count:
        end = start + 1
        while end < count and _fits(segments[start : end + 1], segments[end + 1], terms):
            end += 1
        groups.append(range(start, end))
        start = end
    return tuple(groups)


def _fits(group: Sequence[DirtySegment], following: DirtySegment, terms: CleaningTerms) -> bool:
    return (
        sum(segment.size_bytes for segment in group) <= terms.segment_bytes
        and sum(segment.offset_index_bytes for segment in group) <= terms.segment_index_bytes
        and sum(segment.time_index_bytes for segment in group) <= terms.segment_index_bytes
        and following.base_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET
    )


def _segments_from(segments: Sequence[DirtySegment], offset: int) -> Sequence[DirtySegment]:
    """From the segment that holds an offset on, without the active one."""
    before = sum(following.base_offset <= offset for following in segments[1:])
    return segments[before:-1]


def _find_first_uncleanable(
    segments: Sequence[DirtySegment],
    dirty: Sequence[DirtySegment],
    log: DirtyLog,
    terms: CleaningTerms,
    now_ms: int,
) -> int:
    # What replaces a record is committed, and on the disk (LOG-11).
    limit = min(segments[-1].base_offset, log.last_stable_offset, log.recovery_point)
    if terms.min_compaction_lag_ms > 0:
        oldest_kept_ms = now_ms - terms.min_compaction_lag_ms
        young = (each.base_offset for each in dirty if each.largest_timestamp_ms > oldest_kept_ms)
        limit = min(limit, next(young, limit))
    starts = (segment.base_offset for segment in segments if segment.base_offset <= limit)
    return max(starts, default=segments[0].base_offset)


def _is_overdue(cleanable: Sequence[DirtySegment], terms: CleaningTerms, now_ms: int) -> bool:
    known = (each.first_timestamp_ms for each in cleanable if each.first_timestamp_ms > 0)
    oldest_ms = min(known, default=now_ms)
    return oldest_ms < now_ms - max(0, terms.max_compaction_lag_ms)
