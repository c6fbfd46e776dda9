"""What charts are drawn from: records and bytes a second, of all topics together and of those that
somebody has opened last. Rules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from moldau.console.rules.throughput import TimeSeries
from moldau.console.rules.traffic import Traffic

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
