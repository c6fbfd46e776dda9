"""ShareGroupDescribe, version 1: share groups with their members and epochs (KIP-932).

A group that is not there, and one of another kind, is GROUP_ID_NOT_FOUND.
With an authorizer it takes DESCRIBE of the group and of all its topics.
"""

from __future__ import annotations

from kio.schema.share_group_describe.v1 import ShareGroupDescribeRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import describe_groups, shape_partitions
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.epoch_group import DescribedConsumer
from moldau.wire.apis import SHARE_GROUP_DESCRIBE

API = serves(SHARE_GROUP_DESCRIBE)


async def handle(request: ShareGroupDescribeRequest, context: RequestContext) -> Values:
    return await describe_groups(
        request.group_ids,
        context,
        noun="share group",
        find=context.services.groups.describe_share_group,
        shape_member=_shape_member,
        tells_operations=request.include_authorized_operations,
    )


def _shape_member(member: DescribedConsumer, image: MetadataImage) -> Values:
    return {
        "member_id": member.member_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": tuple(sorted(member.topics)),
        "assignment": shape_partitions(member.assigned, image),
    }
