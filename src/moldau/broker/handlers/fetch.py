"""Fetch, versions 4 to 18.

Reads committed records from offsets on, as whole batches that the kernel moves from the segment
file to the socket. Waits (long poll) until `min_bytes` are there or `max_wait` is over. A batch
larger than the limits is still delivered when it is the first (KIP-74).

A consumer reads what is committed, from the leader or (KIP-392) from a follower: with
`replica.selector.class` set to the rack-aware one, a leader sends a consumer that names its rack to
a replica there. A follower reads up to the end of the log; its offset tells the leader how far it
has come (ISR-2), and it hears at once when the high watermark moves.

A session's round looks at the partitions with news and at no others (`broker.fetch`). A
request without a session is a plain read; only one that has to wait is given a session, for as long
as it waits.

v4 isolation level; v5 log start offset; v7 fetch sessions (KIP-227); v9
leader epochs; v11 rack; v12 flexible, detects divergence; v13 topic ids; v15 replica state in a
tag; v16 tells the new leader; v17, v18 fields of followers.

With an authorizer a consumer needs READ of each topic, a follower CLUSTER_ACTION. A session
remembers what was allowed until its client, or an access control list, is another one; readers that
wait are looked at again when a list changes.

Differences from Kafka: an answer ends on a batch boundary where Kafka may cut the last batch
short, so nothing is sent that the client would throw away. A follower that is asked for an offset
behind its end answers OFFSET_NOT_AVAILABLE, where Kafka says OFFSET_OUT_OF_RANGE: it may be late or
made anew, and consumers other than Java's leave their position on that word alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from moldau.broker.api import RequestContext, serves
from moldau.broker.authorization import may_cluster
from moldau.broker.fetch import (
    FIRST_WITH_RACK,
    AskedOnce,
    FetchSession,
    FoundPartition,
    PartitionKey,
    SessionPartition,
    Terms,
    TopicReference,
    find_name,
    read_partitions,
)
from moldau.broker.purgatory import DelayedFetch
from moldau.broker.throttling import RequestThrottle
from moldau.broker.topic_metadata import CurrentLeaders
from moldau.errors import ErrorCode, FetchSessionNotFoundError, FetchSessionTopicIdError, KafkaError
from moldau.metrics.figures import TopicTraffic
from moldau.model import AclOperation, Principal, TopicPartition
from moldau.net.port import Chunk
from moldau.replication.partition import PartitionRead
from moldau.wire.apis import FETCH
from moldau.wire.endpoints import NodeEndpoint
from moldau.wire.fetch_exchange import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from moldau.wire.fetch_frame import (
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
    FetchRequest,
    encode_fetch_frame,
    parse_fetch_request,
)

API = serves(FETCH, by_hand=True)

_FIRST_BY_ID = 13
_new = tuple.__new__


class _Plan(NamedTuple):
    """What to read for a request: of its session, what has news; without one, what it names."""

    session: FetchSession | None
    is_incremental: bool


_WITHOUT_SESSION = _Plan(None, False)


def handle_frame(
    frame: memoryview, position: int, context: RequestContext
) -> list[Chunk] | DelayedFetch:
    request = parse_fetch_request(context.version, frame, position)
    if request.replica_id >= 0 and not may_cluster(context, AclOperation.CLUSTER_ACTION):
        return _refuse_follower(request, context)
    try:
        plan = _plan(request, context)
    except KafkaError as error:
        context.count_error(error.code.value)
        return _encode(context, (), NO_SESSION, error.code.value)
    session = plan.session
    if context.throttle is not None and request.replica_id < 0:
        if not context.throttle.may_fetch():
            return _answer_nothing(plan, context)
        request = _within_quota(request, context.throttle)
    wanted = _asked_once(request) if session is None else session.in_turn()
    results, size_bytes = read_partitions(wanted, request, context, is_first=True)
    if (
        size_bytes >= request.min_bytes
        or request.max_wait_ms <= 0
        or not (request.topics if session is None else session.partitions)
        or _must_be_told(results, plan, request, context)
    ):
        return _answer(plan, results, context, is_consumer=request.replica_id < 0)
    if session is None:
        session = context.services.fetch_sessions.open_for_one(context.services.clock.now_ms())
        _begin_round(session, request, context, is_incremental=False)
    return _wait(session, plan.is_incremental, request, context, request.min_bytes - size_bytes)


def _within_quota(request: FetchRequest, throttle: RequestThrottle) -> FetchRequest:
    allowed_bytes = throttle.allowed_fetch_bytes()
    return request._replace(
        min_bytes=min(request.min_bytes, allowed_bytes),
        max_bytes=min(request.max_bytes, allowed_bytes),
    )


def _answer_nothing(plan: _Plan, context: RequestContext) -> list[Chunk]:
    """A client that has to wait: what it was told last stays so, and a session that it has just
    asked for it asks for again."""
    session = plan.session
    if session is None or plan.is_incremental:
        return _encode(context, (), NO_SESSION if session is None else session.id, 0)
    context.services.fetch_sessions.close(session.id)
    return _encode(context, (), NO_SESSION, 0)


def _wait(
    session: FetchSession,
    is_incremental: bool,
    request: FetchRequest,
    context: RequestContext,
    missing_bytes: int,
) -> DelayedFetch:
    plan, is_consumer = _Plan(session, is_incremental), request.replica_id < 0

    def look(is_late: bool) -> list[Chunk] | int:
        results, size_bytes = read_partitions(session.in_turn(), request, context, is_first=False)
        is_enough = size_bytes >= request.min_bytes
        if is_enough or is_late or _must_be_told(results, plan, request, context):
            return _answer(plan, results, context, is_consumer=is_consumer)
        return request.min_bytes - size_bytes

    _watch(session, context)
    return DelayedFetch(
        session,
        look,
        missing_bytes,
        request.max_wait_ms,
        context.services,
        context.throttle,
        hears_commits=is_consumer or _is_read_from(context),
    )


def _watch(session: FetchSession, context: RequestContext) -> None:
    """Have the session hear of what happens; it does of everything at rest."""
    for wanted in session.news:
        if wanted.watched_as is None:
            name = find_name(wanted.topic, context)
            if name is not None:
                topic_partition = TopicPartition(name, wanted.request.partition)
                context.services.fetch_sessions.watch(wanted, topic_partition)


def _is_read_from(context: RequestContext) -> bool:
    """Whether consumers read from followers."""
    return context.services.options.replica_selector_class is not None


def _must_be_told(
    results: list[FoundPartition], plan: _Plan, request: FetchRequest, context: RequestContext
) -> bool:
    """Whether there is something that no client should wait for.

    A follower hears of a new high watermark with its next records, or when its wait is over; only
    where consumers read from followers is it told at once. Otherwise each batch would cost every
    follower one more fetch.
    """
    is_following = request.replica_id >= 0 and plan.is_incremental
    is_read_from = is_following and _is_read_from(context)
    for wanted, read, _, preferred_replica, _, _ in results:
        if read is None or read.diverging_epoch is not None or preferred_replica >= 0:
            return True
        if is_following and (
            wanted.has_deleted(read) or (is_read_from and wanted.has_committed(read))
        ):
            return True
    return False


# Which partitions


def _plan(request: FetchRequest, context: RequestContext) -> _Plan:
    sessions = context.services.fetch_sessions
    epoch = request.session_epoch
    if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
        if request.session_id != NO_SESSION:
            sessions.close(request.session_id)
        if epoch == FINAL_EPOCH or not request.topics:
            return _WITHOUT_SESSION
        session = sessions.open(context.services.clock.now_ms(), request.replica_id)
        if session is None:
            return _WITHOUT_SESSION
        _begin_round(session, request, context, is_incremental=False)
        return _Plan(session, False)
    session = sessions.require(request.session_id, epoch, context.services.clock.now_ms())
    if session.terms.replica_id != request.replica_id:
        raise FetchSessionNotFoundError(f"session {session.id} belongs to another client")
    if session.terms.by_id != (context.version >= _FIRST_BY_ID):
        sessions.close(session.id)
        raise FetchSessionTopicIdError(f"session {session.id} names topics another way")
    _begin_round(session, request, context, is_incremental=True)
    return _Plan(session, True)


def _begin_round(
    session: FetchSession, request: FetchRequest, context: RequestContext, *, is_incremental: bool
) -> None:
    services = context.services
    gone = session.begin_round(
        Terms(
            request.replica_id,
            request.replica_epoch,
            request.isolation_level,
            request.rack_id,
            context.version >= FIRST_WITH_RACK,
            context.version >= _FIRST_BY_ID,
            services.options.replica_selector_class,
            _rights(context),
        ),
        _wanted(request),
        _forgotten(request) if is_incremental else (),
        services.clock.monotonic(),
    )
    if gone:
        services.fetch_sessions.unwatch(gone)


def _rights(context: RequestContext) -> tuple[Principal, str, int] | None:
    authorizer = context.services.authorizer
    if authorizer is None:
        return None
    return context.principal, context.host, authorizer.version


def _asked_once(request: FetchRequest) -> Sequence[AskedOnce]:
    """The partitions that a request names; of one that is named twice, the last word counts."""
    topics = request.topics
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        name, topic_id, (partition,) = topics[0]
        return (AskedOnce((name if topic_id is None else topic_id) or "", partition),)
    asked = {(topic, one.partition): AskedOnce(topic, one) for topic, one in _wanted(request)}
    return tuple(asked.values())


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


# The answer


def _answer(
    plan: _Plan, results: list[FoundPartition], context: RequestContext, *, is_consumer: bool
) -> list[Chunk]:
    topics: dict[TopicReference, list[FetchedPartition]] = {}
    session = plan.session
    if context.throttle is not None:
        context.throttle.fetch(
            sum(one.read.records.length for one in results if one.read and one.read.records)
        )
    leaders: CurrentLeaders | None = None  # made when there is an error, which is seldom
    for wanted, read, error, preferred_replica, is_at_rest, traffic in results:
        index = wanted.request.partition
        if read is None:
            wanted.forget_told()
            code = 0 if error is None else error.code.value
            context.count_error(code)
            leaders = leaders or CurrentLeaders(context)
            leader = leaders.find(wanted.topic, index, code)
            refused = FetchedPartition(index, code, current_leader=leader)
            topics.setdefault(wanted.topic, []).append(refused)
            continue
        records, high_watermark, last_stable_offset, log_start, aborted, diverging, _ = read
        is_news = wanted.note_answer(read)
        if isinstance(wanted, SessionPartition):
            if is_at_rest and diverging is None and wanted.session.is_kept:
                _rest(wanted, context)
            if not is_news and plan.is_incremental and preferred_replica < 0:
                continue
            if records is not None:
                wanted.session.serve_last(wanted)
        if traffic is not None and records is not None:
            _count(traffic, wanted, read, is_consumer=is_consumer)
        answer = _new(  # as in `Log.append`
            FetchedPartition,
            (
                index,
                0,
                high_watermark,
                last_stable_offset,
                log_start,
                aborted,
                preferred_replica,
                records,
                diverging,
                None,
            ),
        )
        topics.setdefault(wanted.topic, []).append(answer)
    answered = [
        (topic, None, partitions) if isinstance(topic, str) else (None, topic, partitions)
        for topic, partitions in topics.items()
    ]
    endpoints = () if leaders is None else leaders.endpoints
    session_id = NO_SESSION if session is None else session.id
    return _encode(context, answered, session_id, 0, endpoints)


def _count(
    traffic: TopicTraffic,
    wanted: SessionPartition | AskedOnce,
    read: PartitionRead,
    *,
    is_consumer: bool,
) -> None:
    size_bytes = 0 if read.records is None else read.records.length
    if is_consumer:
        traffic.bytes_out += size_bytes
        traffic.records_out += max(0, read.end_offset - wanted.request.fetch_offset)
    else:
        traffic.replication_bytes_out += size_bytes


def _refuse_follower(request: FetchRequest, context: RequestContext) -> list[Chunk]:
    """Before anything else: a follower's fetch moves what is committed."""
    code = ErrorCode.topic_authorization_failed.value
    refused = [
        (
            topic.name,
            topic.topic_id,
            [FetchedPartition(one.partition, code) for one in topic.partitions],
        )
        for topic in request.topics
    ]
    return _encode(context, refused, NO_SESSION, 0)


def _rest(wanted: SessionPartition, context: RequestContext) -> None:
    name = find_name(wanted.topic, context)
    if name is not None:
        topic_partition = TopicPartition(name, wanted.request.partition)
        context.services.fetch_sessions.rest(wanted, topic_partition)


def _encode(
    context: RequestContext,
    topics: Sequence[FetchedTopic],
    session_id: int,
    error_code: int,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Chunk]:
    _, version, correlation_id, _ = context.header
    throttle_ms = 0 if context.throttle is None else context.throttle.charge_time()
    chunks, _ = encode_fetch_frame(
        version, correlation_id, topics, throttle_ms, error_code, session_id, node_endpoints
    )
    return cast(list[Chunk], chunks)
