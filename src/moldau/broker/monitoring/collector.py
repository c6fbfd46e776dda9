"""Gathers what the endpoint shows: counters as they stand, and gauges from the rooms as they are.

What has thousands of parts is gathered in slices, between which others have the loop; so what is
walked through is a copy, or is replaced as a whole and never changed. A shell; it changes nothing.
"""

from __future__ import annotations

import asyncio
import math
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from moldau.broker.api import Services
from moldau.broker.monitoring.group_lag import GroupLags
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode
from moldau.metrics import catalogue
from moldau.metrics.exposition import Exposition
from moldau.metrics.figures import BrokerFigures, ConnectionFigures
from moldau.model import NO_BROKER
from moldau.replication.partition import Partition
from moldau.storage.log_dirs import DirectoryCapacity
from moldau.wire.apis import APIS

_PARTITIONS_PER_TURN: Final = 250
_SAMPLES_PER_TURN: Final = 300
_MOST_GROUPS: Final = 1000
"""With a number of members of their own."""

_OWN = Path("/proc/self")
_START_FIELD = 19
"""Of /proc/self/stat, counted behind the name of the program: when it began, in ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What a broker that is put together shows."""

    services: Services
    connections: Callable[[], Mapping[str, ConnectionFigures]]
    lags: GroupLags
    lease_end: Callable[[], float]
    coordination_seconds: Callable[[], float | None]


async def collect_broker(sources: Sources, figures: BrokerFigures, out: Exposition) -> None:
    """All but the process."""
    services, turns = sources.services, _Turns()
    await _collect_traffic(figures, out, turns)
    await _collect_partitions(services, figures, out, turns)
    await _collect_requests(sources, figures, out, turns)
    _collect_control(sources, figures, out)
    await _collect_cluster(services.image, services, out)
    await _collect_storage(services, figures, out)
    await _collect_groups(sources, figures, out, turns)
    await _collect_transactions(services, out)
    out.update(await services.workers.run(services.telemetry.collecting()))


class _Turns:
    """Lets others have the loop between samples."""

    def __init__(self) -> None:
        self._left = _SAMPLES_PER_TURN

    async def spend(self, samples: int) -> None:
        """So many were added."""
        self._left -= samples
        if self._left <= 0:
            self._left = _SAMPLES_PER_TURN
            await asyncio.sleep(0)


async def _collect_traffic(figures: BrokerFigures, out: Exposition, turns: _Turns) -> None:
    for one in tuple(figures.traffics):
        out.add(catalogue.BYTES_IN, one.bytes_in, one.label)
        out.add(catalogue.RECORDS_IN, one.records_in, one.label)
        out.add(catalogue.BYTES_OUT, one.bytes_out, one.label)
        out.add(catalogue.RECORDS_OUT, one.records_out, one.label)
        out.add(catalogue.REPLICATION_BYTES_IN, one.replication_bytes_in, one.label)
        out.add(catalogue.REPLICATION_BYTES_OUT, one.replication_bytes_out, one.label)
        await turns.spend(6)


class _PartitionTotals:
    """Sums over the replicas here."""

    def __init__(self) -> None:
        self.bytes_of: Counter[str] = Counter()
        self.segments_of: Counter[str] = Counter()
        self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.reassigning = self.producers = self.follower_lag = 0

    def add(self, partition: Partition, label: str, image: MetadataImage) -> None:
        log, state = partition.log, partition.state
        self.bytes_of[label] += log.size_bytes
        self.segments_of[label] += len(log.segments)
        self.producers += len(log.producers)
        if not partition.is_leader:
            return
        self.leaders += 1
        in_sync, replicas = len(state.isr), len(state.replicas)
        self.under_replicated += in_sync < replicas
        self.under_min_isr += in_sync < state.min_in_sync
        self.at_min_isr += in_sync == state.min_in_sync < replicas
        known = image.find_partition(*partition.topic_partition)
        if known is not None and (known.adding_replicas or known.removing_replicas):
            self.reassigning += 1
        leadership = state.leadership
        for progress in () if leadership is None else leadership.progress.values():
            if progress.log_end_offset >= 0:
                behind = log.log_end_offset - progress.log_end_offset
                self.follower_lag = max(self.follower_lag, behind)


