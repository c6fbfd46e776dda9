"""What all sessions watch together: the cluster, its topics, and how fast records come."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict, defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moldau.client.admin.values import (
    ClusterDescription,
    ListedOffset,
    LogDirDescription,
    OffsetSpec,
)
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.clock import Clock
from moldau.console.cluster import EXPECTED, Cluster, Disks, failure_text
from moldau.console.topics import leader_sizes
from moldau.errors import ClusterAuthorizationError
from moldau.model import TopicPartition
from moldau.ops.cluster_view import is_offline

WATCH_SECONDS = 15.0
"""So long after the last look nothing is asked any more."""

_GAP_SECONDS = 10.0
_CLUSTER_SECONDS = 2.0
_OFFSETS_SECONDS = 1.0
_SIZES_SECONDS = 5.0
_METRICS_SECONDS = 2.0
_SILENT_SECONDS = 5.0
"""A cluster that has not answered for so long is said to be away. It is still waited for, as long
as the clients do: a large one, or a busy one, takes longer, and would never be seen otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why the cluster could not be asked, and since when."""

    message: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCluster:
    """The cluster at one moment."""

    cluster: ClusterDescription
    topics: Mapping[str, TopicMetadata]
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What is on the disks, from the last time that they were asked about."""

    by_partition: Mapping[TopicPartition, int] = field(default_factory=dict)
    by_topic: Mapping[str, int] = field(default_factory=dict)
    disks: Disks = field(default_factory=dict)


