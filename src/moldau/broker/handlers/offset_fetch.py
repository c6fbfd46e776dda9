"""OffsetFetch, versions 1 to 10: how far groups have read.

v2 a code for the whole answer, and null for all partitions; v3 throttle time; v4 the same; v5
leader epochs; v6 flexible; v7 may ask to wait for transactions (KIP-447); v8 several groups at
once; v9 the KIP-848 protocol; v10 topic ids.

With `require_stable` an offset that an open transaction may change is UNSTABLE_OFFSET_COMMIT, and
the client asks again. A topic that was deleted has no offsets left, so asking for it by name
finds -1, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import NamedTuple
from uuid import UUID

from kio.schema.offset_fetch.v10 import OffsetFetchRequest
from kio.schema.offset_fetch.v10.request import OffsetFetchRequestGroup, OffsetFetchRequestTopics

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group, may_see, may_topic
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.commits import FoundOffsets
from moldau.coordinators.groups.rules.records import CommittedOffset
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import ErrorCode
from moldau.model import NO_LEADER_EPOCH, NO_OFFSET, AclOperation, AclResourceType
from moldau.wire.apis import OFFSET_FETCH

API = serves(OFFSET_FETCH, droppable=("committed_leader_epoch", "error_code"))

_FIRST_WITH_ERROR = 2
_FIRST_WITH_SEVERAL_GROUPS = 8
_FIRST_WITH_TOPIC_IDS = 10
_NOTHING = CommittedOffset(NO_OFFSET, NO_LEADER_EPOCH, "", -1)


class _WantedTopic(NamedTuple):
    """A topic as the request names it; `name` is None when there is no topic with this id."""

    key: UUID | str | None
    name: str | None
    partitions: Sequence[int]


def handle(request: OffsetFetchRequest, context: RequestContext) -> Eventually[Values]:
    if context.version >= _FIRST_WITH_SEVERAL_GROUPS:
        return _fetch_groups(request, context)
    require_stable = _requires_stable(request)
    one = _fetch(request.group_id, request.topics, None, require_stable, context)  # type: ignore[attr-defined]
    return _single_later(one) if isinstance(one, Awaitable) else _single(one)


async def _single_later(group: Awaitable[Values]) -> Values:
    return _single(await group)


def _single(group: Values) -> Values:
    """Before version 8 the answer is about one group, and does not name it."""
    return {"topics": group["topics"], "error_code": group["error_code"]}


async def _fetch_groups(request: OffsetFetchRequest, context: RequestContext) -> Values:
    return {
        "groups": [
            await wait_for_answer(
                _fetch(
                    group.group_id,
                    group.topics,
                    _member_of(group),
                    _requires_stable(request),
                    context,
                )
            )
            for group in request.groups
        ]
    }


def _member_of(group: OffsetFetchRequestGroup) -> tuple[str, int] | None:
    """Of a consumer group; None for tools and for members of classic groups."""
    member_id: str | None = getattr(group, "member_id", None)
    epoch: int = getattr(group, "member_epoch", -1)
    return None if not member_id and epoch < 0 else (member_id or "", epoch)


def _requires_stable(request: OffsetFetchRequest) -> bool:
    return bool(getattr(request, "require_stable", False))


def _fetch(
    group_id: str,
    topics: Sequence[OffsetFetchRequestTopics] | None,
    member: tuple[str, int] | None,
    require_stable: bool,
    context: RequestContext,
) -> Eventually[Values]:
    wanted = None if topics is None else [_wanted_topic(topic, context) for topic in topics]
    denied = _denied_topics(wanted or (), context)
    names = None if wanted is None else _by_name(wanted, denied)
    groups = context.services.groups

    def shape(found: FoundOffsets) -> Values:
        listed = _all_topics(found, context) if wanted is None else wanted
        answers = [_shape_topic(topic, found, denied, context.version) for topic in listed]
        return {"group_id": group_id, "topics": answers, "error_code": ErrorCode.none}

    def refuse(error: ErrorCode) -> Values:
        answers = []
        if context.version < _FIRST_WITH_ERROR:
            answers = [_refuse_topic(topic, error, context.version) for topic in wanted or ()]
        return {"group_id": group_id, "topics": answers, "error_code": error}

    if not may_group(context, AclOperation.DESCRIBE, group_id):
        return refuse(ErrorCode.group_authorization_failed)
    return respond(
        lambda: groups.fetch_offsets(group_id, names, member, require_stable=require_stable),
        shape,
        refuse,
    )


def _wanted_topic(topic: OffsetFetchRequestTopics, context: RequestContext) -> _WantedTopic:
    partitions = topic.partition_indexes
    if context.version < _FIRST_WITH_TOPIC_IDS:
        name: str = topic.name  # type: ignore[attr-defined]
        return _WantedTopic(name, name, partitions)
    topic_id = topic.topic_id
    state = None if topic_id is None else context.services.image.topics_by_id.get(topic_id)
    return _WantedTopic(topic_id, None if state is None else state.name, partitions)


def _denied_topics(wanted: Sequence[_WantedTopic], context: RequestContext) -> frozenset[str]:
    if context.services.authorizer is None:
        return frozenset()
    return frozenset(
        topic.name
        for topic in wanted
        if topic.name is not None and not may_topic(context, AclOperation.DESCRIBE, topic.name)
    )


def _by_name(wanted: Sequence[_WantedTopic], denied: frozenset[str]) -> dict[str, list[int]]:
    """A topic may stand in a request twice."""
    names: dict[str, list[int]] = {}
    for topic in wanted:
        if topic.name is not None and topic.name not in denied:
            names.setdefault(topic.name, []).extend(topic.partitions)
    return names


def _all_topics(found: FoundOffsets, context: RequestContext) -> list[_WantedTopic]:
    """Without those that the client may not know of."""
    if context.services.authorizer is not None:
        topic = AclResourceType.TOPIC
        found = {name: some for name, some in found.items() if may_see(context, topic, name)}
    if context.version < _FIRST_WITH_TOPIC_IDS:
        return [_WantedTopic(name, name, tuple(offsets)) for name, offsets in found.items()]
    topics = context.services.image.topics
    return [
        _WantedTopic(topics[name].topic_id, name, tuple(offsets))
        for name, offsets in found.items()
        if name in topics  # without an id it cannot be named
    ]


def _shape_topic(
    topic: _WantedTopic, found: FoundOffsets, denied: frozenset[str], version: int
) -> Values:
    if topic.name is None:
        return _refuse_topic(topic, ErrorCode.unknown_topic_id, version)
    if topic.name in denied:
        return _refuse_topic(topic, ErrorCode.topic_authorization_failed, version)
    offsets = found[topic.name]
    return _topic_values(
        topic, [_found_values(number, offsets[number]) for number in topic.partitions], version
    )


def _found_values(number: int, found: CommittedOffset | ErrorCode | None) -> Values:
    if isinstance(found, ErrorCode):
        return _partition_values(number, _NOTHING, found)
    return _partition_values(number, found or _NOTHING)


def _refuse_topic(topic: _WantedTopic, error: ErrorCode, version: int) -> Values:
    partitions = [_partition_values(number, _NOTHING, error) for number in topic.partitions]
    return _topic_values(topic, partitions, version)


def _topic_values(topic: _WantedTopic, partitions: list[Values], version: int) -> Values:
    key = "topic_id" if version >= _FIRST_WITH_TOPIC_IDS else "name"
    return {key: topic.key, "partitions": partitions}


def _partition_values(
    number: int, committed: CommittedOffset, error: ErrorCode = ErrorCode.none
) -> Values:
    return {
        "partition_index": number,
        "committed_offset": committed.offset,
        "committed_leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "error_code": error,
    }
