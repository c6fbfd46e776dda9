"""How much is written to a partition, from two looks at its log some seconds apart. A rule.

Kafka's protocol does not tell traffic, but it tells how large a log is and where it begins and
ends. What a log has grown by is exact as long as nothing was taken from it meanwhile; after a
deletion or a compaction, the new records are counted instead, each as large as the mean of what is
there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReading:
    """A log at one moment. Invariant: start offset <= end offset."""

    start_offset: int
    end_offset: int
    size_bytes: int


def bytes_per_second(before: LogReading, after: LogReading, seconds: float) -> int:
    """What was written between the readings; 0 where nothing was, or the log was cut back.

    In whole bytes, so that sums over many partitions are exact.
    """
    records = after.end_offset - before.end_offset
    if records <= 0 or seconds <= 0:
        return 0
    grown_bytes = after.size_bytes - before.size_bytes
    if grown_bytes > 0 and before.start_offset == after.start_offset:
        return round(grown_bytes / seconds)
    kept = after.end_offset - after.start_offset
    mean_bytes = after.size_bytes / kept if kept > 0 else 0.0
    return round(records * mean_bytes / seconds)
