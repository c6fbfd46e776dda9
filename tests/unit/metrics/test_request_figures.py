"""Every request is counted; of those that are answered at once, some are timed for the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.metrics.figures import TIMED_ONE_OF, ApiFigures


@given(st.lists(st.sampled_from(["at once", "waits", "read"]), max_size=200))
def test_the_count_is_that_of_all_requests(steps: list[str]) -> None:
    figures, requests, timed = ApiFigures(0), 0, 0
    for step in steps:
        if step == "read":
            assert figures.durations().count == requests
            continue
        requests += 1
        figures.left -= 1
        if step == "waits":
            figures.left += 1
            figures.note_waited(1.0)
        elif figures.left <= 0:
            timed += 1
            figures.note_timed(0.001)
    assert figures.durations().count == requests
    at_once = steps.count("at once")
    assert timed == (at_once + TIMED_ONE_OF - 1) // TIMED_ONE_OF


def test_one_that_is_timed_stands_for_those_before_it() -> None:
    figures = ApiFigures(0)
    for _ in range(3 * TIMED_ONE_OF + 1):
        figures.left -= 1
        if figures.left <= 0:
            figures.note_timed(0.001)
    assert figures.durations().count == 3 * TIMED_ONE_OF + 1
    assert figures.durations().seconds > 0.001 * 3 * TIMED_ONE_OF
