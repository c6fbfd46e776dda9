"""Moves of partitions: how far they are, their throttle, and a rebalance as a whole. A shell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import NamedTuple

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    LogDirDescription,
    OffsetSpec,
    Reassignment,
    TopicMetadata,
)
from moldau.errors import (
    ConfigurationError,
    ElectionNotNeededError,
    KafkaError,
    ReplicaNotAvailableError,
)
from moldau.model import TopicPartition
from moldau.ops.cluster_view import read_offsets
from moldau.ops.rules.rebalance_plan import ClusterLoad, LogReading, Replicas, bytes_per_second

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


Plan = Mapping[TopicPartition, tuple[int, ...]]
"""The replicas that each partition is to have, the preferred leader first."""

PlannedDirs = Mapping[tuple[int, TopicPartition], str]
"""The log directory that a replica is to be in, by its broker and partition."""


class MoveProgress(Enum):
    """Of one partition."""

    COMPLETE = "complete"
    MOVING = "moving"
    NOT_BEGUN = "not begun"
    MISSING = "no such partition"


Placement = Mapping[TopicPartition, tuple[int, ...]]


async def read_placement(admin: AsyncAdmin, topics: Iterable[str]) -> Placement:
    """The replicas of every partition of these topics, the preferred leader first."""
    found = await admin.describe_topics(sorted(set(topics)))
    return {
        TopicPartition(topic.name, row.index): tuple(row.replicas)
        for topic in found.values()
        if isinstance(topic, TopicMetadata)
        for row in topic.partitions
    }


def progress_of(
    key: TopicPartition,
    target: tuple[int, ...],
    placement: Placement,
    moving: Mapping[TopicPartition, Reassignment],
) -> MoveProgress:
    if key not in placement:
        return MoveProgress.MISSING
    if key in moving:
        return MoveProgress.MOVING if moving[key].target == target else MoveProgress.NOT_BEGUN
    return MoveProgress.COMPLETE if placement[key] == target else MoveProgress.NOT_BEGUN


async def choose_log_dirs(
    admin: AsyncAdmin, directories: PlannedDirs
) -> Mapping[TopicPartition, KafkaError]:
    """Have replicas moved to, or made in, these directories; returns what was refused.

    A broker that has no replica yet takes note of where it is to be.
    """
    if not directories:
        return {}
    answers = await admin.alter_replica_log_dirs(directories)
    return {
        key: error
        for (_, key), error in answers.items()
        if error is not None and not isinstance(error, ReplicaNotAvailableError)
    }


async def find_log_dir_moves(
    admin: AsyncAdmin, directories: PlannedDirs
) -> Mapping[TopicPartition, MoveProgress]:
    """Partitions of which a replica is not in its directory yet, and whether it is on its way."""
    if not directories:
        return {}
    described = await admin.describe_log_dirs({broker_id for broker_id, _ in directories})
    places = {
        (broker_id, one.partition, one.is_future): directory.path
        for broker_id, rows in described.items()
        for directory in rows
        if isinstance(directory, LogDirDescription)
        for one in directory.replicas
    }
    found: dict[TopicPartition, MoveProgress] = {}
    for (broker_id, key), path in directories.items():
        if places.get((broker_id, key, False)) == path:
            continue
        is_moving = places.get((broker_id, key, True)) == path
        if is_moving:
            found.setdefault(key, MoveProgress.MOVING)
        else:
            found[key] = MoveProgress.NOT_BEGUN
    return found


async def set_log_dirs_throttle(
    admin: AsyncAdmin, directories: PlannedDirs, bytes_per_second: int
) -> None:
    """Bound what the brokers of a plan move between their log directories."""
    change = ConfigChange(name=_LOG_DIRS_RATE, value=str(bytes_per_second))
    brokers = sorted({broker_id for broker_id, _ in directories})
    changes = {ConfigResource.broker(one): [change] for one in brokers}
    if changes:
        _raise_first(await admin.alter_configs(changes))


async def set_throttle(
    admin: AsyncAdmin, plan: Plan, placement: Placement, bytes_per_second: int
) -> None:
    """Bound what the moves of a plan may send and receive, on every broker that takes part."""
    rates = [ConfigChange(name=name, value=str(bytes_per_second)) for name in _RATES]
    changes = {ConfigResource.broker(one): rates for one in _brokers(plan, placement)}
    for topic in {key.topic for key in plan}:
        changes[ConfigResource.topic(topic)] = [
            ConfigChange(name=_LEADERS, value=_throttled(topic, placement, plan)),
            ConfigChange(name=_FOLLOWERS, value=_added(topic, placement, plan)),
        ]
    _raise_first(await admin.alter_configs(changes))


async def remove_throttle(admin: AsyncAdmin, plan: Plan, placement: Placement) -> None:
    """Take away what throttles have been set, on every broker there is."""
    cluster = await admin.describe_cluster()
    changes = {
        ConfigResource.broker(one.id): [_removal(name) for name in (*_RATES, _LOG_DIRS_RATE)]
        for one in cluster.brokers
    }
    for topic in {key.topic for key in plan if key in placement}:
        changes[ConfigResource.topic(topic)] = [_removal(_LEADERS), _removal(_FOLLOWERS)]
    _raise_first(await admin.alter_configs(changes))


def _brokers(plan: Plan, placement: Placement) -> list[int]:
    return sorted({one for key in plan for one in (*plan[key], *placement.get(key, ()))})


def _throttled(topic: str, placement: Placement, plan: Plan) -> str:
    keys = sorted(key for key in plan if key.topic == topic)
    return ",".join(f"{key.partition}:{one}" for key in keys for one in placement.get(key, ()))


def _added(topic: str, placement: Placement, plan: Plan) -> str:
    keys = sorted(key for key in plan if key.topic == topic)
    return ",".join(
        f"{key.partition}:{one}"
        for key in keys
        for one in plan[key]
        if one not in placement.get(key, ())
    )


def _removal(name: str) -> ConfigChange:
    return ConfigChange(name=name, operation=ConfigOperation.DELETE)


def _raise_first(answers: Mapping[ConfigResource, KafkaError | None]) -> None:
    for error in answers.values():
        if error is not None:
            raise error


# A cluster is read through the public protocol only, so that any that speaks Kafka's can be planned
# for: sizes by DescribeLogDirs, offsets by ListOffsets. Traffic is what changes between two looks.


_LOOK_SECONDS = 1.0
_TOLD_EVERY = 10


class ReadLoad(NamedTuple):
    """The load, with moves that are under way counted as done."""

    load: ClusterLoad
    is_moving: bool


async def read_load(
    admin: AsyncAdmin,
    leave: Collection[int],
    only: Collection[str] | None,
    sample_seconds: float,
    say: Callable[[str], None],
) -> ReadLoad:
    """Without seconds to sample, sizes alone are read. `say` gets messages about progress."""
    cluster = await admin.describe_cluster()
    racks = {broker.id: broker.rack for broker in cluster.brokers}
    unknown = sorted(set(leave) - racks.keys())
    if unknown:
        raise ConfigurationError(f"there is no broker {unknown[0]} that could be left")
    topics = await admin.list_topics()
    missing = sorted(set(only or ()) - topics.keys())
    if missing:
        raise ConfigurationError(f"there is no topic {missing[0]!r}")
    moving = await admin.list_partition_reassignments()
    rows = {
        TopicPartition(topic.name, row.index): row
        for topic in topics.values()
        if isinstance(topic, TopicMetadata) and (not only or topic.name in only)
        for row in topic.partitions
    }
    replicas = {key: tuple(row.replicas) for key, row in rows.items()}
    for key, under_way in moving.items():
        if key in replicas:
            replicas[key] = under_way.target
    sizes = await _read_sizes(admin, racks)
    rates: Mapping[TopicPartition, int] = {}
    if sample_seconds > 0:
        led = [key for key, row in rows.items() if row.leader_id in racks]  # others get nothing
        say(f"measuring the traffic of {len(led)} partitions for {sample_seconds:g} s")
        rates = await _measure_traffic(admin, led, racks, sample_seconds)
    load = ClusterLoad(
        replicas=replicas, sizes=sizes, rates=rates, racks=racks, leave=frozenset(leave)
    )
    return ReadLoad(load, bool(moving))


async def _measure_traffic(
    admin: AsyncAdmin,
    partitions: Collection[TopicPartition],
    brokers: Collection[int],
    seconds: float,
) -> dict[TopicPartition, int]:
    """Bytes per second that are written to each."""

    began, before = time.monotonic(), await _read_logs(admin, partitions, brokers)
    await asyncio.sleep(seconds)
    ended, after = time.monotonic(), await _read_logs(admin, partitions, brokers)
    return {
        key: bytes_per_second(before[key], after[key], ended - began)
        for key in before.keys() & after.keys()
    }


async def _read_logs(
    admin: AsyncAdmin, partitions: Collection[TopicPartition], brokers: Collection[int]
) -> dict[TopicPartition, LogReading]:
    starts = await read_offsets(admin, partitions, OffsetSpec.EARLIEST)
    ends = await read_offsets(admin, partitions, OffsetSpec.LATEST)
    sizes = await _read_sizes(admin, brokers)
    return {
        key: LogReading(start_offset=starts[key], end_offset=end, size_bytes=sizes.get(key, 0))
        for key, end in ends.items()
        if key in starts
    }


async def _read_sizes(admin: AsyncAdmin, brokers: Collection[int]) -> dict[TopicPartition, int]:
    """Of the largest replica of each: others may be behind."""
    sizes: dict[TopicPartition, int] = {}
    described = await admin.describe_log_dirs(sorted(brokers))
    for directories in described.values():
        for directory in directories:
            if isinstance(directory, KafkaError):
                continue
            for one in directory.replicas:
                sizes[one.partition] = max(sizes.get(one.partition, 0), one.size_bytes)
    return sizes


async def execute_plan(
    admin: AsyncAdmin,
    targets: Mapping[TopicPartition, Replicas],
    throttle: int | None,
    say: Callable[[str], None],
) -> None:
    """Begin the moves, wait until all there are have ended, and let preferred leaders lead."""
    resumed = await admin.list_partition_reassignments()
    moves = {**{key: one.target for key, one in resumed.items()}, **targets}
    if throttle is not None:
        placement = await read_placement(admin, {key.topic for key in moves})
        await set_throttle(admin, moves, placement, throttle)
    if targets:
        answers = await admin.alter_partition_reassignments(targets)
        for error in answers.values():
            if error is not None:
                raise error
    await _wait_until_moved(admin, say)
    if throttle is not None or resumed:  # whoever began them may have set one
        placement = await read_placement(admin, {key.topic for key in moves})
        await remove_throttle(admin, moves, placement)
    for error in (await admin.elect_leaders()).values():
        if error is not None and not isinstance(error, ElectionNotNeededError):
            raise error
    say("done")


async def _wait_until_moved(admin: AsyncAdmin, say: Callable[[str], None]) -> None:
    looks = 0
    while moving := await admin.list_partition_reassignments():
        if looks % _TOLD_EVERY == 0:
            count = "1 partition is" if len(moving) == 1 else f"{len(moving)} partitions are"
            say(f"{count} being moved")
        looks += 1
        await asyncio.sleep(_LOOK_SECONDS)
