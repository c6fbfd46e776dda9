"""Reads the facts that an explanation rests on. A shell; `rules` explain.

By the public protocol. The log end of a replica is asked for as Kafka's tools do: ListOffsets
with the replica id -2, which every replica answers for itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import (
    SHARE_TYPE,
    ActiveProducer,
    ConfigResource,
    ListedOffset,
    OffsetSpec,
    TransactionDescription,
)
from moldau.client.cluster import ClusterClient
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord, FetchedBatch, decode_batch
from moldau.client.range_fetch import RangeSettings, fetch_answer, fetch_range
from moldau.client.rules.cluster_metadata import PartitionMetadata
from moldau.client.rules.offsets import OffsetRange
from moldau.clock import Clock
from moldau.errors import (
    ClusterAuthorizationError,
    ErrorCode,
    KafkaError,
    MoldauError,
    UnknownTopicError,
)
from moldau.model import LATEST_TIMESTAMP, NO_BROKER, NO_LEADER_EPOCH, TopicPartition
from moldau.ops.group_view import read_groups
from moldau.ops.metrics_ports import Events, MetricsPorts, read_history, read_shares
from moldau.ops.rules.explanations import GroupFacts, TopicFacts
from moldau.ops.rules.partition_explanations import FoundRecord, PartitionFacts, RecordFacts
from moldau.records.batch_header import BatchHeader, read_header
from moldau.wire.apis import LIST_OFFSETS

if TYPE_CHECKING:
    from kio.schema.list_offsets.v10.response import ListOffsetsResponse

_ANY_REPLICA: Final = -2
_ONE_BATCH = RangeSettings(fetch_bytes=1, max_wait_ms=0, stall_seconds=0.0)
_MOST_SEARCHED_BYTES: Final = 64 << 20
_LIST_DROPPABLE = frozenset({"current_leader_epoch", "isolation_level", "timeout"})
_CHECK_OPTION = "log.retention.check.interval.ms"


class FactReader:
    """Of one cluster. `ports` are for what brokers remember."""

    def __init__(
        self, client: ClusterClient, admin: AsyncAdmin, clock: Clock, ports: MetricsPorts
    ) -> None:
        self._client = client
        self._admin = admin
        self._clock = clock
        self._urls = ports.urls
        self._is_foreign = ports.is_foreign

    async def about_topic(self, name: str) -> TopicFacts:
        metadata = await self._client.metadata.refresh((name,))
        topic = metadata.require_topic(name)
        described = await self._admin.describe_configs([ConfigResource.topic(name)])
        entries = described[ConfigResource.topic(name)]
        if isinstance(entries, KafkaError):
            raise entries
        return TopicFacts(
            topic=name,
            entries=entries,
            partitions=len(topic.partitions),
            replicas=min((len(one.replicas) for one in topic.partitions), default=0),
            brokers=len(metadata.brokers),
            retention_check_ms=await self._retention_check_ms(min(metadata.brokers)),
        )

    async def _retention_check_ms(self, broker_id: int) -> int | None:
        resource = ConfigResource.broker(broker_id)
        described = (await self._admin.describe_configs([resource], names=[_CHECK_OPTION]))[
            resource
        ]
        if isinstance(described, KafkaError):
            return None
        values = [one.value or "" for one in described if one.name == _CHECK_OPTION]
        return int(values[0]) if values and values[0].isdecimal() else None

    # A partition

    async def about_partition(self, partition: TopicPartition) -> PartitionFacts:
        metadata = await self._client.metadata.refresh((partition.topic,))
        state = _require(metadata.require_topic(partition.topic).partitions, partition)
        facts = PartitionFacts(
            topic=partition.topic,
            partition=partition.partition,
            now_ms=self._clock.now_ms(),
            leader=state.leader_id,
            replicas=state.replicas,
            in_sync=state.in_sync_replicas,
            living=tuple(metadata.brokers),
            configs=await self._configs_of(partition.topic),
            history=await self._history_of(partition) or (),
        )
        if state.leader_id == NO_BROKER:
            return facts
        start, stable, high_watermark = await self._bounds(partition)
        ends = await self._log_ends(partition, state, set(metadata.brokers))
        producers = await self._producers_of(partition)
        return replace(
            facts,
            log_start=start,
            last_stable=stable,
            high_watermark=high_watermark,
            log_ends=ends,
            producers=producers,
            transactions=await self._transactions_of(producers),
            first_timestamp_ms=await self._first_timestamp(partition, start, high_watermark),
            max_timestamp_ms=await self._max_timestamp(partition),
            size_bytes=await self._size_of(partition, state.leader_id),
        )

    async def _configs_of(self, topic: str) -> Mapping[str, str]:
        resource = ConfigResource.topic(topic)
        described = (await self._admin.describe_configs([resource]))[resource]
        if isinstance(described, KafkaError):
            return {}
        return {one.name: one.value or "" for one in described}

    async def _history_of(self, partition: TopicPartition) -> Events | None:
        return await read_history(self._urls, subject=str(partition)) if self._urls else None

    async def _bounds(self, partition: TopicPartition) -> tuple[int, int, int]:
        """Log start, last stable offset, high watermark."""
        ask = self._admin.list_offsets
        answers = await asyncio.gather(
            ask({partition: OffsetSpec.EARLIEST.value}),
            ask({partition: OffsetSpec.LATEST.value}, read_committed=True),
            ask({partition: OffsetSpec.LATEST.value}),
        )
        start, stable, end = (_offset_of(answer[partition]) for answer in answers)
        return start, stable, end

    async def _log_ends(
        self, partition: TopicPartition, state: PartitionMetadata, living: set[int]
    ) -> Mapping[int, int]:
        brokers = [broker for broker in state.replicas if broker in living]
        told = await asyncio.gather(*(self._log_end(partition, broker) for broker in brokers))
        return {broker: end for broker, end in zip(brokers, told, strict=True) if end is not None}

    async def _log_end(self, partition: TopicPartition, broker: int) -> int | None:
        row = {
            "partition_index": partition.partition,
            "current_leader_epoch": NO_LEADER_EPOCH,
            "timestamp": LATEST_TIMESTAMP,
        }
        values = {
            "replica_id": _ANY_REPLICA,
            "isolation_level": 0,
            "topics": [{"name": partition.topic, "partitions": [row]}],
            "timeout": 5000,
        }
        try:
            connection = await self._client.connect_to_broker(broker)
            answer = await connection.call(LIST_OFFSETS, values, _LIST_DROPPABLE)
        except (MoldauError, OSError):
            return None
        (topic,) = cast("ListOffsetsResponse", answer).topics
        (found,) = topic.partitions
        return found.offset if found.error_code is ErrorCode.none else None

    async def _producers_of(self, partition: TopicPartition) -> tuple[ActiveProducer, ...]:
        found = (await self._admin.describe_producers([partition]))[partition]
        return () if isinstance(found, KafkaError) else found

    async def _transactions_of(
        self, producers: Sequence[ActiveProducer]
    ) -> Mapping[int, TransactionDescription]:
        ids = {one.producer_id for one in producers if one.transaction_start_offset is not None}
        if not ids:
            return {}
        listed = await self._admin.list_transactions(producer_ids=ids)
        described = await self._admin.describe_transactions(tuple(listed))
        return {
            one.producer_id: one for one in described.values() if not isinstance(one, KafkaError)
        }

    async def _max_timestamp(self, partition: TopicPartition) -> int | None:
        asked = {partition: OffsetSpec.MAX_TIMESTAMP.value}
        found = (await self._admin.list_offsets(asked))[partition]
        return found.timestamp_ms if isinstance(found, ListedOffset) else None

    async def _first_timestamp(self, partition: TopicPartition, start: int, end: int) -> int | None:
        if start >= end:
            return None
        answer = await fetch_answer(self._client, partition, start, _ONE_BATCH)
        return read_header(answer.records).base_timestamp if len(answer.records) else None

    async def _size_of(self, partition: TopicPartition, leader: int) -> int | None:
        try:
            described = await self._admin.describe_log_dirs([leader])
        except ClusterAuthorizationError:  # not everybody may know
            return None
        for one in described[leader]:
            if not isinstance(one, KafkaError):
                for replica in one.replicas:
                    if replica.partition == partition:
                        return replica.size_bytes
        return None

    # A group

    async def about_group(self, name: str, seconds: float) -> GroupFacts:
        found = (await self._admin.describe_groups([name]))[name]
        if isinstance(found, KafkaError):
            raise found
        first = await read_groups(self._admin, [name])
        await self._clock.sleep(seconds)
        second = await read_groups(self._admin, [name])
        asked = dict.fromkeys(second[name].committed, OffsetSpec.LATEST.value)
        stable = await self._admin.list_offsets(asked, read_committed=True)
        history = None
        if self._urls:
            history = await read_history(self._urls, kind="rebalance", subject=name)
        deliveries = None
        if found.type == SHARE_TYPE and self._urls:
            deliveries = await read_shares(self._urls, name)
        return GroupFacts(
            group=found,
            first=first[name],
            second=second[name],
            seconds=seconds,
            held_back={
                one: at.offset
                for one, at in stable.items()
                if isinstance(at, ListedOffset) and at.offset < second[name].ends.get(one, 0)
            },
            history=history,
            deliveries=deliveries,
            is_foreign=self._is_foreign,
        )

    # A record

    async def about_record(self, partition: TopicPartition, offset: int) -> RecordFacts:
        metadata = await self._client.metadata.refresh((partition.topic,))
        state = _require(metadata.require_topic(partition.topic).partitions, partition)
        start, stable, high_watermark = await self._bounds(partition)
        end = await self._log_end(partition, state.leader_id)
        facts = RecordFacts(
            topic=partition.topic,
            partition=partition.partition,
            offset=offset,
            log_start=start,
            last_stable=stable,
            high_watermark=high_watermark,
            log_end=max(high_watermark, end or 0),
            now_ms=self._clock.now_ms(),
            configs=await self._configs_of(partition.topic),
            deletions=await self._history_of(partition) or (),
            is_foreign=self._is_foreign,
        )
        if start <= offset < high_watermark:
            return await self._look_at(partition, facts)
        return facts

    async def _look_at(self, partition: TopicPartition, facts: RecordFacts) -> RecordFacts:
        is_stable = facts.offset < facts.last_stable
        settings = RangeSettings(
            fetch_bytes=1, max_wait_ms=0, stall_seconds=0.0, read_committed=is_stable
        )
        answer = await fetch_answer(self._client, partition, facts.offset, settings)
        if not len(answer.records):
            return facts
        data = answer.records
        header = read_header(data)
        facts = replace(
            facts,
            is_transactional=header.is_transactional,
            is_log_append_time=header.is_log_append_time,
            producer_id=header.producer_id,
        )
        if header.base_offset > facts.offset or header.is_control:
            # Behind it: compaction has taken it and its batch. A marker is at its own offset.
            is_marker = header.is_control and header.base_offset <= facts.offset
            return replace(facts, is_control=is_marker, next_offset=header.base_offset)
        batch = FetchedBatch(memoryview(data)[: header.size_bytes], header)
        records = decode_batch(batch, partition, facts.offset, check_crc=False)
        if not records or records[0].offset != facts.offset:
            behind = records[0].offset if records else header.next_offset
            return replace(facts, next_offset=behind)
        record = records[0]
        later, searched_to = await self._find_later(partition, record, facts)
        return replace(
            facts,
            record=_found(record),
            is_aborted=is_stable and _is_aborted(header, answer.aborted_transactions or ()),
            later_with_key=later,
            searched_to=searched_to,
        )

    async def _find_later(
        self, partition: TopicPartition, record: ConsumerRecord, facts: RecordFacts
    ) -> tuple[int | None, int | None]:
        """The next record with the same key, where it matters; and how far it was looked for."""
        if "compact" not in facts.configs.get("cleanup.policy", "") or record.key is None:
            return None, None
        wanted = OffsetRange(record.offset + 1, facts.high_watermark)
        searched, reached = 0, record.offset + 1
        async for arrived in fetch_range(self._client, partition, wanted, RangeSettings()):
            for batch in arrived.batches:
                found = FetchedBatch(batch.data, batch.header)
                for one in decode_batch(found, partition, batch.from_offset, check_crc=False):
                    if one.key == record.key:
                        return one.offset, one.offset
                reached = batch.next_offset
            searched += arrived.size_bytes
            if searched > _MOST_SEARCHED_BYTES:
                return None, reached
        return None, facts.high_watermark


def _found(record: ConsumerRecord) -> FoundRecord:
    return FoundRecord(
        record.offset,
        record.timestamp_ms,
        None if record.key is None else len(record.key),
        None if record.value is None else len(record.value),
    )


def _is_aborted(header: BatchHeader, aborted: Sequence[tuple[int, int]]) -> bool:
    """By the transactions that the broker names for a fetch of this batch."""
    return header.is_transactional and any(
        producer_id == header.producer_id and first_offset <= header.last_offset
        for producer_id, first_offset in aborted
    )


def _offset_of(found: ListedOffset | KafkaError) -> int:
    if isinstance(found, KafkaError):
        raise found
    return found.offset


def _require(partitions: Sequence[PartitionMetadata], wanted: TopicPartition) -> PartitionMetadata:
    for one in partitions:
        if one.index == wanted.partition:
            return one
    raise UnknownTopicError(
        f"topic {wanted.topic!r} has {len(partitions)} partitions and no number {wanted.partition}"
    )
