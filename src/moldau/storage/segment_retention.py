"""Gathers what the rules of retention look at, and says in the log what they delete. A shell."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from moldau.config.topic_options import TopicOptions
from moldau.metrics.figures import StorageFigures
from moldau.metrics.history import EventKind, History
from moldau.model import TopicPartition
from moldau.storage.files import Files
from moldau.storage.rules.retention import (
    Deletion,
    LogFacts,
    RetentionPolicy,
    SegmentFacts,
    plan_deletions,
    policies_for,
)
from moldau.storage.segment import Segment

_log = logging.getLogger("moldau.storage")

MOST_AT_ONCE = 50
"""Each deletion renames a few files on the event loop; after so many, others have their turn."""


def kafka_policies(options: TopicOptions) -> tuple[RetentionPolicy, ...]:
    """What `cleanup.policy`, `retention.ms` and `retention.bytes` ask for."""
    if options.cleanup_suspended:
        return ()
    return policies_for(options.cleanup_policy, options.retention_ms, options.retention_bytes)


def plan_deletion(
    files: Files,
    segments: Sequence[Segment],
    log: LogFacts,
    policies: Iterable[RetentionPolicy],
    now_ms: int,
) -> tuple[Deletion, ...]:
    """Which segments to delete now, from the oldest, and why."""
    facts = [_facts_of(files, segment) for segment in segments]
    return plan_deletions(facts, log, policies, now_ms, MOST_AT_ONCE)


def _facts_of(files: Files, segment: Segment) -> SegmentFacts:
    timestamp = segment.largest_timestamp()
    modified_ms = files.modified_ms(segment.path) if timestamp < 0 else 0
    return SegmentFacts(segment.base_offset, segment.size_bytes, timestamp, modified_ms)


class _Reports(Protocol):
    """Where deletions are counted and remembered (`log_directory.LogDirectory`)."""

    figures: StorageFigures
    history: History


def report_deletions(
    topic_partition: TopicPartition,
    segments: Sequence[Segment],
    plan: Sequence[Deletion],
    reports: _Reports,
) -> None:
    """A line for each reason, however many segments go for it."""
    first = 0
    for deletion in plan:
        count = deletion.count
        going = segments[first : first + count]
        first += count
        begin_offset, end_offset = going[0].base_offset, segments[first].base_offset
        size_bytes = sum(segment.size_bytes for segment in going)
        message = (
            f"deleted offsets {begin_offset} to {end_offset - 1}, {size_bytes} bytes in {count} "
            f"segment{'' if count == 1 else 's'}: {deletion.reason}"
        )
        _log.info("%s: %s", topic_partition, message)
        reports.figures.deleted_segments += count
        reports.figures.deleted_bytes += size_bytes
        reports.history.note(
            EventKind.DELETION,
            str(topic_partition),
            message,
            first_offset=begin_offset,
            end_offset=end_offset,
            reason=deletion.reason,
        )
