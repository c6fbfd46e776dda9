"""What all sessions look at together: the cluster, its topics, and how fast records come.

Asked for once, however many sessions there are, and only while somebody looks: a page says so with
`look` every few seconds. Each question takes a tenth of the time at most, so that a cluster with
thousands of partitions is asked less often and not more.

A shell; four tasks, made by `start`, own everything in it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from moldau.client.admin_values import (
    ClusterDescription,
    ListedOffset,
    LogDirDescription,
    OffsetSpec,
)
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.clock import Clock
from moldau.console.data.cluster import EXPECTED, Cluster, failure_text
from moldau.console.rules.broker_rows import Disks
from moldau.console.rules.topic_rows import is_offline, leader_sizes
from moldau.console.rules.traffic import (
    LogSizes,
    Sample,
    Traffic,
    TrafficCounters,
    TrafficHistories,
    by_topic,
    growth_between,
    only_topics,
    pause_after,
    read_counters,
    topic_rates,
    traffic_between,
)
from moldau.errors import ClusterAuthorizationError
from moldau.model import TopicPartition

LOOK_SECONDS = 15.0
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
        self._looked_until = 0.0
        self._looked = asyncio.Event()
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

    def look(self) -> None:
        """Somebody looks, now and for a while."""
        self._looked_until = self._clock.monotonic() + LOOK_SECONDS
        self._looked.set()

    @property
    def is_looked_at(self) -> bool:
        return self._clock.monotonic() <= self._looked_until

    async def wait_until_answered(self, seconds: float) -> None:
        """For the first page: it is drawn once something is known, or after so long."""
        self.look()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._answered.wait(), seconds)

    async def refresh(self) -> None:
        """Look now: something was just changed by a session."""
        with contextlib.suppress(*EXPECTED):
            await self._ask_cluster()

    async def _repeat(self, ask: Callable[[], Awaitable[None]], least_seconds: float) -> None:
        while True:
            if not self.is_looked_at:
                self._looked.clear()
            await self._looked.wait()
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
