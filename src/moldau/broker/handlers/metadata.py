"""Metadata, versions 0 to 13.

Tells brokers, topics, partitions and their leaders. An unknown topic is made when the client asks
for it and `auto.create.topics.enable` allows.

v0 an empty list means all topics; v1 null means all, adds rack, controller and is_internal; v2
cluster id; v3 throttle time; v4 says whether topics may be made; v5 offline replicas; v7 leader
epoch; v8 authorized operations; v9 flexible; v10 topic ids; v12 asks by topic id; v13 a top-level
error.

What is said about a topic is the same for every client and encoded once (`broker.encoded_topics`).
Correlation ids differ, and the addresses of brokers, which are those of the listener asked.

With an authorizer a client sees the topics that it may DESCRIBE. Others that it names are
TOPIC_AUTHORIZATION_FAILED, whether they exist or not, and UNKNOWN_TOPIC_ID where it names them by
their ids. To have one made takes CREATE, of the topic or of the cluster.

Differences from Kafka: a topic made by this request is answered at once with its leader, where
Kafka answers LEADER_NOT_AVAILABLE first and lets the client ask again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from moldau.broker.api import serves
from moldau.broker.authorization import audit_change, may_create_topic, may_see, may_topic
from moldau.broker.authorized_operations import cluster_operations, topic_operations
from moldau.broker.encoded_topics import Wording
from moldau.broker.request_context import RequestContext
from moldau.broker.slices import answered_class, encode_element
from moldau.broker.topic_metadata import bare_topic_values, reachable_endpoints
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.cluster.rules.topic_creation import TopicSpec
from moldau.errors import ErrorCode, KafkaError, TopicExistsError
from moldau.model.acls import AclOperation, AclResourceType
from moldau.model.topic_names import INTERNAL_TOPICS, find_name_fault
from moldau.wire.apis import METADATA
from moldau.wire.shape import EncodedArray

if TYPE_CHECKING:
    from kio.schema.metadata.v12 import MetadataRequest

API = serves(
    METADATA,
    droppable=(
        "throttle_time",
        "cluster_id",
        "controller_id",
        "rack",
        "is_internal",
        "offline_replicas",
        "leader_epoch",
        "topic_id",
    ),
)

_log = logging.getLogger(__name__)

_FIRST_BY_ID = 12

Wanted = tuple[str | None, UUID | None]


async def handle(request: MetadataRequest, context: RequestContext) -> dict[str, object]:
    wanted = _wanted_topics(request, context.version)
    creates = getattr(request, "allow_auto_topic_creation", True)
    denied = _find_denied(wanted or (), context, creates=creates)
    if wanted is not None and creates:
        await _create_missing([name for name, _ in wanted if name and name not in denied], context)
    image = context.services.image
    endpoints = reachable_endpoints(image, context.connection.listener_name)
    values: dict[str, object] = {
        "throttle_time": 0,
        "brokers": [
            {
                "node_id": broker_id,
                "host": endpoint.host,
                "port": endpoint.port,
                "rack": image.brokers[broker_id].rack,
            }
            for broker_id, endpoint in endpoints.items()
        ],
        "cluster_id": image.cluster_id,
        "controller_id": image.controller_id,
        "topics": await _answer_topics(wanted, denied, image, request, context),
    }
    if context.version >= 13:
        values["error_code"] = ErrorCode.none
    if getattr(request, "include_cluster_authorized_operations", False):  # versions 8 to 10
        values["cluster_authorized_operations"] = cluster_operations(context)
    return values


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


async def _answer_topics(
    wanted: list[Wanted] | None,
    denied: Collection[str],
    image: MetadataImage,
    request: MetadataRequest,
    context: RequestContext,
) -> EncodedArray:
    wording = Wording(
        API,
        context.version,
        # From version 8 on.
        tells_operations=getattr(request, "include_topic_authorized_operations", False),
    )
    has_authorizer = context.services.authorizer is not None
    operations_of = None
    if has_authorizer and wording.tells_operations:
        operations_of = partial(topic_operations, context)
    encode = context.services.encoded_topics.encode
    if wanted is None:
        topics: Iterable[TopicState] = image.topics.values()
        if has_authorizer:
            topics = [one for one in topics if may_see(context, AclResourceType.TOPIC, one.name)]
        return EncodedArray(await encode(topics, image, wording, operations_of))
    found = [_find_topic(name, topic_id, image) for name, topic_id in wanted]
    if has_authorizer:
        found = [_unless_hidden(topic, denied, context) for topic in found]
    known = await encode([topic for topic in found if topic], image, wording, operations_of)
    encoded = iter(known)
    return EncodedArray(
        [
            next(encoded)
            if topic
            else _answer_missing(name, topic_id, context.version, is_denied=name in denied)
            for (name, topic_id), topic in zip(wanted, found, strict=True)
        ]
    )


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
    name: str | None, topic_id: UUID | None, version: int, *, is_denied: bool
) -> bytes:
    """Not kept: anybody may ask for any name."""
    if is_denied:
        error = ErrorCode.topic_authorization_failed
    elif name is None and topic_id is not None:
        error = ErrorCode.unknown_topic_id
    elif find_name_fault(name or "") is not None:
        error = ErrorCode.invalid_topic_exception
    else:
        error = ErrorCode.unknown_topic_or_partition
    values = bare_topic_values(name, topic_id, error)
    return encode_element(answered_class(API, version, "topics"), values, API)


async def _create_missing(names: Iterable[str], context: RequestContext) -> None:
    services = context.services
    missing = [name for name in names if name not in services.image.topics]
    if not missing or not services.options.auto_create_topics_enable:
        return
    for name in missing:
        if find_name_fault(name) is not None or name in INTERNAL_TOPICS:
            continue
        try:
            await services.topic_maker.create_topic(TopicSpec(name=name))
        except TopicExistsError:
            continue  # another client was faster
        except KafkaError as error:
            _log.warning("cannot make topic %s on demand: %s", name, error)
        else:
            audit_change(context, f"Topic:{name}")
    await services.wait_until_applied()