async def _collect_partitions(
    services: Services, figures: BrokerFigures, out: Exposition, turns: _Turns
) -> None:
    totals, traffics, image = _PartitionTotals(), figures.traffics, services.image
    partitions = tuple(services.partitions)
    for number, partition in enumerate(partitions, start=1):
        totals.add(partition, traffics.label_of(partition.topic_partition.topic), image)
        if number % _PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
    for label, size_bytes in totals.bytes_of.items():
        out.add(catalogue.TOPIC_LOG_BYTES, size_bytes, label)
        await turns.spend(1)
    for label, count in totals.segments_of.items():
        out.add(catalogue.TOPIC_LOG_SEGMENTS, count, label)
        await turns.spend(1)
    for metric, value in (
        (catalogue.PARTITIONS, len(partitions)),
        (catalogue.LEADERS, totals.leaders),
        (catalogue.UNDER_REPLICATED, totals.under_replicated),
        (catalogue.UNDER_MIN_ISR, totals.under_min_isr),
        (catalogue.AT_MIN_ISR, totals.at_min_isr),
        (catalogue.REASSIGNING, totals.reassigning),
        (catalogue.OFFLINE_REPLICAS, services.partitions.offline_count),
        (catalogue.REPLICA_LAG, totals.follower_lag),
        (catalogue.PRODUCER_IDS, totals.producers),
    ):
        out.add(metric, value)


async def _collect_requests(
    sources: Sources, figures: BrokerFigures, out: Exposition, turns: _Turns
) -> None:
    services = sources.services
    for api in tuple(figures.requests):
        out.add_histogram(catalogue.REQUESTS, api.durations(), APIS[api.api_key].name)
        for code, count in api.errors.items():
            out.add(catalogue.REQUEST_ERRORS, count, APIS[api.api_key].name, _error_name(code))
        await turns.spend(13 + len(api.errors))
    for listener, of_it in sources.connections().items():
        out.add(catalogue.CONNECTIONS, of_it.accepted - of_it.closed, listener)
        out.add(catalogue.CONNECTIONS_ACCEPTED, of_it.accepted, listener)
    if figures.certificates_end_ms is not None:
        out.add(catalogue.CERTIFICATES_END, figures.certificates_end_ms / 1000)
    for operation, size in services.purgatory.sizes().items():
        out.add(catalogue.PURGATORY, size, operation)
    for quota in services.quotas.figures():
        out.add(catalogue.QUOTA_THROTTLED, quota.throttled_requests, quota.kind.value)
        out.add(catalogue.QUOTA_THROTTLE_SECONDS, quota.throttled_ms / 1000, quota.kind.value)
        out.add(catalogue.QUOTA_ACCOUNTS, quota.accounts, quota.kind.value)
    out.add(catalogue.FETCH_SESSIONS, len(services.fetch_sessions))
    out.add(catalogue.FETCH_SESSION_PARTITIONS, services.fetch_sessions.watched)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return str(code)


def _collect_control(sources: Sources, figures: BrokerFigures, out: Exposition) -> None:
    services = sources.services
    out.add(catalogue.ISR_SHRINKS, figures.isr_shrinks)
    out.add(catalogue.ISR_EXPANDS, figures.isr_expands)
    out.add(catalogue.ELECTIONS, figures.elections)
    out.add(catalogue.UNCLEAN_ELECTIONS, figures.unclean_elections)
    lease_seconds = sources.lease_end() - services.clock.monotonic()
    if not math.isinf(lease_seconds):
        out.add(catalogue.LEASE_SECONDS, max(0.0, lease_seconds))
    took_seconds = sources.coordination_seconds()
    if took_seconds is not None:
        out.add(catalogue.COORDINATION_SECONDS, took_seconds)


async def _collect_cluster(image: MetadataImage, services: Services, out: Exposition) -> None:
    is_controller = image.controller_id == services.broker_id
    out.add(catalogue.CONTROLLER_ACTIVE, int(is_controller))
    out.add(catalogue.BROKERS, len(image.brokers))
    out.add(catalogue.TOPICS, len(image.topics))
    count = offline = imbalanced = 0
    for topic in image.topics.values():
        for state in topic.partitions:
            count += 1
            offline += state.leader == NO_BROKER
            imbalanced += state.leader not in (NO_BROKER, state.replicas[0])
            if count % (_PARTITIONS_PER_TURN * 8) == 0:
                await asyncio.sleep(0)
    out.add(catalogue.CLUSTER_PARTITIONS, count)
    out.add(catalogue.OFFLINE_PARTITIONS, offline if is_controller else 0)
    out.add(catalogue.PREFERRED_IMBALANCE, imbalanced if is_controller else 0)


