"""How far planned moves are, and the throttle that was set for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from moldau.cli.reassign.plan_file import Plan
from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import (
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    Reassignment,
    TopicMetadata,
)
from moldau.errors import KafkaError
from moldau.model import TopicPartition

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
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
    """Take away what `set_throttle` has set, on every broker there is."""
    cluster = await admin.describe_cluster()
    changes = {
        ConfigResource.broker(one.id): [_removal(name) for name in _RATES]
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
