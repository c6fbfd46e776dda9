"""Reads what brokers carry, and carries out a plan for them: moves, waiting, leaders.

A cluster is read through the public protocol only, so that any that speaks Kafka's can be planned
for: sizes by DescribeLogDirs, offsets by ListOffsets. Traffic is what changes between two looks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from moldau.cli.output import note
from moldau.cli.reassign_progress import read_placement, remove_throttle, set_throttle
from moldau.client.admin import AsyncAdmin
from moldau.client.admin_values import ListedOffset, OffsetSpec, TopicMetadata
from moldau.client.rules.partition_traffic import LogReading, bytes_per_second
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
    admin: AsyncAdmin,
    leave: Collection[int],
    only: Collection[str] | None,
    sample_seconds: float,
) -> ReadLoad:
    """Without seconds to sample, sizes alone are read."""
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
    note(f"measuring the traffic of {len(partitions)} partitions for {seconds:g} s")
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
    starts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    sizes = await _read_sizes(admin, brokers)
    return {
        key: LogReading(
            start_offset=start.offset, end_offset=end.offset, size_bytes=sizes.get(key, 0)
        )
        for key, end in ends.items()
        if isinstance(end, ListedOffset) and isinstance(start := starts.get(key), ListedOffset)
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
            count = "1 partition is" if len(moving) == 1 else f"{len(moving)} partitions are"
            note(f"{count} being moved")
        looks += 1
        await asyncio.sleep(_LOOK_SECONDS)
