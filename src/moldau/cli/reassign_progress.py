"""How far planned moves are, and the throttle that was set for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from moldau.cli.reassign import Plan, PlannedDirs
from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    LogDirDescription,
    Reassignment,
    TopicMetadata,
)
from moldau.errors import KafkaError, ReplicaNotAvailableError
from moldau.model import TopicPartition

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADERS = "leader.replication.throttled.replicas"
_FOLLOWERS = "follower.replication.throttled.replicas"


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
