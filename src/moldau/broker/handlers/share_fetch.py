"""ShareFetch, versions 1 and 2: records for a member of a share group, and nobody else (KIP-932).

A member gets what nobody has, for as long as the group's lock lasts, and may bring along
acknowledgements, which are dealt with first. As with Fetch, the kernel moves whole batches from the
segment file to the socket; `acquired_records` says which of their records the member has. Waits
(long poll) until there is something to acquire or `max_wait` is over.

v2 exactly so many records (KIP-1206), renewals of locks (KIP-1222). A request that renews gets no
records: its time would count against the new locks.

Records count towards `consumer_byte_rate`, as those of Fetch do. Who has to wait gets none, so that
nothing is locked for it meanwhile; what it acknowledges counts at once.

Differences from Kafka: batches without a record for the member are not sent, and neither are
markers of transactions, which a client has to acknowledge as gaps there. A group's state that is
being read, or cannot be read for now, is no error: there are no records yet.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import NamedTuple, cast
from uuid import UUID

from kio.schema.share_fetch.v2 import ShareFetchRequest

from moldau.broker.api import RequestContext, serves
from moldau.broker.fetch import FetchSession, Terms
from moldau.broker.handlers.share_acknowledge import (
    Acknowledged,
    acknowledge,
    require_member,
    require_partition,
)
from moldau.broker.topic_metadata import CurrentLeaders
from moldau.coordinators.shares.rules.in_flight import Wanted
from moldau.coordinators.shares.share_partition import SharePartition, ShareRead
from moldau.coordinators.shares.share_session import (
    CLOSING_EPOCH,
    OPENING_EPOCH,
    MemberKey,
    SessionPartitionKey,
    ShareSession,
)
from moldau.errors import InvalidRequestError, KafkaError, NotLeaderError
from moldau.net.port import Chunk
from moldau.wire.apis import SHARE_FETCH
from moldau.wire.fetch_frame import FetchPartition, SharedPartition, encode_share_fetch_frame
from moldau.wire.messages import parse_request
from moldau.wire.shape import millis

API = serves(SHARE_FETCH, by_hand=True)

_FIRST_WITH_MODES = 2
_RECORD_LIMIT = 1

_Found = dict[SessionPartitionKey, ShareRead | KafkaError]


class _Limits(NamedTuple):
    """How much is wanted, and when to answer without it."""

    wanted: Wanted
    min_bytes: int
    max_bytes: int
    max_wait_ms: int


def handle_frame(
    frame: memoryview, position: int, context: RequestContext
) -> list[Chunk] | Awaitable[list[Chunk]]:
    """A session is opened here and not in the task, which may begin when the connection has ended:
    nobody would end the session then."""
    parsed = parse_request(SHARE_FETCH.key, context.version, frame, position)
    request = cast("ShareFetchRequest", parsed)
    is_renewing = context.version >= _FIRST_WITH_MODES and request.is_renew_ack
    try:
        member = require_member(request.group_id, request.member_id, context)
        if is_renewing:
            _require_no_fetch(request)
        session = _find_session(member, request, context)
    except KafkaError as error:
        return _refuse(error, context)
    return _serve(request, session, context, is_renewing=is_renewing)


async def _serve(
    request: ShareFetchRequest, session: ShareSession, context: RequestContext, *, is_renewing: bool
) -> list[Chunk]:
    shares = context.services.shares
    acknowledged = await acknowledge(session.key, request.topics, context, may_renew=is_renewing)
    found: _Found = {}
    if request.share_session_epoch == CLOSING_EPOCH:
        shares.leave(session)
    elif not is_renewing and shares.sessions.is_open(session) and _may_fetch(context):
        found = await _fetch(session, _limits_of(request, context), context)
    return _answer(session, acknowledged, found, context)


def _require_no_fetch(request: ShareFetchRequest) -> None:
    limits = (request.min_bytes, request.max_bytes, request.max_records, millis(request.max_wait))
    if any(limits):
        raise InvalidRequestError("a request that renews locks fetches nothing: all limits are 0")


def _may_fetch(context: RequestContext) -> bool:
    return context.throttle is None or context.throttle.may_fetch()


def _limits_of(request: ShareFetchRequest, context: RequestContext) -> _Limits:
    is_exact = context.version >= _FIRST_WITH_MODES and request.share_acquire_mode == _RECORD_LIMIT
    max_bytes = min(request.max_bytes, context.services.options.fetch_max_bytes)
    if context.throttle is not None:
        max_bytes = min(max_bytes, context.throttle.allowed_fetch_bytes())
    return _Limits(
        Wanted(request.max_records, request.batch_size, is_exact),
        min(request.min_bytes, max_bytes),
        max_bytes,
        millis(request.max_wait),
    )


# The session


def _find_session(
    member: MemberKey, request: ShareFetchRequest, context: RequestContext
) -> ShareSession:
    shares, epoch = context.services.shares, request.share_session_epoch
    sessions = shares.sessions
    if epoch == OPENING_EPOCH:
        if any(one.acknowledgement_batches for topic in request.topics for one in topic.partitions):
            raise InvalidRequestError("a share session does not begin with acknowledgements")
        session = sessions.open(member, context.connection)
    else:
        session = sessions.require(member, epoch)
    if epoch != CLOSING_EPOCH:
        new = session.add_partitions(
            (topic.topic_id or UUID(int=0), one.partition_index)
            for topic in request.topics
            for one in topic.partitions
        )
        shares.begin_taking(member.group_id, new)
        session.remove_partitions(
            (topic.topic_id or UUID(int=0), index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
        )
    return session


# Acquiring


async def _fetch(session: ShareSession, limits: _Limits, context: RequestContext) -> _Found:
    """What the member gets; an empty answer when its time is over."""
    services = context.services
    deadline = services.clock.monotonic() + limits.max_wait_ms / 1000
    refused: _Found = {}
    shared: dict[SessionPartitionKey, SharePartition] = {}
    for key in session.in_turn():
        try:
            partition = require_partition(*key, context)
            shared[key] = services.shares.partitions.require(partition, session.key.group_id)
        except KafkaError as error:
            refused[key] = error
    is_last = limits.max_wait_ms <= 0 or bool(refused) or not shared
    found = _look(session, shared, limits, is_last=is_last)
    if found or is_last:
        return {**refused, **found}
    return await _wait(session, shared, limits, deadline, context)


async def _wait(
    session: ShareSession,
    shared: Mapping[SessionPartitionKey, SharePartition],
    limits: _Limits,
    deadline: float,
    context: RequestContext,
) -> _Found:
    """Look again whenever something comes, is released, or happens to a partition. Nothing is
    acquired any more when the member has another session: the answer may reach nobody, and the
    records would be locked for as long as a lock lasts."""
    services = context.services
    waiting = services.fetch_sessions.open_for_one(services.clock.now_ms())
    _watch(waiting, shared, context)
    for one in shared.values():
        one.listen(waiting.wake)
    try:
        while services.shares.sessions.is_open(session):
            left_ms = (deadline - services.clock.monotonic()) * 1000
            found = _look(session, shared, limits, is_last=left_ms <= 0)
            if found or left_ms <= 0:
                return found
            await services.purgatory.wait_for_news(waiting, 1, left_ms, hears_commits=True)
        return {}
    finally:
        services.fetch_sessions.unwatch(waiting.partitions.values())
        for one in shared.values():
            one.stop_listening(waiting.wake)


def _watch(
    waiting: FetchSession,
    shared: Mapping[SessionPartitionKey, SharePartition],
    context: RequestContext,
) -> None:
    wanted = [(topic_id, FetchPartition(index, -1, 0, -1, -1, 0)) for topic_id, index in shared]
    waiting.begin_round(Terms(), wanted, (), context.services.clock.monotonic())
    for watched, one in zip(waiting.partitions.values(), shared.values(), strict=True):
        context.services.fetch_sessions.watch(watched, one.partition.topic_partition)


def _look(
    session: ShareSession,
    shared: Mapping[SessionPartitionKey, SharePartition],
    limits: _Limits,
    *,
    is_last: bool,
) -> _Found:
    """Acquire what is there; nothing as long as it is less than is waited for."""
    found: _Found = {
        key: one.failure for key, one in shared.items() if isinstance(one.failure, NotLeaderError)
    }
    if not limits.max_bytes:
        return found  # not even a first batch, as Kafka: it would be acquired by who wants none
    if not is_last and not found and limits.min_bytes > 1:
        sizes = (one.size_available(limits.min_bytes) for one in shared.values())
        if sum(sizes) < limits.min_bytes:
            return found
    wanted, count, size_bytes = limits.wanted, 0, 0
    for key, one in shared.items():
        if one.failure is not None:
            continue
        try:
            read = one.acquire(
                session.key.member_id,
                wanted._replace(max_records=wanted.max_records - count),
                limits.max_bytes - size_bytes,
                min_one=not size_bytes,
            )
        except KafkaError as error:
            found[key] = error
            continue
        if read.ranges:
            found[key] = read
            count += read.record_count
            size_bytes += read.size_bytes
        if count >= wanted.max_records or size_bytes >= limits.max_bytes:
            break
    return found


# The answer


def _answer(
    session: ShareSession, acknowledged: Acknowledged, found: _Found, context: RequestContext
) -> list[Chunk]:
    """What there is to say: of what was found, acknowledged, or has to be told in any case."""
    if context.throttle is not None:
        reads = (one for one in found.values() if isinstance(one, ShareRead))
        context.throttle.fetch(sum(one.size_bytes for one in reads))
    leaders = CurrentLeaders(context)
    topics: dict[UUID, list[SharedPartition]] = {}
    silent = [key for key, is_due in session.partitions.items() if is_due]
    for key in dict.fromkeys((*found, *acknowledged, *silent)):
        topic_id, index = key
        result, refusal = found.get(key), acknowledged.get(key)
        told = SharedPartition(index)
        if refusal is not None:
            told = told._replace(
                acknowledge_error_code=refusal.code.value, acknowledge_error_message=str(refusal)
            )
        if isinstance(result, KafkaError):
            told = told._replace(error_code=result.code.value, error_message=str(result))
        elif result is not None:
            told = told._replace(records=result.slices, acquired=result.ranges)
        for code in (told.error_code, told.acknowledge_error_code):
            leader = leaders.find(topic_id, index, code)
            if leader is not None:
                told = told._replace(current_leader=leader)
        if key in session.partitions:
            session.partitions[key] = bool(told.error_code)
        topics.setdefault(topic_id, []).append(told)
    settings = context.services.shares.settings_of(session.key.group_id)
    chunks = encode_share_fetch_frame(
        context.version,
        context.header.correlation_id,
        topics,
        acquisition_lock_timeout_ms=settings.lock_ms,
        throttle_ms=_charge_time(context),
        node_endpoints=leaders.endpoints,
    )
    return cast("list[Chunk]", chunks)


def _refuse(error: KafkaError, context: RequestContext) -> list[Chunk]:
    chunks = encode_share_fetch_frame(
        context.version,
        context.header.correlation_id,
        {},
        acquisition_lock_timeout_ms=0,
        throttle_ms=_charge_time(context),
        error_code=error.code.value,
        error_message=str(error),
    )
    return cast("list[Chunk]", chunks)


def _charge_time(context: RequestContext) -> int:
    """How long the client has to wait before its next request, in milliseconds."""
    return 0 if context.throttle is None else context.throttle.charge_time()