async def _collect_storage(services: Services, figures: BrokerFigures, out: Exposition) -> None:
    store, of_logs = services.log_store, figures.storage
    capacities: tuple[DirectoryCapacity, ...] = await services.workers.run(store.capacities)
    for one in capacities:
        out.add(catalogue.DIRECTORY_OFFLINE, int(not one.online), str(one.folder))
        if one.total_bytes >= 0:
            out.add(catalogue.DIRECTORY_FREE, one.usable_bytes, str(one.folder))
            out.add(catalogue.DIRECTORY_TOTAL, one.total_bytes, str(one.folder))
    out.add_histogram(catalogue.FLUSHES, of_logs.flushes)
    out.add(catalogue.UNFLUSHED_LOGS, sum(len(one.dirty) for one in store.directories))
    out.add(catalogue.DELETED_SEGMENTS, of_logs.deleted_segments)
    out.add(catalogue.DELETED_BYTES, of_logs.deleted_bytes)
    out.add(catalogue.CLEANER_RUNS, of_logs.cleaner_runs)
    out.add(catalogue.CLEANER_SECONDS, of_logs.cleaner_seconds)
    out.add(catalogue.CLEANER_BEFORE, of_logs.cleaned_bytes_before)
    out.add(catalogue.CLEANER_AFTER, of_logs.cleaned_bytes_after)
    out.add(catalogue.UNCLEANABLE, of_logs.uncleanable)


async def _collect_groups(
    sources: Sources, figures: BrokerFigures, out: Exposition, turns: _Turns
) -> None:
    states: Counter[str] = Counter()
    for number, group in enumerate(tuple(sources.services.groups.each_group()), start=1):
        states[group.state.value] += 1
        if number <= _MOST_GROUPS:
            out.add(catalogue.GROUP_MEMBERS, group.member_count, group.group_id)
        if number % _PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
    for state, count in states.items():
        out.add(catalogue.GROUPS, count, state)
    for (group_id, topic), lag in sources.lags.lags.items():
        out.add(catalogue.GROUP_LAG, lag.records, group_id, topic)
        out.add(catalogue.GROUP_LAG_SECONDS, lag.seconds, group_id, topic)
        await turns.spend(2)
    out.add(catalogue.REBALANCES, figures.rebalances)


async def _collect_transactions(services: Services, out: Exposition) -> None:
    states: Counter[str] = Counter()
    oldest_ms, now_ms = 0, services.clock.now_ms()
    for number, one in enumerate(services.transactions.each_transaction(), start=1):
        if number % _PARTITIONS_PER_TURN == 0:
            await asyncio.sleep(0)
        states[one.state.label] += 1
        if not one.state.is_idle and one.started_ms >= 0:
            oldest_ms = max(oldest_ms, now_ms - one.started_ms)
    for state, count in states.items():
        out.add(catalogue.TRANSACTIONS, count, state)
    out.add(catalogue.OLDEST_TRANSACTION, oldest_ms / 1000)


def collect_process(process: ProcessFigures, out: Exposition) -> None:
    out.add(catalogue.CPU_SECONDS, process.cpu_seconds)
    out.add(catalogue.MEMORY, process.memory_bytes)
    out.add(catalogue.MAX_FILES, process.max_files)
    out.add(catalogue.START_TIME, process.started_at)
    if process.open_files is not None:
        out.add(catalogue.OPEN_FILES, process.open_files)


class ProcessFigures(NamedTuple):
    """None where the system does not tell."""

    cpu_seconds: float
    memory_bytes: int
    open_files: int | None
    max_files: int
    started_at: float  # seconds since 1970


def read_process() -> ProcessFigures:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return ProcessFigures(
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        memory_bytes=_read_memory(usage.ru_maxrss),
        open_files=_count_files(),
        max_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        started_at=_STARTED_AT,
    )


def _read_memory(most: int) -> int:
    """What is in memory now; where only the most so far is known, that."""
    try:
        pages = int((_OWN / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def _count_files() -> int | None:
    for folder in (_OWN / "fd", Path("/dev/fd")):
        try:
            return len(os.listdir(folder))  # noqa: PTH208 thousands of names, and no paths of them
        except OSError:
            continue
    return None


def _find_start() -> float:
    try:
        text = (_OWN / "stat").read_text().rpartition(")")[2]
        ticks = int(text.split()[_START_FIELD])
        return (
            time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
        )
    except (OSError, ValueError, IndexError, AttributeError):
        return time.time()  # of the import, which is among the first things that happen


_STARTED_AT = _find_start()
