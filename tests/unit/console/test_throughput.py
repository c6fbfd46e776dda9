"""How fast records come."""

from __future__ import annotations

from moldau.console.watch import Sample, TimeSeries, busiest, pause_after, topic_rates
from moldau.model import TopicPartition

FIRST, SECOND, OTHER = (
    TopicPartition("clicks", 0),
    TopicPartition("clicks", 1),
    TopicPartition("orders", 0),
)


def test_partitions_of_a_topic_add_up() -> None:
    before = Sample(10.0, {FIRST: 100, SECOND: 50, OTHER: 7})
    after = Sample(12.0, {FIRST: 120, SECOND: 60, OTHER: 7})
    assert topic_rates(before, after) == {"clicks": 15.0, "orders": 0.0}


def test_a_topic_that_was_made_anew_does_not_count_backwards() -> None:
    rates = topic_rates(Sample(1.0, {FIRST: 100, SECOND: 0}), Sample(2.0, {FIRST: 3, SECOND: 4}))
    assert rates == {"clicks": 4.0}


def test_who_was_not_there_before_has_no_rate_yet() -> None:
    assert topic_rates(Sample(1.0, {}), Sample(2.0, {FIRST: 1000})) == {}


def test_a_clock_that_stands_or_goes_back_gives_no_rates() -> None:
    assert topic_rates(Sample(2.0, {FIRST: 1}), Sample(2.0, {FIRST: 9})) == {}
    assert topic_rates(Sample(2.0, {FIRST: 1}), Sample(1.0, {FIRST: 9})) == {}


def test_the_busiest_are_those_with_records() -> None:
    rates = {"a": 1.0, "b": 5.0, "c": 0.0, "d": 5.0}
    assert busiest(rates, 2) == [("b", 5.0), ("d", 5.0)]
    assert busiest(rates, 9) == [("b", 5.0), ("d", 5.0), ("a", 1.0)]


def test_a_pause_is_a_gap_and_old_points_go() -> None:
    history = TimeSeries(points=4, gap_seconds=5.0)
    for second in (1, 2, 100):
        history.add(float(second), second / 3)
    assert history.to_series() == [[1000, 0.33], [2000, 0.67], [2001, None], [100_000, 33.33]]
    history.add(101.0, 0.0)
    assert len(history) == 4
    assert history.last == 0.0


def test_looking_takes_a_tenth_of_the_time_at_most() -> None:
    assert pause_after(0.01, 1.0) == 0.99
    assert round(pause_after(2.0, 1.0), 6) == 18.0
