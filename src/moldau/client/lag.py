"""How far positions are behind the ends of their partitions, in records and in seconds. A shell.

The age of the oldest record that is still to be read is in that record: one fetch brings it, with
the batch around it, for each partition that has something left to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from contextlib import aclosing

from moldau.client.admin_logs import LogAdmin
from moldau.client.admin_values import PartitionLag
from moldau.client.cluster_client import ClusterClient
from moldau.client.offset_values import ListedOffset, OffsetSpec
from moldau.client.range_fetch import RangeSettings, fetch_range
from moldau.client.rules.fetched_batches import FetchedBatch, decode_batch
from moldau.client.rules.read_bounds import OffsetRange
from moldau.errors import KafkaError, OffsetOutOfRangeError
from moldau.model import TopicPartition

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
    # A position may be past the end: of a topic made anew, or after an unclean election.
    records = max(0, end.offset - position)
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
