"""How far positions are behind the ends of their partitions, in records and in seconds. A shell.

The age of the oldest record that is still to be read is in that record: one fetch brings it, with
the batch around it, for each partition that has something left to read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from moldau.client.admin_logs import LogAdmin
from moldau.client.admin_values import ListedOffset, OffsetSpec
from moldau.client.cluster_client import ClusterClient
from moldau.client.fetching import FetchedPartition, FetchPosition, FetchSettings, fetch
from moldau.client.group_values import PartitionLag
from moldau.client.rules.fetched import decode_fetched
from moldau.errors import KafkaError, OffsetOutOfRangeError
from moldau.model import TopicPartition

# A fetch brings at least one whole batch, however small the limits are (KIP-74): the record is in
# it, and nothing more than needed is sent. Only the first partition of a request has this right, so
# each partition is asked for by itself.
_ONE_BATCH = FetchSettings(max_wait_ms=0, min_bytes=0, max_bytes=1, partition_max_bytes=1)


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
    while position < end_offset:
        answer = await _fetch_batch(client, partition, position)
        if isinstance(answer.error, OffsetOutOfRangeError):
            position = await _find_start(client, partition, position)
            continue
        records, next_offset = decode_fetched(answer.data, position)
        if records:
            timestamp_ms = records[0].timestamp_ms
            return None if timestamp_ms < 0 else _age(client, timestamp_ms)
        if next_offset == position:
            return None  # nothing came where something should be: the log has just been cut
        position = next_offset  # a transaction's marker, or what compaction has left of a batch
    return 0.0


def _age(client: ClusterClient, timestamp_ms: int) -> float:
    return max(0, client.clock.now_ms() - timestamp_ms) / 1000


async def _fetch_batch(
    client: ClusterClient, partition: TopicPartition, offset: int
) -> FetchedPartition:
    async def ask() -> FetchedPartition:
        connection = await client.connect_to_leader(partition)
        metadata = client.metadata.current
        position = FetchPosition(
            partition, offset, metadata.require_partition(partition).leader_epoch
        )
        topic_ids = {partition.topic: metadata.require_topic(partition.topic).topic_id}
        (answer,) = await fetch(connection, (position,), topic_ids, _ONE_BATCH)
        if answer.error is not None and not isinstance(answer.error, OffsetOutOfRangeError):
            raise answer.error
        return answer

    return await client.retry(ask, refresh=(partition.topic,))


async def _find_start(client: ClusterClient, partition: TopicPartition, position: int) -> int:
    """Where the log begins, after an offset turned out to be gone."""
    start = (await _list_offsets(client, (partition,), OffsetSpec.EARLIEST))[partition]
    if isinstance(start, KafkaError):
        raise start
    if start.offset <= position:
        raise OffsetOutOfRangeError(f"{partition} does not reach offset {position} any more")
    return start.offset


async def _list_offsets(
    client: ClusterClient, partitions: Collection[TopicPartition], spec: OffsetSpec
) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
    return await LogAdmin(client).list_offsets(dict.fromkeys(partitions, spec.value))
