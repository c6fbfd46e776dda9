"""When a segment is full or old."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET, jitter_bound_ms, limits_for, should_roll

LIMITS = limits_for(segment_bytes=1000, segment_ms=500, jitter_ms=0)


@dataclass
class ASegment:
    base_offset: int = 100
    size_bytes: int = 600
    created_ms: int = 9_000
    first_timestamp: int = 5_000


def rolls(segment: ASegment, limits=LIMITS, **changes) -> bool:
    values = {
        "batch_bytes": 100,
        "last_offset": 200,
        "max_timestamp": 5_100,
        "index_is_full": False,
        "now_ms": 9_000,
    }
    return should_roll(segment, limits, **(values | changes))


def test_a_young_segment_with_room_stays():
    assert not rolls(ASegment())


def test_a_batch_that_just_fits_stays():
    assert not rolls(ASegment(), batch_bytes=400)
    assert rolls(ASegment(), batch_bytes=401)


def test_age_is_told_by_timestamps_not_by_the_clock():
    assert not rolls(ASegment(), max_timestamp=5_500, now_ms=1_000_000)
    assert rolls(ASegment(), max_timestamp=5_501)


def test_a_first_timestamp_of_zero_is_one():
    assert rolls(ASegment(first_timestamp=0), max_timestamp=501, now_ms=9_000)


def test_without_a_first_timestamp_the_clock_decides():
    segment = ASegment(first_timestamp=-1)

    assert not rolls(segment, max_timestamp=1_000_000, now_ms=9_500)
    assert rolls(segment, max_timestamp=-1, now_ms=9_501)


def test_older_records_never_roll_a_segment():
    assert not rolls(ASegment(), max_timestamp=0)


def test_an_empty_segment_is_never_too_old():
    assert not rolls(ASegment(size_bytes=0, first_timestamp=-1), now_ms=1_000_000)


def test_jitter_makes_a_segment_roll_earlier():
    limits = limits_for(1000, 500, jitter_ms=100)

    assert not rolls(ASegment(), limits, max_timestamp=5_400)
    assert rolls(ASegment(), limits, max_timestamp=5_401)


def test_a_full_index_rolls():
    assert rolls(ASegment(), index_is_full=True)


@pytest.mark.parametrize("size_bytes", [0, 600])
def test_offsets_must_fit_the_index(size_bytes):
    segment = ASegment(size_bytes=size_bytes)

    assert not rolls(segment, last_offset=100)
    assert not rolls(segment, last_offset=100 + MAX_RELATIVE_OFFSET)
    assert rolls(segment, last_offset=101 + MAX_RELATIVE_OFFSET)


@pytest.mark.parametrize(
    ("jitter_ms", "segment_ms", "bound"), [(0, 500, 0), (100, 500, 100), (900, 500, 500)]
)
def test_jitter_is_at_most_the_segments_time(jitter_ms, segment_ms, bound):
    assert jitter_bound_ms(jitter_ms, segment_ms) == bound
