"""Metadata, versions 0 to 13.

Tells brokers, topics, partitions and their leaders. An unknown topic is made when the client asks
for it and `auto.create.topics.enable` allows.

v0 an empty list means all topics; v1 null means all, adds rack, controller and is_internal; v2
cluster id; v3 throttle time; v4 says whether topics may be made; v5 offline replicas; v7 leader
epoch; v8 authorized operations; v9 flexible; v10 topic ids; v12 asks by topic id; v13 a top-level
error.

What is said about a topic is the same for every client and encoded once (`broker.topic_metadata`).
Correlation ids differ, and the addresses of brokers, which are those of the listener asked.

With an authorizer a client sees the topics that it may DESCRIBE. Others that it names are
TOPIC_AUTHORIZATION_FAILED, whether they exist or not, and UNKNOWN_TOPIC_ID where it names them by
their ids. To have one made takes CREATE, of the topic or of the cluster.

Differences from Kafka: a topic made by this request is answered at once with its leader, where
Kafka answers LEADER_NOT_AVAILABLE first and lets the client ask again. One that cannot be made
beside another of nearly the same name is INVALID_TOPIC_EXCEPTION, where Kafka's clients are told
UNKNOWN_TOPIC_OR_PARTITION until they give up.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from moldau.broker.api import RequestContext, Values, answered_class, encode_element, serves
from moldau.broker.authorization import (
    audit_change,
    cluster_operations,
    may_create_topic,
    may_see,
    may_topic,
    topic_operations,
)
from moldau.broker.topic_metadata import Wording, bare_topic_values, reachable_endpoints
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.errors import ErrorCode, InvalidTopicError, KafkaError, TopicExistsError
from moldau.model import INTERNAL_TOPICS, AclOperation, AclResourceType, find_topic_name_fault
from moldau.wire.apis import METADATA
from moldau.wire.shape import EncodedArray

if TYPE_CHECKING:
    from kio.schema.metadata.v12 import MetadataRequest

API = serves(
    METADATA,
    droppable=(
        "cluster_id",
        "controller_id",
        "rack",
        "is_internal",
        "offline_replicas",
        "leader_epoch",
        "topic_id",
    ),
)

_log = logging.getLogger("moldau.broker.requests")

_FIRST_BY_ID = 12

Wanted = tuple[str | None, UUID | None]


class _Asked(NamedTuple):
    """What a request is about."""

    wanted: list[Wanted] | None  # None: all topics
    denied: Collection[str]
    wording: Wording
    tells_cluster_operations: bool  # versions 8 to 10


def handle(request: MetadataRequest, context: RequestContext) -> Values | Awaitable[Values]:
    """At once, where all that is asked for is known and encoded: so it is with most requests."""
    wanted = _wanted_topics(request, context.version)
    creates = getattr(request, "allow_auto_topic_creation", True)
    asked = _Asked(
        wanted,
        _find_denied(wanted or (), context, creates=creates),
        # From version 8 on.
        Wording(
            API, context.version, getattr(request, "include_topic_authorized_operations", False)
        ),
        getattr(request, "include_cluster_authorized_operations", False),
    )
    missing = _find_missing(asked, context) if creates else []
    if missing:
        return _create_and_answer(asked, missing, context)
    image = context.services.image
    topics = _find_topics(asked, image, context)
    bodies = None
    if context.services.authorizer is None or not asked.wording.tells_operations:
        known = (topic for topic in topics if topic is not None)
        bodies = context.services.encoded_topics.find(known, image, asked.wording)
    if bodies is None:
        return _encode_and_answer(asked, (), image, topics, context)
    return _answer(asked, (), image, topics, bodies, context)


async def _create_and_answer(
    asked: _Asked, missing: Iterable[str], context: RequestContext
) -> Values:
    refused: set[str] = set()
    # Also when the client has gone, but not when the broker stops: it is completed and audited.
    work = _create_missing(missing, refused, context)
    await asyncio.shield(context.services.spawn("topics on demand", work))
    image = context.services.image
    topics = _find_topics(asked, image, context)
    return await _encode_and_answer(asked, refused, image, topics, context)


async def _encode_and_answer(
    asked: _Asked,
    refused: Collection[str],
    image: MetadataImage,
    topics: Sequence[TopicState | None],
    context: RequestContext,
) -> Values:
    services = context.services
    operations_of = None
    if services.authorizer is not None and asked.wording.tells_operations:
        operations_of = partial(topic_operations, context)
    known = [topic for topic in topics if topic is not None]
    bodies = await services.encoded_topics.encode(known, image, asked.wording, operations_of)
    return _answer(asked, refused, image, topics, bodies, context)


def _answer(
    asked: _Asked,
    refused: Collection[str],
    image: MetadataImage,
    topics: Sequence[TopicState | None],
    bodies: Sequence[bytes],
    context: RequestContext,
) -> Values:
    """`bodies` are those of the topics that are not None."""
    brokers = context.services.told_brokers
    endpoints = reachable_endpoints(brokers, context.connection.listener_name)
    values: Values = {
        "brokers": [
            {
                "node_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": brokers[broker_id].rack,
            }
            for broker_id, endpoint in endpoints.items()
        ],
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "topics": EncodedArray(_with_missing(asked, refused, topics, bodies)),
    }
    if context.version >= 13:
        values["error_code"] = ErrorCode.none
    if asked.tells_cluster_operations:
        values["cluster_authorized_operations"] = cluster_operations(context)
    return values


def _with_missing(
    asked: _Asked,
    refused: Collection[str],
    topics: Sequence[TopicState | None],
    bodies: Sequence[bytes],
) -> Sequence[bytes]:
    """What is said of topics that there are, and of those that were asked for in vain."""
    if asked.wanted is None:
        return bodies
    encoded = iter(bodies)
    return [
        next(encoded)
        if topic is not None
        else _answer_missing(
            name,
            topic_id,
            asked.wording.version,
            is_denied=name in asked.denied,
            is_refused=name in refused,
        )
        for (name, topic_id), topic in zip(asked.wanted, topics, strict=True)
    ]


def _wanted_topics(request: MetadataRequest, version: int) -> list[Wanted] | None:
    """None means all topics; version 0 could not say null and used an empty list. Each topic once,
    as in Kafka: naming a large one ten thousand times makes no larger answer. Where an id is given
    there is no name: Java's client sends an empty one with it. Before version 12 an answer has to
    name the topic, so an id alone says nothing there."""
    if request.topics is None or (version == 0 and not request.topics):
        return None
    return list(
        dict.fromkeys(
            (topic.name or "", None) if topic_id is None else (None, topic_id)
            for topic in request.topics
            for topic_id in (topic.topic_id if version >= _FIRST_BY_ID else None,)
        )
    )


def _find_denied(
    wanted: Iterable[Wanted], context: RequestContext, *, creates: bool
) -> frozenset[str]:
    """The named topics of which the client may not know, or which it may not have made."""
    services = context.services
    if services.authorizer is None:
        return frozenset()
    creates = creates and services.options.auto_create_topics_enable
    topics = services.image.topics
    return frozenset(
        name
        for name, _ in wanted
        if name
        and not (
            may_topic(context, AclOperation.DESCRIBE, name)
            and (name in topics or not creates or may_create_topic(context, name))
        )
    )


def _find_topics(
    asked: _Asked, image: MetadataImage, context: RequestContext
) -> Sequence[TopicState | None]:
    """Those that the client may see; None for one that it named, and gets no answer about."""
    has_authorizer = context.services.authorizer is not None
    if asked.wanted is None:
        every = list(image.topics.values())
        if not has_authorizer:
            return every
        return [one for one in every if may_see(context, AclResourceType.TOPIC, one.name)]
    found = [_find_topic(name, topic_id, image) for name, topic_id in asked.wanted]
    if has_authorizer:
        found = [_unless_hidden(topic, asked.denied, context) for topic in found]
    return found


def _unless_hidden(
    topic: TopicState | None, denied: Collection[str], context: RequestContext
) -> TopicState | None:
    if topic is None or topic.name in denied:
        return None
    return topic if may_see(context, AclResourceType.TOPIC, topic.name) else None


def _find_topic(name: str | None, topic_id: UUID | None, image: MetadataImage) -> TopicState | None:
    if name is None and topic_id is not None:
        return image.topics_by_id.get(topic_id)
    return image.topics.get(name or "")


def _answer_missing(
    name: str | None, topic_id: UUID | None, version: int, *, is_denied: bool, is_refused: bool
) -> bytes:
    """Not kept: anybody may ask for any name."""
    if is_denied:
        error = ErrorCode.topic_authorization_failed
    elif name is None and topic_id is not None:
        error = ErrorCode.unknown_topic_id
    elif is_refused or find_topic_name_fault(name or "") is not None:
        error = ErrorCode.invalid_topic_exception
    else:
        error = ErrorCode.unknown_topic_or_partition
    values = bare_topic_values(name, topic_id, error)
    return encode_element(answered_class(API, version, "topics"), values, API)


def _find_missing(asked: _Asked, context: RequestContext) -> list[str]:
    """The topics that are to be made because somebody asks for them."""
    services = context.services
    if asked.wanted is None or not services.options.auto_create_topics_enable:
        return []
    topics = services.image.topics
    return [
        name for name, _ in asked.wanted if name and name not in asked.denied and name not in topics
    ]


async def _create_missing(
    missing: Iterable[str], refused: set[str], context: RequestContext
) -> None:
    """`refused` gets the names that no topic can have beside those that there are.

    Their clients are told at once; in Kafka they ask for the topic until their time is up.
    """
    services = context.services
    for name in missing:
        if find_topic_name_fault(name) is not None or name in INTERNAL_TOPICS:
            continue
        try:
            await services.topic_maker.create_topic(TopicSpec(name=name))
        except TopicExistsError:
            continue  # another client was faster
        except InvalidTopicError as error:
            refused.add(name)
            _log.warning("cannot make topic %s on demand: %s", name, error)
        except KafkaError as error:
            _log.warning("cannot make topic %s on demand: %s", name, error)
        else:
            audit_change(context, f"Topic:{name}")
    await services.wait_until_applied()
