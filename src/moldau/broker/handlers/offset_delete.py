"""OffsetDelete, version 0 (KIP-496): forgets how far a group has read in topics it no longer reads.

Positions of a topic that the group is subscribed to are GROUP_SUBSCRIBED_TO_TOPIC.
"""

from __future__ import annotations

from kio.schema.offset_delete.v0 import OffsetDeleteRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import audit_change, may_group, may_topic
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.events import DeleteOffsets, PartitionsAnswer
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import OFFSET_DELETE

API = serves(OFFSET_DELETE, changes_cluster=True)


def handle(request: OffsetDeleteRequest, context: RequestContext) -> Eventually[Values]:
    if not request.group_id:
        return _refuse(ErrorCode.invalid_group_id)
    if not may_group(context, AclOperation.DELETE, request.group_id):
        return _refuse(ErrorCode.group_authorization_failed)
    denied = _denied_topics(request, context)
    groups = context.services.groups
    wanted = [key for key in _known_partitions(request, context) if key[0] not in denied]
    event = DeleteOffsets(group_id=request.group_id, partitions=tuple(wanted))

    def shape(answer: PartitionsAnswer) -> Values:
        audit_change(context, f"Group:{request.group_id}", answer.error)
        if answer.error is not ErrorCode.none:
            return _refuse(answer.error)
        return _shape(request, dict(zip(wanted, answer.errors, strict=True)), denied)

    return respond(lambda: groups.submit(event), shape, _refuse)


def _denied_topics(request: OffsetDeleteRequest, context: RequestContext) -> frozenset[str]:
    if context.services.authorizer is None:
        return frozenset()
    return frozenset(
        topic.name
        for topic in request.topics
        if not may_topic(context, AclOperation.READ, topic.name)
    )


def _known_partitions(
    request: OffsetDeleteRequest, context: RequestContext
) -> list[tuple[str, int]]:
    """Each one once; what does not exist is not for the coordinator."""
    image = context.services.image
    named = {
        (str(topic.name), int(wanted.partition_index)): None
        for topic in request.topics
        for wanted in topic.partitions
    }
    return [key for key in named if image.find_partition(*key) is not None]


def _refuse(error: ErrorCode) -> Values:
    return {"error_code": error, "topics": []}


def _shape(
    request: OffsetDeleteRequest, errors: dict[tuple[str, int], ErrorCode], denied: frozenset[str]
) -> Values:
    def error_of(topic: str, partition: int) -> ErrorCode:
        if topic in denied:
            return ErrorCode.topic_authorization_failed
        return errors.get((topic, partition), ErrorCode.unknown_topic_or_partition)

    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": wanted.partition_index,
                        "error_code": error_of(topic.name, wanted.partition_index),
                    }
                    for wanted in topic.partitions
                ],
            }
            for topic in request.topics
        ],
    }
