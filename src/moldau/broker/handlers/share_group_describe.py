"""ShareGroupDescribe, version 1: share groups with their members and epochs (KIP-932).

A group that is not there, and one of another kind, is GROUP_ID_NOT_FOUND.
With an authorizer it takes DESCRIBE of the group and of all its topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.broker.api import serves
from moldau.broker.authorization import may_group
from moldau.broker.authorized_operations import NOT_ASKED, group_operations
from moldau.broker.group_requests import respond
from moldau.broker.handlers.consumer_group_describe import (
    may_see_topics,
    refuse_group,
    shape_group,
    shape_partitions,
)
from moldau.broker.request_context import RequestContext
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.errors import ErrorCode
from moldau.groups.rules.answers import DescribedConsumer, DescribedConsumerGroup
from moldau.model.acls import AclOperation
from moldau.shards.state_shard import Eventually, wait_for_answer
from moldau.wire.apis import SHARE_GROUP_DESCRIBE

if TYPE_CHECKING:
    from kio.schema.share_group_describe.v1 import ShareGroupDescribeRequest

API = serves(SHARE_GROUP_DESCRIBE)


async def handle(request: ShareGroupDescribeRequest, context: RequestContext) -> dict[str, object]:
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
            message = f"there is no share group {group_id!r}"
            return refuse_group(group_id, ErrorCode.group_id_not_found, message)
        if not may_see_topics(found, context):
            message = "the group takes from topics that the principal may not describe"
            return refuse_group(group_id, ErrorCode.topic_authorization_failed, message)
        operations = group_operations(context, group_id) if tells_operations else NOT_ASKED
        members = [_shape_member(member, services.image) for member in found.members]
        return {**shape_group(found, members), "authorized_operations": operations}

    if not group_id:
        return refuse_group(group_id, ErrorCode.invalid_group_id)
    if not may_group(context, AclOperation.DESCRIBE, group_id):
        return refuse_group(group_id, ErrorCode.group_authorization_failed)
    return respond(
        lambda: services.groups.shares.describe(group_id),
        shape,
        lambda error: refuse_group(group_id, error),
    )


def _shape_member(member: DescribedConsumer, image: MetadataImage) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": tuple(sorted(member.topics)),
        "assignment": shape_partitions(member.assigned, image),
    }
