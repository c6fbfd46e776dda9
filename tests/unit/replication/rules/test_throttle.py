"""KIP-73: so many bytes per second, on average, and no batch is cut."""

from hypothesis import given
from hypothesis import strategies as st

from moldau.replication.replication_quota import Throttle, is_throttled


def test_nothing_moved_is_nothing_owed():
    assert not Throttle().is_exceeded(0, now=5.0)


def test_more_than_a_second_of_the_rate_has_to_wait_until_it_is_worked_off():
    throttle = Throttle().record(3000, 1000, now=10.0)

    assert throttle.is_exceeded(1000, now=10.0)
    assert throttle.is_exceeded(1000, now=11.9)
    assert not throttle.is_exceeded(1000, now=12.0)


def test_a_rate_that_is_raised_counts_at_once():
    throttle = Throttle().record(3000, 1000, now=10.0)
    assert not throttle.is_exceeded(5000, now=10.0)


def test_replicas_are_named_as_pairs_or_all_at_once():
    assert is_throttled(("*",), 0, 1)
    assert is_throttled(("0:1", "3:2"), 3, 2)
    assert not is_throttled(("0:1", "3:2"), 3, 1)
    assert not is_throttled((), 0, 1)


@given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 2)), max_size=50))
def test_what_is_let_through_keeps_the_rate(steps):
    rate, throttle, now, moved = 1000, Throttle(), 0.0, 0
    for size, pause in steps:
        now += pause
        if not throttle.is_exceeded(rate, now):
            throttle = throttle.record(size, rate, now)
            moved += size
    assert moved <= rate * (now + 1.0) + 500


def test_an_account_is_exceeded_by_more_than_a_second_of_the_rate():
    throttle = Throttle().record(1000, 1000, now=10.0)
    assert not throttle.is_exceeded(1000, now=10.0)
    assert throttle.record(1, 1000, now=10.0).is_exceeded(1000, now=10.0)


def test_a_clock_that_is_late_works_nothing_off_and_adds_nothing():
    throttle = Throttle().record(3000, 1000, now=10.0)
    assert throttle.owed(1000, now=9.0) == 3000
    assert throttle.owed(1000, now=11.0) == 2000
    assert throttle.owed(1000, now=14.0) == 0
    later = throttle.record(500, 1000, now=9.0)
    assert (later.owed_bytes, later.at) == (3500, 10.0)


def test_a_single_byte_and_a_part_of_a_byte_count():
    assert Throttle().record(1, 1000, now=10.0).owed(1000, now=11.0) == 0
    assert not Throttle(owed_bytes=1.2, at=10.0).is_exceeded(1.5, now=10.0)
