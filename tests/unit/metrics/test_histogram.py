"""Durations fall into buckets by powers of two, and every one of them is in the last."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from moldau.metrics.figures import Histogram


@given(st.lists(st.floats(min_value=0, max_value=1e6)))
def test_each_bucket_has_what_is_below_its_bound(durations: list[float]) -> None:
    histogram = Histogram()
    for seconds in durations:
        histogram.note(seconds)
    shown = list(histogram.cumulative())
    assert shown[-1] == (math.inf, len(durations))
    assert histogram.count == len(durations)
    for bound, count in shown[:-1]:
        assert count == sum(int(seconds * 1e6) < round(bound * 1e6) for seconds in durations)


def test_bounds_grow() -> None:
    bounds = [bound for bound, _ in Histogram().cumulative()]
    assert bounds == sorted(bounds)
    assert bounds[0] == 128e-6
