"""Bytes a second, from metrics or from the growth of logs."""

from __future__ import annotations

from moldau.console.watch import (
    FROM_METRICS,
    LogSizes,
    Traffic,
    TrafficCounters,
    TrafficHistories,
    by_topic,
    growth_between,
    only_topics,
    read_counters,
    traffic_between,
)
from moldau.metrics.catalogue import BYTES_IN, BYTES_OUT
from moldau.metrics.exposition import Exposition
from moldau.model import TopicPartition

ONE, TWO = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def page(bytes_in: float, bytes_out: float, topic: str = "clicks") -> str:
    """As a broker writes it."""
    made = Exposition()
    made.add(BYTES_IN, bytes_in, topic)
    made.add(BYTES_OUT, bytes_out, topic)
    return "".join(made.pieces(openmetrics=False))


def test_the_counters_of_brokers_are_added_up() -> None:
    before = read_counters({"a": page(100, 10), "b": page(1000, 0)}, 10.0)
    after = read_counters({"a": page(300, 50), "b": page(1400, 0)}, 12.0)
    found = traffic_between(before, after)
    assert found == Traffic(
        bytes_in={"clicks": 300.0}, bytes_out={"clicks": 20.0}, source=FROM_METRICS
    )


def test_a_broker_that_began_anew_or_is_missing_gives_no_rate() -> None:
    before = read_counters({"a": page(100, 10), "b": page(100, 10)}, 10.0)
    assert traffic_between(before, read_counters({"a": page(200, 20)}, 12.0)) is None
    assert traffic_between(before, read_counters({"a": page(5, 1), "b": page(5, 1)}, 12.0)) is None
    assert traffic_between(before, before) is None


def test_a_topic_that_is_new_counts_from_nothing() -> None:
    before = TrafficCounters(seconds=0, bytes_in={}, bytes_out={})
    found = traffic_between(before, TrafficCounters(seconds=2, bytes_in={"t": 8}, bytes_out={}))
    assert found is not None
    assert found.bytes_in == {"t": 4.0}


def sizes(seconds: float, *values: tuple[int, int]) -> LogSizes:
    pairs = dict(zip((ONE, TWO), values, strict=False))
    return LogSizes(
        seconds=seconds,
        sizes={one: size for one, (size, _) in pairs.items()},
        ends={one: end for one, (_, end) in pairs.items()},
    )


def test_what_logs_have_grown_by_was_written() -> None:
    rates = growth_between(sizes(0, (100, 1), (50, 1)), sizes(5, (600, 9), (50, 1)), {})
    assert rates == {ONE: 100.0, TWO: 0.0}
    assert by_topic(rates) == {"clicks": 100.0}


def test_retention_does_not_hide_that_records_come() -> None:
    before, after = sizes(0, (1000, 5), (1000, 5)), sizes(5, (300, 9), (300, 5))
    assert growth_between(before, after, {ONE: 70.0, TWO: 80.0}) == {ONE: 70.0}


def test_nobody_hears_of_topics_that_they_may_not_see() -> None:
    found = Traffic(bytes_in={"mine": 1.0, "hidden": 2.0}, bytes_out={"hidden": 3.0})
    assert only_topics(found, ["mine"]) == Traffic(bytes_in={"mine": 1.0}, bytes_out={})


def test_a_topic_s_history_begins_when_somebody_asks_and_the_last_few_are_kept() -> None:
    histories = TrafficHistories()
    histories.add_records(1.0, {"t": 3.0})
    assert len(histories.of("t").records) == 0
    histories.add_records(2.0, {"t": 3.0, "u": 4.0})
    histories.add_traffic(2.0, Traffic(bytes_in={"t": 10.0}))
    assert histories.total.records.last == 7.0
    assert histories.of("t").records.last == 3.0
    assert histories.of("t").bytes_in.last == 10.0
    assert histories.of("t").bytes_out.last is None
    for number in range(100):
        histories.of(f"topic {number}")
    assert len(histories.of("t").records) == 0  # forgotten
