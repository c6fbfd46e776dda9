"""How tools see a consumer group. A rule."""

from __future__ import annotations

from moldau.groups.rules.answers import (
    DescribedConsumer,
    DescribedConsumerGroup,
    GroupType,
    ListedGroup,
)
from moldau.groups.rules.consumer_group import ConsumerGroup
from moldau.groups.rules.limits import GroupLimits
from moldau.groups.rules.subscription import CONSUMER_PROTOCOL_TYPE
from moldau.groups.rules.wanted_topics import preferred_assignor


def list_consumer_group(group: ConsumerGroup) -> ListedGroup:
    return ListedGroup(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state, GroupType.CONSUMER)


def describe_consumer_group(group: ConsumerGroup, limits: GroupLimits) -> DescribedConsumerGroup:
    members = []
    for member_id, wanted in group.subscriptions.items():
        current = group.assignment_of(member_id)
        members.append(
            DescribedConsumer(
                member_id=member_id,
                instance_id=wanted.instance_id,
                rack_id=wanted.rack_id,
                epoch=current.epoch,
                client_id=wanted.client_id,
                client_host=wanted.client_host,
                topics=wanted.topics,
                regex=wanted.regex,
                assigned=current.assigned,
                target=group.target_of(member_id),
                is_classic=wanted.classic is not None,
            )
        )
    return DescribedConsumerGroup(
        group_id=group.group_id,
        state=group.state,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=preferred_assignor(group.subscriptions, limits),
        members=tuple(members),
    )
