"""ConsumerGroupDescribe, versions 0 and 1: consumer groups with their members and epochs (KIP-848).

v1 whether a member speaks the classic protocol. A group that is not there, and one of classic
members, is GROUP_ID_NOT_FOUND: tools ask DescribeGroups then.
"""

from __future__ import annotations

from kio.schema.consumer_group_describe.v1 import ConsumerGroupDescribeRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import describe_groups, shape_partitions
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.epoch_group import DescribedConsumer
from moldau.wire.apis import CONSUMER_GROUP_DESCRIBE

API = serves(CONSUMER_GROUP_DESCRIBE, droppable=("member_type",))

_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


async def handle(request: ConsumerGroupDescribeRequest, context: RequestContext) -> Values:
    return await describe_groups(
        request.group_ids,
        context,
        noun="consumer group",
        find=context.services.groups.describe_consumer_group,
        shape_member=_shape_member,
        tells_operations=request.include_authorized_operations,
    )


def _shape_member(member: DescribedConsumer, image: MetadataImage) -> Values:
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
