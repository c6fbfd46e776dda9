"""When a session of a served store is over, and when nobody knows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordination.served.server import CHECK_SECONDS, SessionTimeouts

TIMEOUT = 6.0


def test_a_session_that_is_not_heard_of_ends_after_its_time_out_and_not_before() -> None:
    timeouts = SessionTimeouts(0.0)
    timeouts.add(1, TIMEOUT, 0.0)
    assert look_until(timeouts, 0.0, TIMEOUT - CHECK_SECONDS) == []
    assert look_until(timeouts, TIMEOUT - CHECK_SECONDS, TIMEOUT) == [1]
    assert look_until(timeouts, TIMEOUT, 2 * TIMEOUT) == []


def test_a_session_that_is_heard_of_lasts() -> None:
    timeouts = SessionTimeouts(0.0)
    timeouts.add(1, TIMEOUT, 0.0)
    timeouts.add(2, TIMEOUT, 0.0)
    look_until(timeouts, 0.0, TIMEOUT / 2)
    timeouts.note_activity(1, TIMEOUT / 2)
    assert look_until(timeouts, TIMEOUT / 2, TIMEOUT) == [2]
    assert look_until(timeouts, TIMEOUT, TIMEOUT * 1.5) == [1]


def test_one_that_has_ended_is_not_ended_again() -> None:
    timeouts = SessionTimeouts(0.0)
    timeouts.add(1, TIMEOUT, 0.0)
    timeouts.remove(1)
    timeouts.note_activity(1, 1.0)
    assert look_until(timeouts, 0.0, 2 * TIMEOUT) == []


def test_who_looks_late_forgives_what_it_could_not_hear() -> None:
    timeouts = SessionTimeouts(0.0)
    timeouts.add(1, TIMEOUT, 0.0)
    late = 100.0
    assert timeouts.remove_expired(late) == []
    assert look_until(timeouts, late, late + TIMEOUT - 2 * CHECK_SECONDS) == []
    assert look_until(timeouts, late + TIMEOUT - 2 * CHECK_SECONDS, late + TIMEOUT) == [1]


def test_a_time_out_that_is_too_short_to_be_counted_is_lengthened() -> None:
    timeouts = SessionTimeouts(0.0)
    timeouts.add(1, 0.001, 0.0)
    assert timeouts.remove_expired(CHECK_SECONDS) == []


@given(st.lists(st.tuples(st.floats(0.01, 30.0), st.booleans()), max_size=60))
def test_no_session_ends_within_its_time_out(steps: list[tuple[float, bool]]) -> None:
    """Whenever somebody looks: the lease counts on that (REP-4)."""
    now, heard_at = 0.0, 0.0
    timeouts = SessionTimeouts(now)
    timeouts.add(1, TIMEOUT, now)
    for pause, is_heard in steps:
        now += pause
        if is_heard:
            heard_at = now
            timeouts.note_activity(1, now)
        if timeouts.remove_expired(now):
            assert now - heard_at >= TIMEOUT
            return


def look_until(timeouts: SessionTimeouts, start: float, end: float) -> list[int]:
    """Look as often as one should, after the start and up to the end."""
    expired = []
    count = round((end - start) / CHECK_SECONDS)
    for number in range(1, count + 1):
        expired += timeouts.remove_expired(start + number * CHECK_SECONDS)
    return expired
