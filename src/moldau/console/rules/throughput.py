"""How fast records come, from the ends of partitions at two moments. Rules.

The end of a partition grows by one with every record that is written (and with the markers of
transactions), on every Kafka-compatible cluster. A topic that was deleted and made anew begins at 0
again: what would be negative counts as nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from moldau.model import TopicPartition

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
