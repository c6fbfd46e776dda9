"""Records and bytes a second, in and out, and what charts of them are drawn from. Rules."""

from __future__ import annotations

import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moldau.model import TopicPartition

# Bytes a second, in and out, of topics. Rules.
#
# Two sources. Brokers with a metrics port count what producers wrote to them and what consumers
# got, as it crossed the network: exact, both ways. Elsewhere the protocol tells how large the logs
# of the leaders are: what they have grown by is what was written, compressed as on disk. What
# retention or compaction took away meanwhile hides that; then the partition's last rate is taken
# for it, as long as records come. What is read cannot be known in that way.


FROM_METRICS = "counted by the brokers, replication left out"
FROM_LOGS = "from the growth of logs; what is read, brokers tell with --metrics"

_SAMPLE = re.compile(r'moldau_topic_bytes_(in|out)_total\{topic="((?:[^"\\]|\\.)*)"\} (\S+)')
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}

Rates = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes a second by topic; `bytes_out` is None where nobody knows."""

    bytes_in: Rates = field(default_factory=dict)
    bytes_out: Rates | None = None
    source: str = FROM_LOGS


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficCounters:
    """What brokers have counted since they were started, summed over those that answered."""

    seconds: float
    bytes_in: Mapping[str, float]
    bytes_out: Mapping[str, float]
    brokers: frozenset[str] = frozenset()  # whose counters these are: others have other sums


def read_counters(pages: Mapping[str, str], seconds: float) -> TrafficCounters:
    """From what the metrics ports of brokers say, by their addresses."""
    sums: dict[str, defaultdict[str, float]] = {"in": defaultdict(float), "out": defaultdict(float)}
    for text in pages.values():
        for way, topic, value in _SAMPLE.findall(text):
            sums[way][_unescape(topic)] += float(value)
    return TrafficCounters(
        seconds=seconds, bytes_in=sums["in"], bytes_out=sums["out"], brokers=frozenset(pages)
    )


def _unescape(text: str) -> str:
    return re.sub(r'\\[n"\\]', lambda found: _ESCAPES[found[0]], text)


def traffic_between(before: TrafficCounters, after: TrafficCounters) -> Traffic | None:
    """None where the two cannot be compared: another broker has answered, or one began anew."""
    elapsed = after.seconds - before.seconds
    if elapsed <= 0 or before.brokers != after.brokers:
        return None
    rates_in = _differences(before.bytes_in, after.bytes_in, elapsed)
    rates_out = _differences(before.bytes_out, after.bytes_out, elapsed)
    if rates_in is None or rates_out is None:
        return None
    return Traffic(bytes_in=rates_in, bytes_out=rates_out, source=FROM_METRICS)


def _differences(before: Rates, after: Rates, elapsed: float) -> dict[str, float] | None:
    rates = {}
    for topic, count in after.items():
        grown = count - before.get(topic, 0.0)
        if grown < 0:
            return None
        rates[topic] = grown / elapsed
    return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSizes:
    """Sizes and ends of the leaders' logs at one moment."""

    seconds: float
    sizes: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def growth_between(
    before: LogSizes, after: LogSizes, earlier: Mapping[TopicPartition, float]
) -> dict[TopicPartition, float]:
    """Bytes a second by partition; `earlier` is what the last comparison gave."""
    elapsed = after.seconds - before.seconds
    rates: dict[TopicPartition, float] = {}
    if elapsed <= 0:
        return rates
    for partition, size in after.sizes.items():
        size_before = before.sizes.get(partition)
        if size_before is None:
            continue
        if size >= size_before:
            rates[partition] = (size - size_before) / elapsed
        elif after.ends.get(partition, 0) > before.ends.get(partition, 0):
            rates[partition] = earlier.get(partition, 0.0)
    return rates


