"""Which segments of a log are too old, too many, or before the log's start: a plan.

A policy says how many segments may go from the front. That is bounded here by what no policy may
do: nothing at or above the high watermark goes, and an empty active segment stays. The plan may
name the active segment too, when it holds records and they are expired: the shell rolls a new one
first. Kafka's rules (`UnifiedLog.deleteOldSegments`): log start offset, size, time, each from the
oldest segment to the first that stays. Whoever looks for a record that is gone finds the reason in
the broker's log, with the values that decided. A rule: values in, a plan out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Protocol, runtime_checkable

from moldau.config.topic_options import TopicOptions

UNLIMITED = -1
"""`retention.ms` and `retention.bytes`: keep everything."""


class SegmentFacts(NamedTuple):
    """What retention looks at."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int
    """Negative when no record of it has a timestamp."""
    modified_ms: int
    """When the file was last written."""

    @property
    def age_timestamp_ms(self) -> int:
        return self.largest_timestamp_ms if self.largest_timestamp_ms >= 0 else self.modified_ms


class LogFacts(NamedTuple):
    """The offsets of the log. Invariant: start <= high watermark <= end."""

    log_start_offset: int
    high_watermark: int
    log_end_offset: int


class RetentionPolicy(Protocol):
    """A reason to delete."""

    def deletable(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> int:
        """How many segments may go, counted from the oldest."""
        ...


@runtime_checkable
class ExplainedPolicy(Protocol):
    """A policy that can say why."""

    def explain(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> str:
        """Why the first of these segments goes; they are those that `deletable` was asked of."""
        ...


@dataclass(frozen=True, slots=True)
class Deletion:
    """Some segments from the front, and why they go."""

    count: int
    reason: str


class StartOffsetRetention(NamedTuple):
    """What lies before the log's start offset is of no use, whatever the cleanup policy."""

    def deletable(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> int:
        starts = (segment.base_offset for segment in segments[1:])
        return sum(start <= log.log_start_offset for start in starts)

    def explain(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> str:
        return f"the log starts at offset {log.log_start_offset} (DeleteRecords, or its leader's)"


class TimeRetention(NamedTuple):
    """`retention.ms`: a segment goes when its newest record is older."""

    retention_ms: int

    def deletable(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> int:
        if self.retention_ms < 0:
            return 0
        for count, segment in enumerate(segments):
            if now_ms - segment.age_timestamp_ms <= self.retention_ms:
                return count
        return len(segments)

    def explain(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> str:
        newest_ms = segments[0].age_timestamp_ms
        what = "newest record" if segments[0].largest_timestamp_ms >= 0 else "file without times"
        return (
            f"retention.ms {self.retention_ms}: the {what} of the first is of "
            f"{_as_time(newest_ms)}, {now_ms - newest_ms} ms ago"
        )


class SizeRetention(NamedTuple):
    """`retention.bytes`: segments go as long as what remains is not less than that."""

    retention_bytes: int

    def deletable(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> int:
        if self.retention_bytes < 0:
            return 0
        excess = sum(segment.size_bytes for segment in segments) - self.retention_bytes
        for count, segment in enumerate(segments):
            excess -= segment.size_bytes
            if excess < 0:
                return count
        return len(segments)

    def explain(self, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int) -> str:
        total_bytes = sum(segment.size_bytes for segment in segments)
        return f"retention.bytes {self.retention_bytes}: the log had {total_bytes} bytes"


def policies_for(
    cleanup_policy: frozenset[str], retention_ms: int, retention_bytes: int
) -> tuple[RetentionPolicy, ...]:
    """The policies of a topic with these options."""
    if "delete" not in cleanup_policy:
        return (StartOffsetRetention(),)
    return StartOffsetRetention(), SizeRetention(retention_bytes), TimeRetention(retention_ms)


def kafka_policies(options: TopicOptions) -> tuple[RetentionPolicy, ...]:
    """What `cleanup.policy`, `retention.ms` and `retention.bytes` ask for."""
    if options.cleanup_suspended:
        return ()
    return policies_for(options.cleanup_policy, options.retention_ms, options.retention_bytes)


def plan_deletions(
    segments: Sequence[SegmentFacts],
    log: LogFacts,
    policies: Iterable[RetentionPolicy],
    now_ms: int,
    most: int | None = None,
) -> tuple[Deletion, ...]:
    """How many segments to delete from the front, and why; all of them means that a new one is due.

    Not more than so many in all. Each policy looks at what those before it have left, as in Kafka:
    timestamps need not grow from segment to segment, so the longest of the prefixes may not be all.
    """
    allowed = _count_allowed(segments, log)
    if most is not None:
        allowed = min(allowed, most)
    count, deletions = 0, []
    for policy in policies:
        left = segments[count:]
        more = min(allowed - count, policy.deletable(left, log, now_ms))
        if more > 0:
            deletions.append(Deletion(more, _explain(policy, left, log, now_ms)))
            count += more
    return tuple(deletions)


def _explain(
    policy: RetentionPolicy, segments: Sequence[SegmentFacts], log: LogFacts, now_ms: int
) -> str:
    if isinstance(policy, ExplainedPolicy):
        return policy.explain(segments, log, now_ms)
    return f"the policy {type(policy).__name__}"


def _as_time(timestamp_ms: int) -> str:
    """Hostile timestamps are no times; they are shown as they are."""
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):
        return str(timestamp_ms)


def _count_allowed(segments: Sequence[SegmentFacts], log: LogFacts) -> int:
    ends = [segment.base_offset for segment in segments[1:]]
    if segments and segments[-1].size_bytes:
        ends.append(log.log_end_offset)
    return sum(end <= log.high_watermark for end in ends)
