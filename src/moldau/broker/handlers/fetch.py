"""Fetch, versions 4 to 18.

Reads committed records from offsets on, as whole batches that the kernel moves from the segment
file to the socket. Waits (long poll) until `min_bytes` are there or `max_wait` is over. A batch
larger than the limits is still delivered when it is the first (KIP-74).

v4 isolation level; v5 log start offset; v7 fetch sessions (KIP-227, `broker.fetch_sessions`); v9
leader epochs; v11 rack; v12 flexible, detects divergence; v13 topic ids; v15 replica state in a
tag; v16 tells the new leader; v17, v18 fields of followers.

Differences from Kafka: an answer ends on a batch boundary where Kafka may cut the last batch
short, so nothing is sent that the client would throw away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Sequence
from typing import NamedTuple, cast

from moldau.broker.api import serves
from moldau.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    PartitionKey,
    SessionPartition,
    TopicReference,
)
from moldau.broker.request_context import RequestContext
from moldau.errors import KafkaError, UnknownTopicIdError
from moldau.model import TopicPartition
from moldau.net.port import Chunk
from moldau.replication.partition import PartitionRead
from moldau.wire.fetch_frame import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    encode_fetch_frame,
    parse_fetch_request,
)

API = serves("fetch", first=4, last=18, by_hand=True)

_READ_COMMITTED = 1


class _Plan(NamedTuple):
    """What to read for a request."""

    partitions: Sequence[SessionPartition]
    session: FetchSession | None
    is_incremental: bool


class _Result(NamedTuple):
    """What was found in one partition: a read or an error."""

    wanted: SessionPartition
    read: PartitionRead | None
    error: KafkaError | None


def handle_frame(
    frame: memoryview, position: int, context: RequestContext
) -> list[Chunk] | Awaitable[list[Chunk]]:
    request = parse_fetch_request(context.version, frame, position)
    try:
        plan = _plan(request, context)
    except KafkaError as error:
        return _encode(context, (), NO_SESSION, error.code.value)
    results, size_bytes = _read(plan, request, context)
    if (
        size_bytes >= request.min_bytes
        or request.max_wait_ms <= 0
        or not results
        or any(_must_be_told(result) for result in results)
    ):
        return _answer(plan, results, context)
    return _wait(plan, request, context)


async def _wait(plan: _Plan, request: FetchRequest, context: RequestContext) -> list[Chunk]:
    # The task of this coroutine starts a turn of the loop after the first look; what was appended
    # in between has found nobody to wake.
    results, size_bytes = _read(plan, request, context)
    if size_bytes >= request.min_bytes or any(_must_be_told(result) for result in results):
        return _answer(plan, results, context)
    names = (_find_name(wanted.topic, context) for wanted in plan.partitions)
    await context.services.waiting_room.wait_for_bytes(
        [
            TopicPartition(name, wanted.request.partition)
            for name, wanted in zip(names, plan.partitions, strict=True)
            if name is not None
        ],
        request.min_bytes - size_bytes,
        request.max_wait_ms,
    )
    results, _ = _read(plan, request, context)
    return _answer(plan, results, context)


def _must_be_told(result: _Result) -> bool:
    return result.read is None or result.read.diverging_epoch is not None


# Which partitions


def _plan(request: FetchRequest, context: RequestContext) -> _Plan:
    sessions = context.services.fetch_sessions
    now_ms = context.services.clock.now_ms()
    epoch = request.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        session = sessions.open(now_ms) if epoch == INITIAL_EPOCH and request.topics else None
        if session is None:
            wanted = [SessionPartition(topic, partition) for topic, partition in _wanted(request)]
            return _Plan(wanted, None, is_incremental=False)
        session.update(_wanted(request), ())
        return _Plan(tuple(session.partitions.values()), session, is_incremental=False)
    session = sessions.require(request.session_id, epoch, now_ms)
    session.update(_wanted(request), _forgotten(request))
    return _Plan(tuple(session.partitions.values()), session, is_incremental=True)


def _wanted(request: FetchRequest) -> Iterator[tuple[TopicReference, FetchPartition]]:
    for topic in request.topics:
        reference = topic.name if topic.topic_id is None else topic.topic_id
        for partition in topic.partitions:
            yield reference or "", partition


def _forgotten(request: FetchRequest) -> Iterator[PartitionKey]:
    for topic in request.forgotten_topics:
        reference = topic.name if topic.topic_id is None else topic.topic_id
        for partition in topic.partitions:
            yield reference or "", partition


def _find_name(topic: TopicReference, context: RequestContext) -> str | None:
    if isinstance(topic, str):
        return topic
    found = context.services.image.topics_by_id.get(topic)
    return None if found is None else found.name


# Reading


def _read(plan: _Plan, request: FetchRequest, context: RequestContext) -> tuple[list[_Result], int]:
    """Read every partition of the plan within the limits; the first that has records may exceed
    them with one batch."""
    read_committed = request.isolation_level == _READ_COMMITTED
    limit_bytes = min(request.max_bytes, context.services.options.fetch_max_bytes)
    results: list[_Result] = []
    size_bytes = 0
    for wanted in plan.partitions:
        try:
            read = _read_one(
                wanted, limit_bytes - size_bytes, size_bytes == 0, read_committed, context
            )
        except KafkaError as error:
            results.append(_Result(wanted, None, error))
            continue
        results.append(_Result(wanted, read, None))
        if read.records is not None:
            size_bytes += read.records.length
    return results, size_bytes


def _read_one(
    wanted: SessionPartition,
    limit_bytes: int,
    min_one: bool,
    read_committed: bool,
    context: RequestContext,
) -> PartitionRead:
    request = wanted.request
    name = _find_name(wanted.topic, context)
    if name is None:
        raise UnknownTopicIdError(f"there is no topic with id {wanted.topic}")
    partition = context.services.partitions.require_leader(name, request.partition)
    partition.check_epoch(request.current_leader_epoch)
    return partition.read(
        request.fetch_offset,
        min(request.partition_max_bytes, limit_bytes),
        read_committed=read_committed,
        min_one=min_one,
        last_fetched_epoch=request.last_fetched_epoch,
    )


# The answer


def _answer(plan: _Plan, results: list[_Result], context: RequestContext) -> list[Chunk]:
    topics: dict[TopicReference, list[FetchedPartition]] = {}
    served: list[PartitionKey] = []
    for wanted, read, error in results:
        index = wanted.request.partition
        if read is None:
            wanted.forget_told()
            code = 0 if error is None else error.code.value
            topics.setdefault(wanted.topic, []).append(FetchedPartition(index, code))
            continue
        if not wanted.has_news(read) and plan.is_incremental:
            continue
        if read.records is not None:
            served.append((wanted.topic, index))
        topics.setdefault(wanted.topic, []).append(
            FetchedPartition(
                index,
                0,
                read.high_watermark,
                read.last_stable_offset,
                read.log_start_offset,
                read.aborted_transactions,
                records=read.records,
                diverging_epoch=read.diverging_epoch,
            )
        )
    session_id = NO_SESSION
    if plan.session is not None:
        plan.session.serve_last(served)
        session_id = plan.session.id
    answered = [
        (topic, None, partitions) if isinstance(topic, str) else (None, topic, partitions)
        for topic, partitions in topics.items()
    ]
    return _encode(context, answered, session_id, 0)


def _encode(
    context: RequestContext, topics: Sequence[FetchedTopic], session_id: int, error_code: int
) -> list[Chunk]:
    chunks, _ = encode_fetch_frame(
        context.version,
        context.header.correlation_id,
        topics,
        error_code=error_code,
        session_id=session_id,
    )
    return cast(list[Chunk], chunks)
