"""Which segments go."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.storage.rules.retention import (
    UNLIMITED,
    LogFacts,
    SegmentFacts,
    SizeRetention,
    StartOffsetRetention,
    TimeRetention,
    plan_deletions,
    policies_for,
)

NOW_MS = 10_000
DELETE = frozenset({"delete"})


def some_segments(*timestamps_ms: int, size_bytes: int = 100) -> list[SegmentFacts]:
    """Ten offsets each."""
    return [
        SegmentFacts(10 * i, size_bytes, timestamp_ms, modified_ms=NOW_MS)
        for i, timestamp_ms in enumerate(timestamps_ms)
    ]


def a_log(segments: Sequence[SegmentFacts], start: int = 0, high_watermark: int | None = None):
    end = 10 * len(segments)
    return LogFacts(start, end if high_watermark is None else high_watermark, end)


def plan(segments, policies, log: LogFacts | None = None, **offsets) -> int:
    log = log or a_log(segments, **offsets)
    return sum(one.count for one in plan_deletions(segments, log, policies, NOW_MS))


def test_segments_go_when_their_newest_record_is_too_old():
    segments = some_segments(1000, 2000, 3000, 9999)

    assert plan(segments, [TimeRetention(8000)]) == 1
    assert plan(segments, [TimeRetention(7999)]) == 2


def test_a_segment_with_newer_records_shields_those_behind_it():
    assert plan(some_segments(1000, 9000, 1000, 9999), [TimeRetention(5000)]) == 1


def test_without_timestamps_the_files_age_counts():
    old = SegmentFacts(0, 100, -1, modified_ms=1000)
    young = SegmentFacts(10, 100, -1, modified_ms=9000)

    assert plan([old, young], [TimeRetention(5000)]) == 1


def test_the_active_segment_goes_too_when_its_records_are_expired():
    assert plan(some_segments(1000, 1000), [TimeRetention(5000)]) == 2


def test_an_empty_active_segment_stays():
    segments = [*some_segments(1000), SegmentFacts(10, 0, -1, modified_ms=0)]

    assert plan(segments, [TimeRetention(5000)], LogFacts(0, 10, 10)) == 1


def test_size_keeps_at_least_the_bytes_asked_for():
    segments = some_segments(0, 0, 0, 0)

    assert plan(segments, [SizeRetention(400)]) == 0
    assert plan(segments, [SizeRetention(301)]) == 0
    assert plan(segments, [SizeRetention(300)]) == 1
    assert plan(segments, [SizeRetention(0)]) == 4


def test_nothing_at_or_above_the_high_watermark_goes():
    segments = some_segments(0, 0, 0)

    assert plan(segments, [TimeRetention(0)], high_watermark=19) == 1
    assert plan(segments, [TimeRetention(0)], high_watermark=20) == 2
    assert plan(segments, [TimeRetention(0)], high_watermark=29) == 2
    assert plan(segments, [TimeRetention(0)], high_watermark=30) == 3


def test_segments_before_the_start_offset_go_but_never_the_active_one():
    segments = some_segments(NOW_MS, NOW_MS, NOW_MS)

    assert plan(segments, [StartOffsetRetention()], start=9) == 0
    assert plan(segments, [StartOffsetRetention()], start=10) == 1
    assert plan(segments, [StartOffsetRetention()], start=30) == 2


@pytest.mark.parametrize("policy", [TimeRetention(UNLIMITED), SizeRetention(UNLIMITED)])
def test_unlimited_means_unlimited(policy):
    assert plan(some_segments(0, 0, 0), [policy]) == 0


def test_a_compacted_topic_loses_only_what_is_before_its_start():
    segments = some_segments(0, 0, 0)
    compacted = policies_for(frozenset({"compact"}), retention_ms=0, retention_bytes=0)
    both = policies_for(frozenset({"compact", "delete"}), retention_ms=0, retention_bytes=0)

    assert plan(segments, compacted, start=10) == 1
    assert plan(segments, both, start=10) == 3


def test_an_own_policy_is_bounded_like_the_others():
    class DropAll:
        def deletable(self, segments, log, now_ms):
            return len(segments)

    assert plan(some_segments(NOW_MS, NOW_MS), [DropAll()], high_watermark=15) == 1


def test_a_log_without_segments_or_policies_has_nothing_to_delete():
    assert plan([], policies_for(DELETE, 0, 0)) == 0
    assert plan(some_segments(0), []) == 0


def kafka_deletes(segments, log, retention_ms, retention_bytes) -> int:
    """One reason after the other, each on what the one before has left."""
    left = list(segments)

    def sweep(is_due):
        while left:
            end = left[1].base_offset if len(left) > 1 else log.log_end_offset
            empty_last = len(left) == 1 and left[0].size_bytes == 0
            if log.high_watermark < end or empty_last or not is_due():
                return
            left.pop(0)

    sweep(lambda: len(left) > 1 and left[1].base_offset <= log.log_start_offset)
    if retention_bytes >= 0:
        sweep(lambda: sum(s.size_bytes for s in left) - left[0].size_bytes >= retention_bytes)
    if retention_ms >= 0:
        sweep(lambda: NOW_MS - left[0].largest_timestamp_ms > retention_ms)
    return len(segments) - len(left)


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    timestamps=st.lists(st.integers(0, NOW_MS), min_size=6, max_size=6),
    start=st.integers(0, 60),
    high_watermark=st.integers(0, 60),
    retention_ms=st.integers(-1, NOW_MS),
    retention_bytes=st.integers(-1, 20),
)
def test_what_goes_is_what_kafka_deletes_reason_by_reason(
    sizes, timestamps, start, high_watermark, retention_ms, retention_bytes
):
    segments = [
        SegmentFacts(10 * i, size, timestamp, NOW_MS)
        for i, (size, timestamp) in enumerate(zip(sizes, timestamps, strict=False))
    ]
    log = LogFacts(start, high_watermark, 10 * len(segments))

    found = plan(segments, policies_for(DELETE, retention_ms, retention_bytes), log)

    assert found == kafka_deletes(segments, log, retention_ms, retention_bytes)