class ConsoleWatch:
    """See the module. `view` is None until the cluster has answered once."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self.view: SeenCluster | None = None
        self.trouble: Trouble | None = None
        self.sizes: Sizes | None = None
        self.rates: Mapping[str, float] = {}
        self.histories = TrafficHistories()
        self._traffic = TrafficWatch(cluster, clock, self.histories)
        self._sample: Sample | None = None
        self._watched_until = 0.0
        self._watched = asyncio.Event()
        self._answered = asyncio.Event()  # the first time, well or badly
        self._seen = asyncio.Event()  # there is a view
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        questions = (
            (self._ask_cluster, _CLUSTER_SECONDS),
            (self._ask_offsets, _OFFSETS_SECONDS),
            (self._ask_sizes, _SIZES_SECONDS),
            (self._ask_metrics, _METRICS_SECONDS),
        )
        for ask, seconds in questions:
            name = f"console {ask.__name__}"
            self._tasks.append(asyncio.create_task(self._repeat(ask, seconds), name=name))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def traffic(self) -> Traffic | None:
        """Bytes a second; None until two looks at the cluster can be compared."""
        return self._traffic.traffic

    def keep_watching(self) -> None:
        """Ask the cluster, now and for a while: somebody has a page open."""
        self._watched_until = self._clock.monotonic() + WATCH_SECONDS
        self._watched.set()

    @property
    def is_watched(self) -> bool:
        return self._clock.monotonic() <= self._watched_until

    async def wait_until_answered(self, seconds: float) -> None:
        """For the first page: it is drawn once something is known, or after so long."""
        self.keep_watching()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), seconds)

    async def refresh(self) -> None:
        """Look now: something was just changed by a session."""
        with contextlib.suppress(*EXPECTED):
            await self._ask_cluster()

    async def _repeat(self, ask: Callable[[], Awaitable[None]], least_seconds: float) -> None:
        while True:
            if not self.is_watched:
                self._watched.clear()
            await self._watched.wait()
            begun = self._clock.monotonic()
            with contextlib.suppress(*EXPECTED):  # the question about the cluster tells
                await ask()
            took = self._clock.monotonic() - begun
            await self._clock.sleep(pause_after(took, least_seconds))

    async def _ask_cluster(self) -> None:
        silence = self._clock.call_later(_SILENT_SECONDS, lambda: self._tell(TimeoutError()))
        try:
            cluster = await self._cluster.admin.describe_cluster()
            topics = await self._cluster.admin.list_topics()
        except EXPECTED as error:
            self._tell(error)
            raise
        finally:
            silence.cancel()
            self._answered.set()
        self.trouble = None
        self.view = SeenCluster(cluster=cluster, topics=topics, at_ms=self._clock.now_ms())
        self._seen.set()

    def _tell(self, error: Exception) -> None:
        since_ms = self._clock.now_ms() if self.trouble is None else self.trouble.since_ms
        self.trouble = Trouble(message=failure_text(error), since_ms=since_ms)

    async def _wait_for_view(self) -> SeenCluster:
        """Which partitions and brokers there are: without it there is nothing to ask about."""
        while self.view is None:
            await self._seen.wait()
        return self.view

    async def _ask_offsets(self) -> None:
        view = await self._wait_for_view()
        if self.trouble is not None:
            return
        alive = {broker.id for broker in view.cluster.brokers}
        wanted = {
            TopicPartition(topic.name, one.index): OffsetSpec.LATEST.value
            for topic in view.topics.values()
            for one in topic.partitions
            if not is_offline(one) and one.leader_id in alive
        }
        found = await self._cluster.admin.list_offsets(wanted)
        ends = {one: row.offset for one, row in found.items() if isinstance(row, ListedOffset)}
        sample = Sample(self._clock.now_ms() / 1000, ends)
        before, self._sample = self._sample, sample
        if before is not None and sample.seconds - before.seconds < _GAP_SECONDS:
            self.rates = topic_rates(before, sample)
            self.histories.add_records(sample.seconds, self.rates)

    async def _ask_sizes(self) -> None:
        view = await self._wait_for_view()
        if self.trouble is not None:
            return
        disks: Disks = {}
        with contextlib.suppress(ClusterAuthorizationError):  # not everybody may know
            disks = await self._cluster.admin.describe_log_dirs(
                [broker.id for broker in view.cluster.brokers]
            )
        replicas = {
            (broker_id, replica.partition): replica.size_bytes
            for broker_id, folders in disks.items()
            for folder in folders
            if isinstance(folder, LogDirDescription)
            for replica in folder.replicas
            if not replica.is_future
        }
        by_partition = leader_sizes(replicas, view.topics.values())
        by_topic: defaultdict[str, int] = defaultdict(int)
        for partition, size in by_partition.items():
            by_topic[partition.topic] += size
        ends = {} if self._sample is None else self._sample.ends
        self._traffic.note_sizes(by_partition, ends)
        self.sizes = Sizes(by_partition=by_partition, by_topic=by_topic, disks=disks)

    async def _ask_metrics(self) -> None:
        view = await self._wait_for_view()
        if self.trouble is None:
            await self._traffic.ask_metrics(view.topics)


# Finds out how many bytes go in and out: from the brokers' metrics ports, else from their logs.
#
# A shell; asked by the tasks of `ConsoleWatch`, which own it.


_TRAFFIC_GAP_SECONDS = 30.0


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
        if before is not None and after.seconds - before.seconds < _TRAFFIC_GAP_SECONDS:
            traffic = traffic_between(before, after)
            if traffic is not None:
                self._show(after.seconds, only_topics(traffic, topics))

    def note_sizes(
        self, sizes: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        after = LogSizes(seconds=self._clock.now_ms() / 1000, sizes=sizes, ends=ends)
        before, self._sizes = self._sizes, after
        if before is None or after.seconds - before.seconds > _TRAFFIC_GAP_SECONDS:
            return
        self._growth = growth_between(before, after, self._growth)
        if not self._is_metered:
            self._show(after.seconds, Traffic(bytes_in=by_topic(self._growth)))

    def _show(self, seconds: float, traffic: Traffic) -> None:
        self.traffic = traffic
        self._histories.add_traffic(seconds, traffic)


# Bytes a second, in and out, of topics.
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


# How fast records come, from the ends of partitions at two moments.
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
