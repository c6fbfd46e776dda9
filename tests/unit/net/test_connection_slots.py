"""Who may connect: slots of a listener and of the broker, and the rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.net.connection_quotas import CreationPace, Usage, count_excess, has_slot

FREE, FULL, OVER = Usage(1, 2), Usage(2, 2), Usage(5, 2)


def test_a_client_needs_a_slot_of_its_listener_and_of_the_broker() -> None:
    assert has_slot(FREE, FREE, is_protected=False)
    assert not has_slot(FULL, FREE, is_protected=False)
    assert not has_slot(FREE, FULL, is_protected=False)
    assert not has_slot(FREE, OVER, is_protected=False)


def test_brokers_need_one_of_their_listener_only() -> None:
    assert has_slot(FREE, OVER, is_protected=True)
    assert not has_slot(FULL, FREE, is_protected=True)


def test_what_is_beyond_the_limit_goes() -> None:
    assert [count_excess(usage) for usage in (FREE, FULL, OVER)] == [0, 0, 3]


def test_nothing_is_accepted_at_the_rate_zero() -> None:
    assert CreationPace().wait(0, 5.0) == float("inf")
    assert CreationPace().accepted(0, 5.0) == CreationPace()


def test_the_rate_may_come_at_once_and_then_evenly() -> None:
    pace = CreationPace()
    for _ in range(4):
        assert pace.wait(4, 100.0) == 0
        pace = pace.accepted(4, 100.0)
    assert pace.wait(4, 100.0) == 0.25
    assert pace.wait(4, 100.25) == 0
    assert pace.accepted(4, 100.25).wait(4, 100.25) == 0.25


@given(
    rate=st.integers(1, 10),
    pauses=st.lists(st.floats(0, 3, allow_nan=False), min_size=1, max_size=30),
)
def test_no_second_has_more_than_twice_the_rate(rate: int, pauses: list[float]) -> None:
    now, pace = 0.0, CreationPace()
    accepted: list[float] = []
    for pause in pauses:
        now += pause
        for _ in range(3 * rate):
            if pace.wait(rate, now) == 0:
                pace = pace.accepted(rate, now)
                accepted.append(now)
        assert sum(at > now - 1 for at in accepted) <= 2 * rate
