"""Where reading begins and ends."""

from __future__ import annotations

import pytest

from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.spark.rules.bounds import (
    AtOffsets,
    AtTimes,
    place_group,
    place_offsets,
    place_times,
    require_every_partition,
    times_for,
)

ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
EARLIEST, LATEST = {ZERO: 5, ONE: 0}, {ZERO: 50, ONE: 70}


def test_minus_two_is_the_beginning_and_minus_one_the_end() -> None:
    assert place_offsets(AtOffsets(offsets={ZERO: -2, ONE: -1}), EARLIEST, LATEST) == {
        ZERO: 5,
        ONE: 70,
    }


def test_an_offset_is_taken_as_it_is_wherever_the_log_begins() -> None:
    assert place_offsets(AtOffsets(offsets={ZERO: 3, ONE: 99}), EARLIEST, LATEST) == {
        ZERO: 3,
        ONE: 99,
    }


def test_a_group_goes_on_where_it_was_and_from_the_beginning_elsewhere() -> None:
    assert place_group({ONE: 12}, EARLIEST) == {ZERO: 5, ONE: 12}


def test_one_time_is_for_every_partition() -> None:
    assert times_for(AtTimes(times_ms=7), [ZERO, ONE], "startingTimestamp") == {ZERO: 7, ONE: 7}


def test_a_partition_without_a_time_is_named() -> None:
    with pytest.raises(ConfigurationError, match="names no offset for clicks-1"):
        times_for(AtTimes(times_ms={ZERO: 7}), [ZERO, ONE], "startingOffsetsByTimestamp")


def test_a_partition_that_is_not_read_is_named() -> None:
    with pytest.raises(ConfigurationError, match="names clicks-1, which is not read"):
        require_every_partition([ZERO, ONE], [ZERO], "startingOffsets")


def test_where_all_is_older_reading_begins_at_the_end_if_that_is_wanted() -> None:
    bound = AtTimes(times_ms=7, if_none_latest=True)
    assert place_times({ZERO: 9}, LATEST, bound, "startingTimestamp") == {ZERO: 9, ONE: 70}


def test_where_all_is_older_it_is_an_error_otherwise() -> None:
    bound = AtTimes(times_ms=7, if_none_latest=False)
    with pytest.raises(ConfigurationError, match="clicks-1 has no record at or after"):
        place_times({ZERO: 9}, LATEST, bound, "startingTimestamp")
