"""What an account lets through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.quotas import Bucket, is_idle

RATE, BURST = 100.0, 100.0


@given(
    st.lists(st.tuples(st.floats(0, 5), st.integers(1, 1000)), min_size=1, max_size=60),
    st.floats(1, 1e9),
)
def test_who_waits_as_told_gets_the_rate_and_no_more(
    requests: list[tuple[float, int]], rate: float
) -> None:
    """Requests of any size with any pauses: up to any moment no more than the rate allows, plus
    the burst, plus the request that was under way."""
    bucket, now, total = Bucket(0.0, 0.0), 0.0, 0.0
    for pause, amount in requests:
        now += pause
        bucket = bucket.refilled(rate, rate, now).charged(amount)
        total += amount
        assert total <= rate * now + rate + amount + 1e-6 * total
        now += bucket.seconds_of_debt(rate)


@given(st.lists(st.integers(1, 1000), min_size=20, max_size=60), st.floats(1, 1e6))
def test_who_never_pauses_gets_the_whole_rate(amounts: list[int], rate: float) -> None:
    bucket, now = Bucket(0.0, 0.0), 0.0
    for amount in amounts:
        bucket = bucket.refilled(rate, rate, now).charged(amount)
        now += bucket.seconds_of_debt(rate)
    assert sum(amounts) == pytest.approx(rate * now)


def test_an_idle_account_saves_up_no_more_than_the_burst() -> None:
    bucket = Bucket(0.0, 0.0).refilled(RATE, BURST, 3600.0)

    assert bucket.tokens == BURST
    assert bucket.charged(250).seconds_of_debt(RATE) == 1.5


def test_a_clock_that_stands_still_or_goes_back_gives_nothing() -> None:
    bucket = Bucket(-50.0, 10.0)

    assert bucket.refilled(RATE, BURST, 10.0) == bucket
    assert bucket.refilled(RATE, BURST, 9.0) == bucket


def test_a_lower_limit_takes_away_what_was_saved_up() -> None:
    assert Bucket(100.0, 0.0).refilled(10.0, 10.0, 0.0).tokens == 10.0


def test_an_account_is_idle_when_it_is_full() -> None:
    assert not is_idle(Bucket(-50.0, 0.0), RATE, BURST, 1.0)
    assert is_idle(Bucket(-50.0, 0.0), RATE, BURST, 1.5)
