"""Reads what the checks of a cluster need to know. A shell; `rules.checks` judges.

Each question may fail by itself: then the survey says what could not be checked, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    UNDECIDED_OR_COMPLETING,
    Broker,
    ConfigResource,
    HangingTransaction,
    ListedOffset,
    LogDirDescription,
    OffsetSpec,
    TopicMetadata,
    TransactionDescription,
)
from moldau.clock import Clock
from moldau.errors import ClientError, KafkaError, MoldauError
from moldau.model import TopicPartition
from moldau.ops.group_view import read_groups
from moldau.ops.metrics_ports import ReadMetrics, foreign_brokers, ports_of, read_ports
from moldau.ops.rules.checks import BrokerSurvey, ClusterSurvey, GroupSurvey, name_brokers

T = TypeVar("T")

LogDirs: TypeAlias = tuple[LogDirDescription | KafkaError, ...]

CONNECT_SECONDS: Final = 5.0
MOST_GROUPS: Final = 200
MOST_PARTITIONS: Final = 5000
"""Of which timestamps and producers are asked for."""

_TOPICS_AT_ONCE = 200
_HANGING_MS = 15 * 60_000
_TOLD_BY_METRICS: Final = "clocks, file limits, loops and the coordination store"
_TOPIC_OPTIONS: Final = ("min.insync.replicas", "unclean.leader.election.enable")
_BROKER_OPTIONS: Final = (
    "metrics.listener",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
)


class SurveyReader:
    """Reads one survey: all of it, or the vital signs."""

    def __init__(
        self,
        admin: AsyncAdmin,
        *,
        clock: Clock,
        metrics_urls: Sequence[str] = (),
        group_seconds: float = 5.0,
    ) -> None:
        self._admin = admin
        self._clock = clock
        self._metrics_urls = metrics_urls
        self._group_seconds = group_seconds
        self._unchecked: list[str] = []

    async def read_survey(self) -> ClusterSurvey:
        admin = self._admin
        cluster = await admin.describe_cluster()
        topics = await admin.list_topics()
        unreachable = await self._try_addresses(cluster.brokers)
        there = [broker for broker in cluster.brokers if unreachable[broker.id] is None]
        configs = await self._try("settings of brokers", self._read_broker_configs(there), {})
        log_dirs = await self._try("disks", self._read_log_dirs(there), {})
        urls = self._metrics_urls or ports_of(configs, cluster.brokers)
        metrics = {one.broker_id: one for one in await read_ports(urls)}
        self._note_unread_metrics(cluster.brokers, metrics, foreign_brokers(configs))
        partitions = _partitions_of(topics)
        topic_configs = await self._try(
            "settings of topics", self._read_topic_configs(tuple(topics)), {}
        )
        max_timestamps = await self._try("timestamps", self._read_max_timestamps(partitions), {})
        reassignments = await self._try("reassignments", admin.list_partition_reassignments(), {})
        hanging = await self._try("hanging transactions", self._find_hanging(partitions), ())
        open_transactions = await self._try("open transactions", self._find_open_transactions(), ())
        groups = await self._try("groups", self._read_groups(), ())
        unreachable |= await self._try_addresses(there)  # one may have ended under all these
        return ClusterSurvey(
            now_ms=self._clock.now_ms(),
            controller_id=cluster.controller_id,
            brokers={
                broker.id: _broker_survey(broker, unreachable, configs, log_dirs, metrics)
                for broker in cluster.brokers
            },
            topics=topics,
            topic_configs=topic_configs,
            max_timestamps=max_timestamps,
            reassignments=reassignments,
            hanging=tuple(hanging),
            open_transactions=tuple(open_transactions),
            groups=tuple(groups),
            unchecked=tuple(self._unchecked),
        )

    async def read_vital_signs(self) -> ClusterSurvey:
        """Which brokers answer, which partitions are led and in sync, which disks work."""
        admin = self._admin
        cluster = await admin.describe_cluster()
        topics = await admin.list_topics()
        answers = await admin.describe_versions([broker.id for broker in cluster.brokers])
        unreachable = {
            broker_id: str(answer) if isinstance(answer, ClientError) else None
            for broker_id, answer in answers.items()
        }
        there = [broker for broker in cluster.brokers if unreachable[broker.id] is None]
        log_dirs = await self._try("disks", self._read_log_dirs(there), {})
        return ClusterSurvey(
            now_ms=self._clock.now_ms(),
            controller_id=cluster.controller_id,
            brokers={
                broker.id: _broker_survey(broker, unreachable, {}, log_dirs, {})
                for broker in cluster.brokers
            },
            topics=topics,
            topic_configs=await self._try(
                "settings of topics", self._read_topic_configs(tuple(topics)), {}
            ),
            unchecked=tuple(self._unchecked),
        )

    async def _try(self, what: str, answer: Awaitable[T], otherwise: T) -> T:
        try:
            return await answer
        except (MoldauError, OSError) as error:
            self._unchecked.append(f"{what}: {error}")
            return otherwise

    def _note_unread_metrics(
        self,
        brokers: Sequence[Broker],
        metrics: Mapping[int, ReadMetrics],
        foreign: Collection[int],
    ) -> None:
        silent = [one.id for one in brokers if one.id not in metrics and one.id not in foreign]
        if silent:
            self._unchecked.append(
                f"{_TOLD_BY_METRICS} of {name_brokers(silent)}: no metrics port (name it with "
                "--metrics, or start brokers with --metrics)"
            )
        if foreign:
            self._unchecked.append(
                f"{_TOLD_BY_METRICS} of {name_brokers(sorted(foreign))}: only brokers of Moldau "
                "tell them"
            )

    async def _try_addresses(self, brokers: Sequence[Broker]) -> dict[int, str | None]:
        """Why each cannot be reached, or None."""
        tried = await asyncio.gather(*map(self._try_address, brokers))
        return dict(zip([broker.id for broker in brokers], tried, strict=True))

    async def _try_address(self, broker: Broker) -> str | None:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, writer = await asyncio.open_connection(broker.address.host, broker.address.port)
        except TimeoutError:
            return f"no answer in {CONNECT_SECONDS:g} s"
        except OSError as error:
            return error.strerror or str(error)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        return None

    async def _read_broker_configs(
        self, brokers: Sequence[Broker]
    ) -> Mapping[int, Mapping[str, str]]:
        resources = {broker.id: ConfigResource.broker(broker.id) for broker in brokers}
        described = await self._admin.describe_configs(
            list(resources.values()), names=_BROKER_OPTIONS
        )
        return {
            broker_id: {entry.name: entry.value or "" for entry in found}
            for broker_id, resource in resources.items()
            if not isinstance(found := described[resource], KafkaError)
        }

    async def _read_log_dirs(self, brokers: Sequence[Broker]) -> Mapping[int, LogDirs]:
        return await self._admin.describe_log_dirs([broker.id for broker in brokers])

    async def _read_topic_configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        configs: dict[str, Mapping[str, str]] = {}
        for first in range(0, len(names), _TOPICS_AT_ONCE):
            resources = [
                ConfigResource.topic(one) for one in names[first : first + _TOPICS_AT_ONCE]
            ]
            described = await self._admin.describe_configs(resources, names=_TOPIC_OPTIONS)
            for resource, found in described.items():
                if not isinstance(found, KafkaError):
                    configs[resource.name] = {one.name: one.value or "" for one in found}
        return configs

    async def _read_max_timestamps(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        listed = await self._admin.list_offsets(
            dict.fromkeys(partitions, OffsetSpec.MAX_TIMESTAMP.value)
        )
        return {
            one: found.timestamp_ms
            for one, found in listed.items()
            if isinstance(found, ListedOffset)
        }

    async def _find_hanging(
        self, partitions: Collection[TopicPartition]
    ) -> Sequence[HangingTransaction]:
        return await self._admin.find_hanging_transactions(
            partitions, older_than_ms=_HANGING_MS, now_ms=self._clock.now_ms()
        )

    async def _find_open_transactions(self) -> Sequence[TransactionDescription]:
        listed = await self._admin.list_transactions(states=UNDECIDED_OR_COMPLETING)
        described = await self._admin.describe_transactions(tuple(listed))
        return [one for one in described.values() if not isinstance(one, KafkaError)]

    async def _read_groups(self) -> Sequence[GroupSurvey]:
        """Each group twice, some seconds apart."""
        listed = sorted(await self._admin.list_groups())
        if len(listed) > MOST_GROUPS:
            self._unchecked.append(f"{len(listed) - MOST_GROUPS} groups of {len(listed)}")
        names = listed[:MOST_GROUPS]
        if not names:
            return ()
        first = await read_groups(self._admin, names)
        await self._clock.sleep(self._group_seconds)
        second = await read_groups(self._admin, names)
        return [
            GroupSurvey(
                group_id=name, first=first[name], second=second[name], seconds=self._group_seconds
            )
            for name in names
            if name in first and name in second
        ]


def _partitions_of(topics: Mapping[str, TopicMetadata]) -> list[TopicPartition]:
    def each() -> Iterator[TopicPartition]:
        for name, topic in sorted(topics.items()):
            for partition in topic.partitions:
                if partition.leader_id >= 0:
                    yield TopicPartition(name, partition.index)

    return list(each())[:MOST_PARTITIONS]


def _broker_survey(
    broker: Broker,
    unreachable: Mapping[int, str | None],
    configs: Mapping[int, Mapping[str, str]],
    log_dirs: Mapping[int, LogDirs],
    metrics: Mapping[int, ReadMetrics],
) -> BrokerSurvey:
    told = metrics.get(broker.id)
    return BrokerSurvey(
        broker=broker,
        unreachable=unreachable[broker.id],
        log_dirs=log_dirs.get(broker.id, ()),
        configs=configs.get(broker.id, {}),
        metrics=None if told is None else told.values,
        clock_ahead_seconds=None if told is None else told.clock_ahead_seconds,
    )
