"""DeleteShareGroupOffsets, version 0: a share group forgets what it has done in some topics.

The coordinator of the group answers, when the share coordinators have done it. A group with members
is NON_EMPTY_GROUP. When somebody wants the topics again, the group begins in them as in new ones.
With an authorizer it takes DELETE of the group and READ of each topic.
"""

from __future__ import annotations

from uuid import UUID

from kio.schema.delete_share_group_offsets.v0 import DeleteShareGroupOffsetsRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import audit_change, may_topic, require_group
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation
from moldau.wire.apis import DELETE_SHARE_GROUP_OFFSETS

API = serves(DELETE_SHARE_GROUP_OFFSETS, changes_cluster=True)


async def handle(request: DeleteShareGroupOffsetsRequest, context: RequestContext) -> Values:
    services = context.services
    names = [topic.topic_name for topic in request.topics]
    denied = {name for name in names if not may_topic(context, AclOperation.READ, name)}
    error, message = ErrorCode.none, None
    responses: list[Values] = []
    try:
        require_group(context, AclOperation.DELETE, request.group_id)
        states = await services.groups.find_state_topics(request.group_id)
        kept = {
            topic.name: topic_id
            for topics in (states.initializing, states.initialized)
            for topic_id, topic in topics.items()
        } | {name: topic_id for topic_id, name in states.deleting.items()}
        wanted = frozenset(kept[name] for name in names if name in kept and name not in denied)
        error, done = await services.groups.delete_share_offsets(request.group_id, wanted)
        if error is ErrorCode.none:
            responses = [
                _refuse(name) if name in denied else _shape(name, kept.get(name), done, context)
                for name in names
            ]
    except KafkaError as fault:
        error, message = fault.code, str(fault)
    audit_change(context, f"Group:{request.group_id}", error)
    return {
        "error_code": error,
        "error_message": message,
        "responses": responses,
    }


def _refuse(name: str) -> Values:
    return {
        "topic_name": name,
        "topic_id": None,
        "error_code": ErrorCode.topic_authorization_failed,
        "error_message": None,
    }


def _shape(
    name: str, topic_id: UUID | None, done: frozenset[UUID], context: RequestContext
) -> Values:
    """A topic of which the group knows nothing has nothing to be deleted."""
    code = ErrorCode.none
    if topic_id is not None:
        code = ErrorCode.none if topic_id in done else ErrorCode.coordinator_not_available
    elif (topic := context.services.image.topics.get(name)) is None:
        code = ErrorCode.unknown_topic_or_partition
    else:
        topic_id = topic.topic_id
    return {
        "topic_name": name,
        "topic_id": topic_id,
        "error_code": code,
        "error_message": None,
    }
