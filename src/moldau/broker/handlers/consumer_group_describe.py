"""ConsumerGroupDescribe, versions 0 and 1: consumer groups with their members and epochs (KIP-848).

v1 whether a member speaks the classic protocol. A group that is not there, and one of classic
members, is GROUP_ID_NOT_FOUND: tools ask DescribeGroups then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.authorization import may_group, may_topic
from moldau.broker.authorized_operations import NOT_ASKED, group_operations
from moldau.broker.group_requests import respond
from moldau.broker.request_context import RequestContext
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode
from moldau.groups.rules.answers import DescribedConsumer, DescribedConsumerGroup
from moldau.groups.rules.assigned_partitions import AssignedPartitions
from moldau.model.acls import AclOperation
from moldau.shards.state_shard import Eventually, wait_for_answer
from moldau.wire.apis import CONSUMER_GROUP_DESCRIBE

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1 import ConsumerGroupDescribeRequest

API = serves(CONSUMER_GROUP_DESCRIBE, droppable=("member_type",))

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


async def handle(
    request: ConsumerGroupDescribeRequest, context: RequestContext
) -> dict[str, object]:
    is_asked = request.include_authorized_operations
    return {
        "throttle_time": 0,
        "groups": [
            await wait_for_answer(_describe(group_id, is_asked, context))
            for group_id in request.group_ids
        ],
    }


def _describe(
    group_id: str, tells_operations: bool, context: RequestContext
) -> Eventually[dict[str, object]]:
    services = context.services

    def shape(found: DescribedConsumerGroup | None) -> dict[str, object]:
        if found is None:
            message = f"there is no consumer group {group_id!r}"
            return refuse_group(group_id, ErrorCode.group_id_not_found, message)
        if not may_see_topics(found, context):
            message = "the group reads topics that the principal may not describe"
            return refuse_group(group_id, ErrorCode.topic_authorization_failed, message)
        operations = group_operations(context, group_id) if tells_operations else NOT_ASKED
        members = [_shape_member(member, services.image) for member in found.members]
        return {**shape_group(found, members), "authorized_operations": operations}

    if not group_id:
        return refuse_group(group_id, ErrorCode.invalid_group_id)
    if not may_group(context, AclOperation.DESCRIBE, group_id):
        return refuse_group(group_id, ErrorCode.group_authorization_failed)
    return respond(
        lambda: services.groups.describe_consumer_group(group_id),
        shape,
        lambda error: refuse_group(group_id, error),
    )


def may_see_topics(group: DescribedConsumerGroup, context: RequestContext) -> bool:
    """Whether the client may know of all topics that members read or will; Kafka tells all of a
    group or nothing."""
    if context.services.authorizer is None:
        return True
    by_id = context.services.image.topics_by_id
    ids = {
        topic_id
        for member in group.members
        for partitions in (member.assigned, member.target)
        for topic_id in partitions
    }
    named = {topic for member in group.members for topic in member.topics}
    names = named | {by_id[topic_id].name for topic_id in ids if topic_id in by_id}
    return all(may_topic(context, AclOperation.DESCRIBE, name) for name in sorted(names))


def refuse_group(group_id: str, error: ErrorCode, message: str | None = None) -> dict[str, object]:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }


def shape_group(
    group: DescribedConsumerGroup, members: Sequence[dict[str, object]]
) -> dict[str, object]:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": members,
    }


def _shape_member(member: DescribedConsumer, image: MetadataImage) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": tuple(sorted(member.topics)),
        "subscribed_topic_regex": member.regex,
        "assignment": shape_partitions(member.assigned, image),
        "target_assignment": shape_partitions(member.target, image),
        "member_type": _CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    }


def shape_partitions(partitions: AssignedPartitions, image: MetadataImage) -> dict[str, object]:
    """Topics that are gone have no name to be shown by."""
    rows = []
    for topic_id, some in partitions.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            numbers = tuple(sorted(some))
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": numbers})
    return {"topic_partitions": rows}
