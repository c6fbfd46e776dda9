"""Where groups are: how far behind, and where a reset would put them. A shell.

The age of the oldest record that is still to be read is in that record: one fetch brings it, with
the batch around it, for each partition that has something left to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from moldau.client.admin.partitions import LogAdmin
from moldau.client.admin.values import PartitionLag
from moldau.client.cluster import ClusterClient
from moldau.client.consumer.rules.fetch_buffer import FetchedBatch, decode_batch
from moldau.client.range_fetch import RangeSettings, fetch_range
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.offsets import (
    AtTime,
    Ground,
    ListedOffset,
    OffsetRange,
    Offsets,
    OffsetSpec,
    PlannedReset,
    Start,
    Target,
    TopicChoice,
    plan_reset,
)
from moldau.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicError
from moldau.model import TopicPartition, records_behind

if TYPE_CHECKING:
    from moldau.client.admin.client import AsyncAdmin


# A fetch brings at least one whole batch, however small the limits are (KIP-74): the record is in
# it, and nothing more than needed is sent.
_ONE_BATCH = RangeSettings(fetch_bytes=1, max_wait_ms=0, stall_seconds=0.0)


async def measure_lag(
    client: ClusterClient, positions: Mapping[TopicPartition, int | None]
) -> Mapping[TopicPartition, PartitionLag | KafkaError]:
    if not positions:
        return {}
    ends = await _find_ends(client, positions)
    work = [_measure(client, one, position, ends[one]) for one, position in positions.items()]
    return dict(zip(positions, await asyncio.gather(*work), strict=True))


async def _find_ends(
    client: ClusterClient, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
    """Groups remember topics that are gone: those must not spoil the answer about the others."""
    metadata = await client.metadata.refresh({partition.topic for partition in partitions})
    ends: dict[TopicPartition, ListedOffset | KafkaError] = {}
    led: list[TopicPartition] = []
    for partition in partitions:
        try:
            metadata.require_leader(partition)
            led.append(partition)
        except KafkaError as error:
            ends[partition] = error
    ends.update(await _list_offsets(client, led, OffsetSpec.LATEST))
    return ends


async def _measure(
    client: ClusterClient,
    partition: TopicPartition,
    position: int | None,
    end: ListedOffset | KafkaError,
) -> PartitionLag | KafkaError:
    if isinstance(end, KafkaError):
        return end
    if position is None:
        return PartitionLag(log_end_offset=end.offset)
    try:
        seconds = await _find_age_of_oldest(client, partition, position, end.offset)
    except KafkaError as error:
        return error
    records = records_behind(position, end.offset)
    return PartitionLag(log_end_offset=end.offset, records=records, seconds=seconds)


async def _find_age_of_oldest(
    client: ClusterClient, partition: TopicPartition, position: int, end_offset: int
) -> float | None:
    """Seconds since the first record between two offsets; 0 when there is none, None if unknown."""
    wanted = OffsetRange(position, end_offset)
    try:
        async with aclosing(fetch_range(client, partition, wanted, _ONE_BATCH)) as answers:
            async for arrived in answers:
                for batch in arrived.batches:
                    found = FetchedBatch(batch.data, batch.header)
                    records = decode_batch(found, partition, batch.from_offset, check_crc=False)
                    if records:
                        return _age(client, records[0].timestamp_ms)
    except OffsetOutOfRangeError:
        return None  # nothing came where something should be: the log has just been cut
    return 0.0


def _age(client: ClusterClient, timestamp_ms: int) -> float | None:
    if timestamp_ms < 0:
        return None
    return max(0, client.clock.now_ms() - timestamp_ms) / 1000


async def _list_offsets(
    client: ClusterClient, partitions: Collection[TopicPartition], spec: OffsetSpec
) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
    return await LogAdmin(client).list_offsets(dict.fromkeys(partitions, spec.value))


# Where a reset puts a group, or a trim the beginning of a log: asks the cluster and plans, no more


async def plan_group_reset(
    admin: AsyncAdmin,
    group_id: str,
    choices: Sequence[TopicChoice] | None,
    target: Target,
    *,
    is_shared: bool = False,
) -> Sequence[PlannedReset]:
    """Ask where things are, and plan."""
    committed = await _find_committed(admin, group_id, is_shared=is_shared)
    partitions = await _find_partitions(admin, choices, committed)
    return await _plan_reset(admin, partitions, target, committed)


async def plan_trim(
    admin: AsyncAdmin, choices: Sequence[TopicChoice], target: Start
) -> Sequence[PlannedReset]:
    """Where logs would begin after the records before a place are deleted; `before` is where they
    begin now."""
    partitions = await _find_partitions(admin, choices, {})
    return await _plan_reset(admin, partitions, target, None)


async def _plan_reset(
    admin: AsyncAdmin,
    partitions: Sequence[TopicPartition],
    target: Target,
    committed: Offsets | None,
) -> Sequence[PlannedReset]:
    at_time: Offsets = {}
    if isinstance(target, AtTime):
        at_time = await _list_for_reset(admin, partitions, target.timestamp_ms)
    earliest = await _list_for_reset(admin, partitions, OffsetSpec.EARLIEST)
    ground = Ground(
        committed=earliest if committed is None else committed,
        earliest=earliest,
        latest=await _list_for_reset(admin, partitions, OffsetSpec.LATEST),
        at_time=at_time,
    )
    return plan_reset(target, partitions, ground)


async def _find_committed(admin: AsyncAdmin, group_id: str, *, is_shared: bool) -> Offsets:
    """Where the group is; of a share group, where what is not done with begins."""
    if is_shared:
        shared = await admin.list_share_group_offsets(group_id)
        return {
            partition: row.start_offset
            for partition, row in shared.items()
            if not isinstance(row, KafkaError) and row.start_offset is not None
        }
    found = await admin.list_group_offsets(group_id)
    return {
        partition: row.offset for partition, row in found.items() if not isinstance(row, KafkaError)
    }


async def _find_partitions(
    admin: AsyncAdmin, choices: Sequence[TopicChoice] | None, committed: Offsets
) -> Sequence[TopicPartition]:
    if choices is None:
        return sorted(committed)
    topics = await admin.describe_topics({choice.topic for choice in choices})
    found: set[TopicPartition] = set()
    for choice in choices:
        topic = topics[choice.topic]
        if isinstance(topic, KafkaError):
            raise topic
        found.update(_partitions_of(topic, choice))
    return sorted(found)


def _partitions_of(topic: TopicMetadata, choice: TopicChoice) -> Collection[TopicPartition]:
    count = len(topic.partitions)
    for index in choice.partitions:
        if index >= count:
            raise UnknownTopicError(
                f"topic {topic.name!r} has no partition {index}; it has {count}, counted from 0"
            )
    return [TopicPartition(topic.name, index) for index in choice.partitions or range(count)]


async def _list_for_reset(
    admin: AsyncAdmin, partitions: Sequence[TopicPartition], question: int
) -> Offsets:
    answers = await admin.list_offsets(dict.fromkeys(partitions, int(question)))
    offsets: dict[TopicPartition, int] = {}
    for partition, answer in answers.items():
        if isinstance(answer, KafkaError):
            raise answer
        offsets[partition] = answer.offset
    return offsets
