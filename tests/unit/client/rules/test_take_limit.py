"""How many records are taken in advance."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from moldau.client.queue.rules.share_consumer import AcquireLimit

LOCK = 30.0


def work(limit: AcquireLimit, seconds: float, times: int) -> None:
    now = 0.0
    for _ in range(times):
        limit.on_taken(1, now, is_awaited=False)
        now += seconds
        limit.on_asked(now)


def test_quick_takers_have_many_and_slow_ones_one() -> None:
    limit = AcquireLimit(500)
    assert limit.records(LOCK) == 1
    work(limit, 0.001, 20)
    assert limit.records(LOCK) == 500
    work(limit, 60.0, 1)
    assert limit.records(LOCK) == 1


def test_a_second_each_means_what_is_done_in_a_small_part_of_the_lock() -> None:
    limit = AcquireLimit(500)
    work(limit, 0.5, 50)
    assert limit.records(LOCK) == 3


def test_who_waits_for_an_empty_queue_is_not_slow() -> None:
    limit = AcquireLimit(500)
    work(limit, 0.001, 20)
    limit.on_taken(1, 100.0, is_awaited=True)
    limit.on_asked(4000.0)
    assert limit.records(LOCK) == 500


def test_a_batch_counts_as_its_records() -> None:
    limit = AcquireLimit(500)
    limit.on_taken(100, 0.0, is_awaited=False)
    limit.on_asked(1.0)
    assert limit.records(LOCK) == 150


@given(st.integers(1, 1000), st.lists(st.floats(0, 1e6)), st.floats(0.1, 3600))
def test_there_is_always_one_and_never_more_than_allowed(
    most: int, pauses: list[float], lock_seconds: float
) -> None:
    limit = AcquireLimit(most)
    for seconds in pauses:
        work(limit, seconds, 1)
        assert 1 <= limit.records(lock_seconds) <= most
