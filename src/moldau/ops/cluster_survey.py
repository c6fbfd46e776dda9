"""Reads what the checks of a cluster need to know. A shell; `rules.checks` judges.

Each question may fail by itself: then the survey says what could not be checked, and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    SHARE_TYPE,
    UNDECIDED_OR_COMPLETING,
    Broker,
    ConfigResource,
    GroupDescription,
    GroupOffset,
    HangingTransaction,
    ListedOffset,
    LogDirDescription,
    OffsetSpec,
    Reassignment,
    ShareGroupOffset,
    TopicMetadata,
    TransactionDescription,
)
from moldau.clock import Clock
from moldau.errors import ClientError, KafkaError, MoldauError
from moldau.model import TopicPartition
from moldau.ops.metrics_ports import (
    ReadMetrics,
    foreign_brokers,
    ports_of,
    read_ports,
)
from moldau.ops.rules.checks import (
    BrokerSurvey,
    ClusterSurvey,
    Finding,
    GroupSnapshot,
    GroupSurvey,
    Severity,
    check_availability,
    check_brokers,
    check_groups,
    check_partitions,
    name_brokers,
    sort_findings,
)

# Looks at a cluster for `moldau doctor`: asks what the checks want to know. A shell.
#
# Each question may fail by itself: then the survey says what could not be checked, and goes on.


Q = TypeVar("Q")
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


def find_all(survey: ClusterSurvey) -> list[Finding]:
    """Everything that the checks find."""
    checks = (check_brokers, check_partitions, check_groups)
    return sort_findings(finding for check in checks for finding in check(survey))


def find_what_is_wrong(survey: ClusterSurvey) -> list[Finding]:
    """What keeps a cluster from serving, or costs it a copy: what `moldau cluster health` asks."""
    critical = (one for one in check_brokers(survey) if one.severity is Severity.CRITICAL)
    return sort_findings([*critical, *check_availability(survey)])


class SurveyReader:
    """One look; `take` once, all of it or the vital signs."""

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

    async def take(self) -> ClusterSurvey:
        admin = self._admin
        cluster = await admin.describe_cluster()
        topics = await admin.list_topics()
        unreachable = await self._try_addresses(cluster.brokers)
        there = [broker for broker in cluster.brokers if unreachable[broker.id] is None]
        configs: Mapping[int, Mapping[str, str]] = await self._ask(
            "settings of brokers", self._broker_configs, there, {}
        )
        log_dirs: Mapping[int, LogDirs] = await self._ask("disks", self._log_dirs, there, {})
        urls = self._metrics_urls or ports_of(configs, cluster.brokers)
        metrics = {one.broker_id: one for one in await read_ports(urls)}
        self._note_silent(cluster.brokers, metrics, foreign_brokers(configs))
        partitions = _partitions_of(topics)
        topic_configs: Mapping[str, Mapping[str, str]] = await self._ask(
            "settings of topics", self._topic_configs, tuple(topics), {}
        )
        max_timestamps: Mapping[TopicPartition, int] = await self._ask(
            "timestamps", self._max_timestamps, partitions, {}
        )
        reassignments: Mapping[TopicPartition, Reassignment] = await self._ask(
            "reassignments", self._reassignments, None, {}
        )
        hanging: Sequence[HangingTransaction] = await self._ask(
            "hanging transactions", self._hanging, partitions, ()
        )
        open_transactions: Sequence[TransactionDescription] = await self._ask(
            "open transactions", self._open_transactions, None, ()
        )
        groups: Sequence[GroupSurvey] = await self._ask("groups", self._groups, None, ())
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

    async def take_vital_signs(self) -> ClusterSurvey:
        """Who answers, what is led and in sync, and which disks work: a moment's look."""
        admin = self._admin
        cluster = await admin.describe_cluster()
        topics = await admin.list_topics()
        answers = await admin.describe_versions([broker.id for broker in cluster.brokers])
        unreachable = {
            broker_id: str(answer) if isinstance(answer, ClientError) else None
            for broker_id, answer in answers.items()
        }
        there = [broker for broker in cluster.brokers if unreachable[broker.id] is None]
        log_dirs: Mapping[int, LogDirs] = await self._ask("disks", self._log_dirs, there, {})
        return ClusterSurvey(
            now_ms=self._clock.now_ms(),
            controller_id=cluster.controller_id,
            brokers={
                broker.id: _broker_survey(broker, unreachable, {}, log_dirs, {})
                for broker in cluster.brokers
            },
            topics=topics,
            topic_configs=await self._ask(
                "settings of topics", self._topic_configs, tuple(topics), {}
            ),
            unchecked=tuple(self._unchecked),
        )

    async def _ask(self, what: str, ask: Callable[[Q], Awaitable[T]], about: Q, otherwise: T) -> T:
        try:
            return await ask(about)
        except (MoldauError, OSError) as error:
            self._unchecked.append(f"{what}: {error}")
            return otherwise

    def _note_silent(
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

    async def _broker_configs(self, brokers: Sequence[Broker]) -> Mapping[int, Mapping[str, str]]:
        resources = {broker.id: ConfigResource.broker(broker.id) for broker in brokers}
        described = await self._admin.describe_configs(
            list(resources.values()), names=_BROKER_OPTIONS
        )
        return {
            broker_id: {entry.name: entry.value or "" for entry in found}
            for broker_id, resource in resources.items()
            if not isinstance(found := described[resource], KafkaError)
        }

    async def _log_dirs(self, brokers: Sequence[Broker]) -> Mapping[int, LogDirs]:
        return await self._admin.describe_log_dirs([broker.id for broker in brokers])

    async def _topic_configs(self, names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
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

    async def _max_timestamps(
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

    async def _reassignments(self, about: None) -> Mapping[TopicPartition, Reassignment]:
        return await self._admin.list_partition_reassignments()

    async def _hanging(
        self, partitions: Collection[TopicPartition]
    ) -> Sequence[HangingTransaction]:
        return await self._admin.find_hanging_transactions(
            partitions, older_than_ms=_HANGING_MS, now_ms=self._clock.now_ms()
        )

    async def _open_transactions(self, about: None) -> Sequence[TransactionDescription]:
        listed = await self._admin.list_transactions(states=UNDECIDED_OR_COMPLETING)
        described = await self._admin.describe_transactions(tuple(listed))
        return [one for one in described.values() if not isinstance(one, KafkaError)]

    # Groups

    async def _groups(self, about: None) -> Sequence[GroupSurvey]:
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


async def read_groups(admin: AsyncAdmin, names: Sequence[str]) -> Mapping[str, GroupSnapshot]:
    """Those that can be described."""
    described = await admin.describe_groups(names)
    committed: dict[str, Mapping[TopicPartition, int]] = {}
    unfinished: dict[str, Mapping[TopicPartition, int]] = {}  # of share groups
    for name in names:
        group = described.get(name)
        with contextlib.suppress(KafkaError):
            if isinstance(group, GroupDescription) and group.type == SHARE_TYPE:
                found = (await admin.list_share_group_offsets(name)).items()
                known = {one: at for one, at in found if isinstance(at, ShareGroupOffset)}
                committed[name] = _starts_of(known)
                unfinished[name] = {one: at.lag for one, at in known.items() if at.lag is not None}
                continue
            offsets = await admin.list_group_offsets(name)
            committed[name] = {
                one: at.offset for one, at in offsets.items() if isinstance(at, GroupOffset)
            }
    wanted = {one for offsets in committed.values() for one in offsets}
    listed = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST.value))
    ends = {one: end.offset for one, end in listed.items() if isinstance(end, ListedOffset)}
    return {
        name: _group_look(group, committed.get(name, {}), ends, unfinished.get(name))
        for name, group in described.items()
        if not isinstance(group, KafkaError)
    }


def _starts_of(known: Mapping[TopicPartition, ShareGroupOffset]) -> Mapping[TopicPartition, int]:
    """Of a share group: what is before them is done with."""
    return {one: at.start_offset for one, at in known.items() if at.start_offset is not None}


def _group_look(
    group: GroupDescription,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    unfinished: Mapping[TopicPartition, int] | None,
) -> GroupSnapshot:
    return GroupSnapshot(
        state=group.state,
        members=frozenset(member.member_id for member in group.members),
        idle_members=sum(not member.assignment for member in group.members),
        committed=committed,
        ends={one: ends[one] for one in committed if one in ends},
        unfinished=unfinished,
    )
