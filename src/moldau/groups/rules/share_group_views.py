"""How tools see a share group. A rule."""

from __future__ import annotations

from moldau.groups.rules.answers import (
    DescribedConsumer,
    DescribedConsumerGroup,
    GroupType,
    ListedGroup,
)
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.share_group import ShareGroup

PROTOCOL_TYPE = "share"


def list_share_group(group: ShareGroup) -> ListedGroup:
    return ListedGroup(group.group_id, PROTOCOL_TYPE, group.state, GroupType.SHARE)


def describe_share_group(group: ShareGroup, limits: GroupLimits) -> DescribedConsumerGroup:
    members = []
    for member_id, wanted in group.subscriptions.items():
        current = group.assignment_of(member_id)
        members.append(
            DescribedConsumer(
                member_id=member_id,
                instance_id=None,
                rack_id=wanted.rack_id,
                epoch=current.epoch,
                client_id=wanted.client_id,
                client_host=wanted.client_host,
                topics=wanted.topics,
                regex=None,
                assigned=current.assigned,
                target=group.target_of(member_id),
            )
        )
    return DescribedConsumerGroup(
        group_id=group.group_id,
        state=group.state,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=limits.share_assignors[0],
        members=tuple(members),
    )
