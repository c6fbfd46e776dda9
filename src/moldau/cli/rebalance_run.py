"""Reads what brokers carry, and carries out a plan for them: moves, waiting, leaders."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import NamedTuple

from moldau.cli.output import note
from moldau.cli.reassign.progress import read_placement, remove_throttle, set_throttle
from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import TopicMetadata
from moldau.client.rules.rebalance_plan import ClusterLoad, Replicas
from moldau.errors import ConfigurationError, ElectionNotNeededError, KafkaError
from moldau.model import TopicPartition

_LOOK_SECONDS = 1.0
_TOLD_EVERY = 10


class ReadLoad(NamedTuple):
    """The load, with moves that are under way counted as done."""

    load: ClusterLoad
    is_moving: bool


async def read_load(
    admin: AsyncAdmin, leave: Collection[int], only: Collection[str] | None
) -> ReadLoad:
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
    replicas = {
        TopicPartition(topic.name, row.index): tuple(row.replicas)
        for topic in topics.values()
        if isinstance(topic, TopicMetadata) and (not only or topic.name in only)
        for row in topic.partitions
    }
    for key, under_way in moving.items():
        if key in replicas:
            replicas[key] = under_way.target
    sizes: dict[TopicPartition, float] = {}
    described = await admin.describe_log_dirs(sorted(racks))
    for directories in described.values():
        for directory in directories:
            if isinstance(directory, KafkaError):
                continue
            for one in directory.replicas:
                size = max(sizes.get(one.partition, 0.0), float(one.size_bytes))
                sizes[one.partition] = size
    load = ClusterLoad(replicas=replicas, loads=sizes, racks=racks, leave=frozenset(leave))
    return ReadLoad(load, bool(moving))


async def execute_plan(
    admin: AsyncAdmin, targets: Mapping[TopicPartition, Replicas], throttle: int | None
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
    await _wait_until_moved(admin)
    if throttle is not None or resumed:  # whoever began them may have set one
        placement = await read_placement(admin, {key.topic for key in moves})
        await remove_throttle(admin, moves, placement)
    for error in (await admin.elect_leaders()).values():
        if error is not None and not isinstance(error, ElectionNotNeededError):
            raise error
    note("done")


async def _wait_until_moved(admin: AsyncAdmin) -> None:
    looks = 0
    while moving := await admin.list_partition_reassignments():
        if looks % _TOLD_EVERY == 0:
            note(f"{len(moving)} partitions are being moved")
        looks += 1
        await asyncio.sleep(_LOOK_SECONDS)
