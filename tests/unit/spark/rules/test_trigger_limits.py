"""How much one batch of a stream takes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.model import TopicPartition
from moldau.spark.rules.trigger_limits import (
    TriggerLimits,
    limit_bytes,
    limit_ends,
    may_wait,
    share_out,
)

PARTITIONS = [TopicPartition("t", number) for number in range(5)]
ZERO, ONE = PARTITIONS[:2]
BACKLOGS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 10_000))


@given(BACKLOGS, st.integers(1, 20_000))
def test_shares_add_up_to_the_limit_and_none_is_more_than_waits(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    shares = share_out(backlog, limit)
    assert shares.keys() == backlog.keys()
    assert sum(shares.values()) == min(limit, sum(backlog.values()))
    assert all(0 <= shares[one] <= backlog[one] for one in backlog)


@given(BACKLOGS, st.integers(5, 20_000))
def test_no_partition_with_records_is_left_out_while_the_limit_reaches(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    shares = share_out(backlog, limit)
    assert all(shares[one] > 0 for one, waiting in backlog.items() if waiting)


def test_shares_follow_the_backlog() -> None:
    assert share_out({ZERO: 9_001, ONE: 1_001}, 1_002) == {ZERO: 901, ONE: 101}


@given(BACKLOGS, st.integers(1, 10**6), st.floats(0.1, 5000))
def test_bytes_are_kept_to_but_something_is_always_read(
    backlog: dict[TopicPartition, int], max_bytes: int, mean: float
) -> None:
    sizes = dict.fromkeys(backlog, mean)
    shares = limit_bytes(backlog, max_bytes, sizes)
    total = sum(shares.values())
    assert total * mean <= max(max_bytes, mean)
    assert bool(total) == any(backlog.values())


def test_without_limits_a_batch_takes_all() -> None:
    ends = {ZERO: 70, ONE: 5}
    assert limit_ends({ZERO: 3}, ends, TriggerLimits(), {}) == ends


def test_a_batch_ends_early_by_its_limit_and_names_every_partition() -> None:
    found = limit_ends({ZERO: 100, ONE: 7}, {ZERO: 300, ONE: 7}, TriggerLimits(max_offsets=50), {})
    assert found == {ZERO: 150, ONE: 7}


def test_a_log_that_was_cut_is_followed_back() -> None:
    assert limit_ends({ZERO: 100}, {ZERO: 40}, TriggerLimits(max_offsets=5), {}) == {ZERO: 40}


def test_a_batch_waits_for_enough_records_but_not_for_ever() -> None:
    limits = TriggerLimits(min_offsets=10, max_delay_ms=1000)
    assert may_wait({ZERO: 0}, {ZERO: 9}, limits, 500.0)
    assert not may_wait({ZERO: 0}, {ZERO: 10}, limits, 500.0)
    assert not may_wait({ZERO: 0}, {ZERO: 9}, limits, 1000.0)


def test_the_first_batch_of_a_run_does_not_wait() -> None:
    assert not may_wait({ZERO: 0}, {ZERO: 1}, TriggerLimits(min_offsets=10), None)


def test_nothing_waits_without_a_minimum() -> None:
    assert not may_wait({ZERO: 0}, {ZERO: 0}, TriggerLimits(max_offsets=1), 0.0)
