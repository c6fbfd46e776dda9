from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from moldau.client.rules.offsets import (
    Bound,
    Bounds,
    OffsetRange,
    bounds_by_partition,
    milliseconds_of,
    resolve_bound,
)
from moldau.errors import ConfigurationError

LOG = OffsetRange(100, 200)
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("bound", "offset"),
    [
        ("earliest", 100),
        ("latest", 200),
        (150, 150),
        (0, 100),
        (99, 100),
        (200, 200),
        (1 << 60, 200),
        (-1, 199),
        (-100, 100),
        (-5000, 100),
    ],
)
def test_a_bound_is_an_offset_that_the_log_has(bound: Bound, offset: int) -> None:
    assert resolve_bound(bound, LOG) == offset


@pytest.mark.parametrize(("found", "offset"), [(150, 150), (-1, 200), (20, 100), (300, 200)])
def test_a_time_is_the_offset_that_the_broker_found_or_the_end(found: int, offset: int) -> None:
    assert resolve_bound(NOON, LOG, found) == offset


def test_a_range_can_be_empty() -> None:
    assert OffsetRange(5, 5).is_empty
    assert OffsetRange(6, 5).is_empty
    assert not OffsetRange(5, 6).is_empty


def test_one_bound_is_for_all_partitions() -> None:
    assert bounds_by_partition(7, [0, 2], "earliest", "start") == {0: 7, 2: 7}
    assert bounds_by_partition(None, [0, 2], "latest", "end") == {0: "latest", 2: "latest"}


def test_partitions_can_have_bounds_of_their_own() -> None:
    bounds: Bounds = {1: 5, 2: NOON}
    assert bounds_by_partition(bounds, [0, 1, 2], "earliest", "start") == {
        0: "earliest",
        1: 5,
        2: NOON,
    }


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ("begin", "start is 'begin'; it can be an offset, a negative number"),
        (1.5, "start is 1.5; it can be"),
        (True, "start is True; it can be"),
        ({0: "soon"}, "start is 'soon'; it can be"),
        ({9: 5}, "start names partition 9, which is not read"),
        (NOON.replace(tzinfo=None), "start is 2024-05-01 12:00:00 in no time zone; say which"),
    ],
)
def test_wrong_bounds_are_refused_in_words(bounds: Bounds, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        bounds_by_partition(bounds, [0, 1], "earliest", "start")


def test_times_count_from_1970_in_any_zone() -> None:
    assert milliseconds_of(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1000
    assert milliseconds_of(datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == 0
    assert milliseconds_of(NOON) == 1_714_564_800_000


def test_a_fraction_of_a_millisecond_counts_for_the_next_one() -> None:
    assert milliseconds_of(NOON + timedelta(microseconds=1)) == 1_714_564_800_001
    assert milliseconds_of(NOON + timedelta(microseconds=1000)) == 1_714_564_800_001


def test_a_time_before_1970_is_no_question_of_another_kind() -> None:
    assert milliseconds_of(datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)) == 0
