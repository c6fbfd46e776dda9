"""From where a partition ended when, to how long ago a record came."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.monitoring.group_lag import MOST_SAMPLES, EndSample, add_sample, seconds_behind

STEADY = tuple(EndSample(float(at), at * 10) for at in range(11))  # ten records a second


@pytest.mark.parametrize(
    ("committed", "now", "seconds"),
    [
        (100, 10.0, 0.0),  # at the end
        (120, 10.0, 0.0),  # past it: of a topic made anew
        (95, 10.0, 0.5),
        (0, 10.0, 10.0),
        (95, 60.0, 50.5),  # it grows while nobody reads
    ],
)
def test_a_committed_offset_lies_between_two_looks(
    committed: int, now: float, seconds: float
) -> None:
    assert seconds_behind(STEADY, committed, now) == pytest.approx(seconds)


def test_what_came_before_the_first_look_counts_from_it() -> None:
    assert seconds_behind((EndSample(5.0, 100),), 3, 25.0) == 20.0


def test_a_quiet_time_before_the_record_does_not_count() -> None:
    samples: tuple[EndSample, ...] = ()
    for at in range(100):
        samples = add_sample(samples, EndSample(float(at), 50))
    assert len(samples) == 2
    samples = add_sample(samples, EndSample(100.0, 60))
    assert seconds_behind(samples, 50, 101.0) == pytest.approx(2.0)


def test_a_log_that_was_cut_off_begins_anew() -> None:
    assert add_sample(STEADY, EndSample(20.0, 5)) == (EndSample(20.0, 5),)


@given(st.lists(st.integers(min_value=0, max_value=50), max_size=400))
def test_samples_are_bounded_in_order_and_keep_the_newest(growth: list[int]) -> None:
    samples: tuple[EndSample, ...] = ()
    end = 0
    for at, more in enumerate(growth):
        end += more
        samples = add_sample(samples, EndSample(float(at), end))
        assert samples[-1] == (at, end)
        assert len(samples) <= MOST_SAMPLES
        assert list(samples) == sorted(samples)
        assert 0 <= seconds_behind(samples, 0, at) <= at
