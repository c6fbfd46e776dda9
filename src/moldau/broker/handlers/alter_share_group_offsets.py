"""AlterShareGroupOffsets, version 0: begins partitions of a share group anew, at given offsets.

The coordinator of the group answers, when the share coordinators have done it. A group with members
is NON_EMPTY_GROUP. Everything that was known of the partitions in the group is forgotten: what was
delivered, and how often. With an authorizer it takes READ of the group and of each topic.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from kio.schema.alter_share_group_offsets.v0 import AlterShareGroupOffsetsRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import audit_change, may_topic, require_group
from moldau.coordinators.groups.coordinator import PartitionIds
from moldau.coordinators.groups.rules.events import NewState
from moldau.errors import ErrorCode, KafkaError
from moldau.model import AclOperation
from moldau.wire.apis import ALTER_SHARE_GROUP_OFFSETS

API = serves(ALTER_SHARE_GROUP_OFFSETS, changes_cluster=True)


async def handle(request: AlterShareGroupOffsetsRequest, context: RequestContext) -> Values:
    services = context.services
    ids: dict[str, UUID] = {}
    denied: set[str] = set()
    states: list[NewState] = []
    for topic in request.topics:
        if not may_topic(context, AclOperation.READ, topic.topic_name):
            denied.add(topic.topic_name)
            continue
        known = services.image.topics.get(topic.topic_name)
        if known is None:
            continue
        ids[topic.topic_name] = known.topic_id
        states += (
            NewState(known.topic_id, row.partition_index, row.start_offset)
            for row in topic.partitions
            if known.find_partition(row.partition_index) is not None
        )
    error, message = ErrorCode.none, None
    done: PartitionIds = frozenset()
    try:
        require_group(context, AclOperation.READ, request.group_id)
        names = {topic_id: name for name, topic_id in ids.items()}
        error, done = await services.groups.alter_share_offsets(request.group_id, states, names)
    except KafkaError as fault:
        error, message = fault.code, str(fault)
    audit_change(context, f"Group:{request.group_id}", error)
    asked = frozenset((one.topic_id, one.partition) for one in states)
    return {
        "error_code": error,
        "error_message": message,
        "responses": []
        if error is not ErrorCode.none
        else _shape(request, ids, denied, lambda key: _code(key, asked, done)),
    }


def _shape(
    request: AlterShareGroupOffsetsRequest,
    ids: dict[str, UUID],
    denied: set[str],
    code: Callable[[tuple[UUID | None, int]], ErrorCode],
) -> list[Values]:
    def error_of(topic: str, partition: int) -> ErrorCode:
        if topic in denied:
            return ErrorCode.topic_authorization_failed
        return code((ids.get(topic), partition))

    return [
        {
            "topic_name": topic.topic_name,
            "topic_id": ids.get(topic.topic_name),
            "partitions": [
                {
                    "partition_index": row.partition_index,
                    "error_code": error_of(topic.topic_name, row.partition_index),
                    "error_message": None,
                }
                for row in topic.partitions
            ],
        }
        for topic in request.topics
    ]


def _code(key: tuple[UUID | None, int], asked: PartitionIds, done: PartitionIds) -> ErrorCode:
    if key not in asked:
        return ErrorCode.unknown_topic_or_partition
    return ErrorCode.none if key in done else ErrorCode.coordinator_not_available