def by_topic(rates: Mapping[TopicPartition, float]) -> dict[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    for partition, rate in rates.items():
        sums[partition.topic] += rate
    return sums


def only_topics(traffic: Traffic, topics: Iterable[str]) -> Traffic:
    """Of the topics that a user sees: a metrics port tells everybody of all of them."""
    known = frozenset(topics)
    return Traffic(
        bytes_in={name: rate for name, rate in traffic.bytes_in.items() if name in known},
        bytes_out=None
        if traffic.bytes_out is None
        else {name: rate for name, rate in traffic.bytes_out.items() if name in known},
        source=traffic.source,
    )


# How fast records come, from the ends of partitions at two moments. Rules.
#
# The end of a partition grows by one with every record that is written (and with the markers of
# transactions), on every Kafka-compatible cluster. A topic that was deleted and made anew begins at
# 0 again: what would be negative counts as nothing.


Point = tuple[float, float | None]
"""Seconds since 1970, and a value; None draws a gap."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The ends of all partitions at one moment; those without an answer are missing."""

    seconds: float
    ends: Mapping[TopicPartition, int]


def topic_rates(before: Sample, after: Sample) -> Mapping[str, float]:
    """Records per second of each topic that is in both."""
    elapsed = after.seconds - before.seconds
    if elapsed <= 0:
        return {}
    grown: defaultdict[str, int] = defaultdict(int)
    for partition, end in after.ends.items():
        begun = before.ends.get(partition)
        if begun is not None:
            grown[partition.topic] += max(0, end - begun)
    return {topic: count / elapsed for topic, count in grown.items()}


def busiest(rates: Mapping[str, float], count: int) -> list[tuple[str, float]]:
    """Topics into which something is written, the fastest first."""
    found = [(topic, rate) for topic, rate in rates.items() if rate > 0]
    return sorted(found, key=lambda one: (-one[1], one[0]))[:count]


class TimeSeries:
    """The last so many values of something. A pause in between is drawn as a gap."""

    def __init__(self, points: int, gap_seconds: float) -> None:
        self._points: deque[Point] = deque(maxlen=points)
        self._gap_seconds = gap_seconds

    def __len__(self) -> int:
        return len(self._points)

    def add(self, seconds: float, value: float) -> None:
        if self._points and seconds - self._points[-1][0] > self._gap_seconds:
            self._points.append((self._points[-1][0] + 0.001, None))
        self._points.append((seconds, value))

    @property
    def points(self) -> Iterable[Point]:
        return self._points

    @property
    def last(self) -> float | None:
        return self._points[-1][1] if self._points else None

    def to_series(self) -> list[list[float | None]]:
        """As a chart takes it: milliseconds since 1970, and the value."""
        return [
            [round(at * 1000), None if value is None else round(value, 2)]
            for at, value in self._points
        ]


def pause_after(took_seconds: float, least_seconds: float, share: float = 0.1) -> float:
    """How long to rest after a look that took so long: looking takes a tenth of the time, however
    many partitions there are."""
    return max(least_seconds - took_seconds, took_seconds * (1 / share - 1))


POINTS = 600
GAP_SECONDS = 15.0
_TOPICS = 20


class TrafficSeries:
    """The last values; each series has its own moments."""

    def __init__(self) -> None:
        self.records = TimeSeries(POINTS, GAP_SECONDS)
        self.bytes_in = TimeSeries(POINTS, GAP_SECONDS)
        self.bytes_out = TimeSeries(POINTS, GAP_SECONDS)  # empty where nobody knows


class TrafficHistories:
    """`total` is kept all the time, a topic's from when it was first asked for."""

    def __init__(self) -> None:
        self.total = TrafficSeries()
        self._topics: OrderedDict[str, TrafficSeries] = OrderedDict()

    def of(self, topic: str) -> TrafficSeries:
        found = self._topics.pop(topic, None) or TrafficSeries()
        self._topics[topic] = found
        while len(self._topics) > _TOPICS:
            self._topics.popitem(last=False)
        return found

    def add_records(self, seconds: float, rates: Mapping[str, float]) -> None:
        self.total.records.add(seconds, sum(rates.values()))
        for topic, series in self._topics.items():
            series.records.add(seconds, rates.get(topic, 0.0))

    def add_traffic(self, seconds: float, traffic: Traffic) -> None:
        self._add(self.total, seconds, None, traffic)
        for topic, series in self._topics.items():
            self._add(series, seconds, topic, traffic)

    def _add(
        self, series: TrafficSeries, seconds: float, topic: str | None, traffic: Traffic
    ) -> None:
        for kept, rates in (
            (series.bytes_in, traffic.bytes_in),
            (series.bytes_out, traffic.bytes_out),
        ):
            if rates is not None:
                rate = sum(rates.values()) if topic is None else rates.get(topic, 0.0)
                kept.add(seconds, rate)
