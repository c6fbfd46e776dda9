"""Bytes a second, in and out, of topics. Rules.

Two sources. Brokers with a metrics port count what producers wrote to them and what consumers got,
as it crossed the network: exact, both ways. Elsewhere the protocol tells how large the logs of the
leaders are: what they have grown by is what was written, compressed as on disk. What retention or
compaction took away meanwhile hides that; then the partition's last rate is taken for it, as long
as records come. What is read cannot be known in that way.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moldau.model import TopicPartition

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
