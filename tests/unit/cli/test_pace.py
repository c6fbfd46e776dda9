"""At most so many records a second."""

from __future__ import annotations

from moldau.cli.produce_run import Pace


def pass_through(pace: Pace, count: int, now: float = 0.0) -> float:
    """When the last of so many records has passed, if pauses are kept exactly."""
    for _ in range(count):
        now += pace.pause_before_next(now)
    return now


def test_a_slow_pace_is_kept_record_by_record() -> None:
    pace = Pace(10.0, now=0.0)
    assert [round(pass_through(pace, 1), 3) for _ in range(3)] == [0.0, 0.1, 0.2]


def test_a_fast_pace_is_kept_on_the_whole() -> None:
    assert 0.98 <= pass_through(Pace(100_000.0, now=0.0), 100_000) <= 1.0


def test_who_is_late_does_not_pause() -> None:
    pace = Pace(10.0, now=0.0)
    assert [pace.pause_before_next(5.0) for _ in range(50)] == [0.0] * 50
    assert pace.pause_before_next(4.9) > 0
