"""When a log starts a new segment: before the batch that would break one of the old one's limits.

The rule is that of Kafka's `LogSegment.shouldRoll`. A segment's age is told by timestamps: those of
the incoming batch and of the segment's first one, so that a log filled with old records is cut as
it would have been when they were written. Only where the first batch has no timestamp does the
clock decide. A rule: values in, a decision out; it is on the path of every append.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

MAX_RELATIVE_OFFSET = 0x7FFFFFFF
"""Index entries keep offsets relative to the segment's first in 31 bits."""


class RollingSegment(Protocol):
    """What the rule reads of the active segment."""

    base_offset: int
    size_bytes: int
    created_ms: int
    first_timestamp: int
    """Max timestamp of the first batch; negative when it has none or there is no batch."""


class RollLimits(NamedTuple):
    """What a topic asks of its active segment; made anew with each segment and each new option."""

    segment_bytes: int
    roll_after_ms: int


def limits_for(segment_bytes: int, segment_ms: int, jitter_ms: int) -> RollLimits:
    """`jitter_ms` is drawn for each segment, so that partitions do not all roll at once."""
    return RollLimits(segment_bytes, segment_ms - jitter_ms)


def jitter_bound_ms(segment_jitter_ms: int, segment_ms: int) -> int:
    """The jitter of a segment is drawn from 0 up to, not including, this; 0 means none."""
    return max(0, min(segment_jitter_ms, segment_ms))


def should_roll(
    segment: RollingSegment,
    limits: RollLimits,
    batch_bytes: int,
    last_offset: int,
    max_timestamp: int,
    index_is_full: bool,
    now_ms: int,
) -> bool:
    """Whether a new segment begins before a batch; an empty one is never too old."""
    size_bytes = segment.size_bytes
    if index_is_full or size_bytes + batch_bytes > limits.segment_bytes:
        return True
    if not 0 <= last_offset - segment.base_offset <= MAX_RELATIVE_OFFSET:
        return True
    if not size_bytes:
        return False
    first = segment.first_timestamp
    age_ms = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
    return age_ms > limits.roll_after_ms
