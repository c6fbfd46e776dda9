"""Produce, versions 3 to 13; 0 is advertised as the lowest, as Kafka does (KAFKA-18659).

Appends one batch to each named partition. The batch is checked, stamped and written where the
socket put it; see `replication.partition` for what is checked.

v3 record batch format 2, transactional id; v5 log start offset; v7 zstd; v8 errors of single
records; v9 flexible; v10 tells the new leader; v12 transactions of KIP-890; v13 topic ids.

Differences from Kafka: `timeout` only matters while replicas are awaited, and a broker alone awaits
none. Transactional batches are refused until transactions are served (INVALID_TXN_STATE). The
topics in which the broker keeps its own state take no records from clients, whoever they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from uuid import UUID

from moldau.broker.api import serves
from moldau.broker.request_context import RequestContext
from moldau.errors import (
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    InvalidTxnStateError,
    KafkaError,
    UnknownTopicIdError,
    UnsupportedCompressionError,
)
from moldau.model.topic_names import INTERNAL_TOPICS
from moldau.net.port import Chunk
from moldau.records.batch_header import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, TRANSACTIONAL_FLAG
from moldau.records.compression import Codec
from moldau.replication.partition import Partition
from moldau.storage.log import AppendResult
from moldau.wire.produce_frame import (
    ProducedPartition,
    ProduceRequest,
    encode_produce_frame,
    parse_produce_request,
)

API = serves("produce", first=3, last=13, advertised_first=0, by_hand=True)

_log = logging.getLogger(__name__)

_FIRST_WITH_ZSTD = 7
_LEGAL_ACKS = (-1, 0, 1)

Topics = list[tuple[str | None, UUID | None, list[ProducedPartition]]]
Unfinished = list[tuple[list[ProducedPartition], int, Awaitable[ProducedPartition]]]
"""Partitions whose batch is with a worker: where their answer goes, and the answer to come."""


def handle_frame(
    frame: memoryview, position: int, context: RequestContext
) -> list[Chunk] | Awaitable[list[Chunk] | None] | None:
    request = parse_produce_request(context.version, frame, position)
    topics: Topics = []
    unfinished: Unfinished = []
    for topic in request.topics:
        answers: list[ProducedPartition] = []
        for index, records in topic.partitions:
            try:
                name = topic.name
                if name is None:
                    name = _require_name(topic.topic_id, context)
                if name in INTERNAL_TOPICS:
                    raise InvalidTopicError(f"topic {name!r} is written by the broker alone")
                partition = context.services.partitions.require_leader(name, index)
                batch = _require_batch(records, request, context.version)
                result = partition.append_as_leader(batch, request.acks)
                if result is None:
                    later = _append_in_worker(partition, index, batch, request.acks)
                    unfinished.append((answers, len(answers), later))
                    answers.append(ProducedPartition(index))
                else:
                    answers.append(_confirm(index, result))
                    if partition.log.flush_is_due:
                        later = _flush(partition, index, answers[-1])
                        unfinished.append((answers, len(answers) - 1, later))
            except KafkaError as error:
                answers.append(_refuse(index, error))
        topics.append((topic.name, topic.topic_id, answers))
    if unfinished:
        return _finish(request, topics, unfinished, context)
    return _answer(request, topics, context)


def _require_name(topic_id: UUID | None, context: RequestContext) -> str:
    topic = None if topic_id is None else context.services.image.topics_by_id.get(topic_id)
    if topic is None:
        raise UnknownTopicIdError(f"there is no topic with id {topic_id}")
    return topic.name


def _require_batch(records: memoryview | None, request: ProduceRequest, version: int) -> memoryview:
    """What the request itself forbids; the batch is looked at by the partition."""
    if request.acks not in _LEGAL_ACKS:
        raise InvalidRequiredAcksError(f"acks must be -1, 0 or 1, not {request.acks}")
    if records is None:
        raise InvalidRecordError("there must be exactly one record batch per partition, not none")
    if len(records) >= HEADER_BYTES:
        flags = records[ATTRIBUTES_AT + 1]
        if flags & TRANSACTIONAL_FLAG:
            raise InvalidTxnStateError("transactions are not served by this version of Moldau")
        if version < _FIRST_WITH_ZSTD and flags & CODEC_MASK == Codec.ZSTD:
            raise UnsupportedCompressionError(f"Produce version {version} may not carry zstd")
    return records


async def _append_in_worker(
    partition: Partition, index: int, batch: memoryview, acks: int
) -> ProducedPartition:
    try:
        answer = _confirm(index, await partition.append_in_worker(batch, acks))
    except KafkaError as error:
        return _refuse(index, error)
    return await _flush(partition, index, answer) if partition.log.flush_is_due else answer


async def _flush(partition: Partition, index: int, answer: ProducedPartition) -> ProducedPartition:
    """`flush.messages` asks that the batch is on the disk before it is acknowledged."""
    try:
        await partition.log.flush()
    except KafkaError as error:
        return _refuse(index, error)
    return answer


async def _finish(
    request: ProduceRequest, topics: Topics, unfinished: Unfinished, context: RequestContext
) -> list[Chunk] | None:
    finished = await asyncio.gather(*(answer for _, _, answer in unfinished))
    for (answers, place, _), answer in zip(unfinished, finished, strict=True):
        answers[place] = answer
    return _answer(request, topics, context)


def _confirm(index: int, result: AppendResult) -> ProducedPartition:
    return ProducedPartition(
        index, 0, result.first_offset, result.log_append_time_ms, result.log_start_offset
    )


def _refuse(index: int, error: KafkaError) -> ProducedPartition:
    message = str(error)
    record_errors: tuple[tuple[int, str | None], ...] = ()
    if isinstance(error, InvalidRecordError) and error.batch_index is not None:
        record_errors = ((error.batch_index, message),)
    return ProducedPartition(
        index,
        error.code.value,
        record_errors=record_errors,
        error_message=message,
    )


def _answer(request: ProduceRequest, topics: Topics, context: RequestContext) -> list[Chunk] | None:
    if request.acks == 0:
        _close_on_error(topics, context)
        return None
    return [encode_produce_frame(context.version, context.header.correlation_id, topics)]


def _close_on_error(topics: Topics, context: RequestContext) -> None:
    """A client that wants no answer learns of an error by losing its connection, as in Kafka."""
    for name, topic_id, partitions in topics:
        for partition in partitions:
            if partition.error_code:
                context.connection.close(
                    f"produce with acks=0 to {name or topic_id}-{partition.index} failed: "
                    f"{partition.error_message}"
                )
                return
