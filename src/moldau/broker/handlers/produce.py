"""Produce, versions 3 to 13; 0 is advertised as the lowest, as Kafka does (KAFKA-18659).

Appends one batch to each named partition. The batch is checked, stamped and written where the
socket put it; see `replication.partition` for what is checked.

v3 record batch format 2, transactional id; v5 log start offset; v7 zstd; v8 errors of single
records; v9 flexible; v10 tells the new leader; v12 transactions of KIP-890; v13 topic ids.

With acks=all the answer leaves when every in-sync replica has the batches, or the time-out is over;
what the client sends next to be produced is appended meanwhile (`broker.dispatch`).
A partition that is led elsewhere is answered with its leader, from v10 on.

The answer to a batch that is refused for some of its records names each of them (v8), as Kafka
does; only the first one of a batch with more than 100,000 records, with damage, or that unfolds to
more than 4 MiB. Records whose timestamps are out of range are not named where finding them would
hold up the event loop (a large compressed batch). A batch that claims LogAppendTime is refused by
its header: only the first record is named where it is compressed or claims more than it can hold.

The first batch of a transaction in a partition is appended when the transaction coordinator has
confirmed it (`broker.transaction_verifier`), all of a request's together; from v12 on the
coordinator adds the partition to the transaction with that, from v11 on a producer can be told
TRANSACTION_ABORTABLE.

With an authorizer a client needs WRITE of each topic, and of the transactional id if it has one.

Differences from Kafka: the topics in which the broker keeps its own state take no records from
clients, whoever they are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import NamedTuple
from uuid import UUID

from moldau.broker.api import DeferredResponse, RequestContext, serves
from moldau.broker.authorization import require_topic, require_transactional_id
from moldau.broker.commit_waits import Uncommitted, wait_until_committed
from moldau.broker.topic_metadata import CurrentLeaders
from moldau.broker.transaction_verifier import ProducedTransactions
from moldau.errors import (
    InvalidRecordError,
    InvalidRequiredAcksError,
    InvalidTopicError,
    KafkaError,
    TransactionalIdAuthorizationError,
    UnknownTopicIdError,
    UnsupportedCompressionError,
)
from moldau.model import INTERNAL_TOPICS, AclOperation
from moldau.net.port import Chunk
from moldau.records.batch_header import ATTRIBUTES_AT, CODEC_MASK, HEADER_BYTES, TRANSACTIONAL_FLAG
from moldau.records.compression import Codec
from moldau.replication.partition import Partition
from moldau.replication.rules.replica import ALL_IN_SYNC
from moldau.storage.log import AppendResult
from moldau.tasks import finish_first
from moldau.wire.apis import PRODUCE
from moldau.wire.produce_frame import (
    ProducedPartition,
    ProduceTopic,
    encode_produce_frame,
    parse_produce_request,
)

API = serves(PRODUCE, by_hand=True)

_log = logging.getLogger("moldau.broker.requests")

_FIRST_WITH_ZSTD = 7
_LEGAL_ACKS = (-1, 0, 1)
_new = tuple.__new__

Topics = list[tuple[str | None, UUID | None, list[ProducedPartition]]]


class _Uncommitted(NamedTuple):
    """A batch that not every in-sync replica has yet."""

    answers: list[ProducedPartition]  # where its answer is
    place: int
    batch: Uncommitted


class _Unfinished(NamedTuple):
    """A batch that is with a worker, has to be flushed, or whose transaction has to be confirmed:
    where its answer goes."""

    answers: list[ProducedPartition]
    place: int
    work: Awaitable[tuple[ProducedPartition, _Uncommitted | None]]


def handle_frame(
    frame: memoryview, position: int, context: RequestContext
) -> list[Chunk] | Awaitable[list[Chunk] | None] | DeferredResponse | None:
    services, version = context.services, context.version
    transactional_id, acks, timeout_ms, wanted = parse_produce_request(version, frame, position)
    topics: Topics = []
    unfinished: list[_Unfinished] = []
    uncommitted: list[_Uncommitted] = []
    has_errors = False
    transactions = (
        None if transactional_id is None else ProducedTransactions(transactional_id, context)
    )
    for topic in wanted:
        asked_name, topic_id, partitions = topic
        answers: list[ProducedPartition] = []
        for index, records in partitions:
            place = len(answers)
            try:
                name = _require_name(topic, transactional_id, context)
                partition = services.partitions.require_leader(name, index)
                if asked_name is None and partition.topic_id != topic_id:
                    raise UnknownTopicIdError(f"{name!r} is about to be opened as another topic")
                batch = _require_batch(records, acks, transactional_id, version)
                result = (
                    partition.append_as_leader(batch, acks)
                    if transactions is None
                    else transactions.append(partition, batch, acks)
                )
                if result is None:
                    work = _append_later(
                        partition, index, batch, acks, answers, place, transactions
                    )
                    unfinished.append(_Unfinished(answers, place, work))
                    answers.append(ProducedPartition(index))
                    continue
                answers.append(_confirm(index, result))
                if partition.log.flush_is_due:
                    flush = _flush(partition, index, answers[place])
                    unfinished.append(_Unfinished(answers, place, flush))
                if acks == ALL_IN_SYNC and partition.state.high_watermark <= result.last_offset:
                    uncommitted.append(_await_commit(partition, result, answers, place))
            except KafkaError as error:
                has_errors = True
                answers.append(_refuse(index, error))
        topics.append((asked_name, topic_id, answers))
    if not unfinished and not uncommitted:
        return _answer(acks, topics, context, has_errors=has_errors)
    # What follows keeps nothing of the request: its frame is used for the next one.
    rest = _finish(acks, timeout_ms, topics, unfinished, uncommitted, context)
    return rest if unfinished else DeferredResponse(rest)


def _require_name(
    topic: ProduceTopic, transactional_id: str | None, context: RequestContext
) -> str:
    """The name of a topic that the client may write to."""
    services, (name, topic_id, _) = context.services, topic
    if name is None:
        found = None if topic_id is None else services.image.topics_by_id.get(topic_id)
        if found is None:
            raise UnknownTopicIdError(f"there is no topic with id {topic_id}")
        name = found.name
    if services.authorizer is not None:
        if transactional_id is not None:
            require_transactional_id(context, AclOperation.WRITE, transactional_id)
        require_topic(context, AclOperation.WRITE, name)
    if name in INTERNAL_TOPICS:
        raise InvalidTopicError(f"topic {name!r} is written by the broker alone")
    return name


def _require_batch(
    records: memoryview | None, acks: int, transactional_id: str | None, version: int
) -> memoryview:
    """What the request itself forbids; the batch is looked at by the partition."""
    if acks not in _LEGAL_ACKS:
        raise InvalidRequiredAcksError(f"acks must be -1, 0 or 1, not {acks}")
    if records is None:
        raise InvalidRecordError("there must be exactly one record batch per partition, not none")
    if len(records) >= HEADER_BYTES:
        flags = records[ATTRIBUTES_AT + 1]
        if flags & TRANSACTIONAL_FLAG and transactional_id is None:
            raise TransactionalIdAuthorizationError("a transactional batch needs its id")
        if version < _FIRST_WITH_ZSTD and flags & CODEC_MASK == Codec.ZSTD:
            raise UnsupportedCompressionError(f"Produce version {version} may not carry zstd")
    return records


def _await_commit(
    partition: Partition, result: AppendResult, answers: list[ProducedPartition], place: int
) -> _Uncommitted:
    end_offset = result.last_offset + 1
    return _Uncommitted(answers, place, Uncommitted(partition, partition.leader_epoch, end_offset))


async def _append_later(
    partition: Partition,
    index: int,
    batch: memoryview,
    acks: int,
    answers: list[ProducedPartition],
    place: int,
    transactions: ProducedTransactions | None,
) -> tuple[ProducedPartition, _Uncommitted | None]:
    """Append a batch when its transaction is confirmed, by a worker if it takes long."""
    try:
        if transactions is None:
            result = await partition.append_in_worker(batch, acks)
        else:
            result = await transactions.append_later(partition, batch, acks)
    except KafkaError as error:
        return _refuse(index, error), None
    answer = _confirm(index, result)
    uncommitted = None
    if acks == ALL_IN_SYNC and partition.state.high_watermark <= result.last_offset:
        uncommitted = _await_commit(partition, result, answers, place)
    if partition.log.flush_is_due:
        answer, _ = await _flush(partition, index, answer)
    return answer, uncommitted


async def _flush(
    partition: Partition, index: int, answer: ProducedPartition
) -> tuple[ProducedPartition, None]:
    """`flush.messages` asks that the batch is on the disk before it is acknowledged."""
    try:
        await partition.log.flush()
    except KafkaError as error:
        return _refuse(index, error), None
    return answer, None


async def _finish(
    acks: int,
    timeout_ms: int,
    topics: Topics,
    unfinished: list[_Unfinished],
    uncommitted: list[_Uncommitted],
    context: RequestContext,
) -> list[Chunk] | None:
    deadline = context.services.clock.monotonic() + timeout_ms / 1000
    if unfinished:
        # NET-4: it is appended also when the client closes its connection meanwhile.
        finished = await finish_first(asyncio.gather(*(one.work for one in unfinished)))
        for (answers, place, _), (answer, later) in zip(unfinished, finished, strict=True):
            answers[place] = answer
            if later is not None:
                uncommitted.append(later)
    await _wait_until_committed(uncommitted, deadline, context)
    has_errors = any(one.error_code for _, _, partitions in topics for one in partitions)
    return _answer(acks, topics, context, has_errors=has_errors)


async def _wait_until_committed(
    uncommitted: list[_Uncommitted], deadline: float, context: RequestContext
) -> None:
    """Return when each batch is committed, has no chance to be, or the time is over."""
    pending = [one for one in uncommitted if not one.answers[one.place].error_code]
    batches = [one.batch for one in pending]
    errors = await wait_until_committed(batches, deadline, context.services)
    for (answers, place, _), error in zip(pending, errors, strict=True):
        if error is not None:
            answers[place] = _refuse(answers[place].partition, error)


def _confirm(index: int, result: AppendResult) -> ProducedPartition:
    first_offset, _, log_append_time_ms, log_start_offset, _ = result
    return _new(  # as in `Log.append`
        ProducedPartition,
        (index, 0, first_offset, log_append_time_ms, log_start_offset, (), None, None),
    )


def _refuse(index: int, error: KafkaError) -> ProducedPartition:
    return ProducedPartition(
        index, error.code.value, record_errors=error.record_errors, error_message=str(error)
    )


def _answer(
    acks: int, topics: Topics, context: RequestContext, *, has_errors: bool
) -> list[Chunk] | None:
    throttle_ms = 0 if context.throttle is None else context.throttle.charge_time()
    if acks == 0:
        _close_on_error(topics, context)
        return None
    correlation_id = context.header.correlation_id
    if not has_errors:
        return [encode_produce_frame(context.version, correlation_id, topics, throttle_ms)]
    for _, _, partitions in topics:
        for one in partitions:
            context.count_error(one.error_code)
    leaders = CurrentLeaders(context)
    told = [
        (name, topic_id, [_with_leader(name or topic_id, one, leaders) for one in partitions])
        for name, topic_id, partitions in topics
    ]
    endpoints = leaders.endpoints
    return [encode_produce_frame(context.version, correlation_id, told, throttle_ms, endpoints)]


def _with_leader(
    topic: str | UUID | None, answer: ProducedPartition, leaders: CurrentLeaders
) -> ProducedPartition:
    if not answer.error_code or topic is None:
        return answer
    found = leaders.find(topic, answer.partition, answer.error_code)
    return answer._replace(current_leader=found)


def _close_on_error(topics: Topics, context: RequestContext) -> None:
    """A client that wants no answer learns of an error by losing its connection, as in Kafka."""
    for name, topic_id, partitions in topics:
        for partition in partitions:
            context.count_error(partition.error_code)
            if partition.error_code:
                context.connection.close(
                    f"produce with acks=0 to {name or topic_id}-{partition.partition} failed: "
                    f"{partition.error_message}"
                )
                return
