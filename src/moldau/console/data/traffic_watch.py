"""Finds out how many bytes go in and out: from the brokers' metrics ports, else from their logs.

A shell; asked by the tasks of `ConsoleWatch`, which own it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from moldau.clock import Clock
from moldau.console.data.cluster import Cluster
from moldau.console.rules.histories import TrafficHistories
from moldau.console.rules.traffic import (
    LogSizes,
    Traffic,
    TrafficCounters,
    by_topic,
    growth_between,
    only_topics,
    read_counters,
    traffic_between,
)
from moldau.model import TopicPartition

_GAP_SECONDS = 30.0


class TrafficWatch:
    """`traffic` is what the last two looks at the cluster gave; None before that."""

    def __init__(self, cluster: Cluster, clock: Clock, histories: TrafficHistories) -> None:
        self._cluster = cluster
        self._clock = clock
        self._histories = histories
        self.traffic: Traffic | None = None
        self._counters: TrafficCounters | None = None
        self._sizes: LogSizes | None = None
        self._growth: dict[TopicPartition, float] = {}
        self._is_metered = False  # the metrics ports tell: logs are not needed

    async def ask_metrics(self, topics: Iterable[str]) -> None:
        pages = self._cluster.settings.metrics_pages
        if pages is None:
            return
        found = await pages(self._cluster.admin)
        self._is_metered = bool(found)
        if not found:
            self._counters = None
            return
        after = read_counters(found, self._clock.now_ms() / 1000)
        before, self._counters = self._counters, after
        if before is not None and after.seconds - before.seconds < _GAP_SECONDS:
            traffic = traffic_between(before, after)
            if traffic is not None:
                self._show(after.seconds, only_topics(traffic, topics))

    def note_sizes(
        self, sizes: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        after = LogSizes(seconds=self._clock.now_ms() / 1000, sizes=sizes, ends=ends)
        before, self._sizes = self._sizes, after
        if before is None or after.seconds - before.seconds > _GAP_SECONDS:
            return
        self._growth = growth_between(before, after, self._growth)
        if not self._is_metered:
            self._show(after.seconds, Traffic(bytes_in=by_topic(self._growth)))

    def _show(self, seconds: float, traffic: Traffic) -> None:
        self.traffic = traffic
        self._histories.add_traffic(seconds, traffic)
