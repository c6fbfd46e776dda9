"""What the descriptions of consumer groups and of share groups share: groups of epochs and members,
with what these have. A shell without state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from moldau.broker.api import RequestContext
from moldau.broker.authorization import NOT_ASKED, group_operations, may_group, may_topic
from moldau.broker.group_requests import respond
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions
from moldau.coordinators.groups.rules.epoch_group import DescribedConsumer, DescribedConsumerGroup
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import ErrorCode
from moldau.model import AclOperation

_Values = dict[str, object]


async def describe_groups(
    group_ids: Sequence[str],
    context: RequestContext,
    *,
    noun: str,
    find: Callable[[str], Eventually[DescribedConsumerGroup | None]],
    shape_member: Callable[[DescribedConsumer, MetadataImage], _Values],
    tells_operations: bool,
) -> _Values:
    """The answer. `find` asks the coordinator for a group of this kind, whose name is `noun`."""

    def describe(group_id: str) -> Eventually[_Values]:
        def shape(found: DescribedConsumerGroup | None) -> _Values:
            if found is None:
                message = f"there is no {noun} {group_id!r}"
                return _refuse(group_id, ErrorCode.group_id_not_found, message)
            if not _may_see_topics(found, context):
                message = "the group reads topics that the principal may not describe"
                return _refuse(group_id, ErrorCode.topic_authorization_failed, message)
            operations = group_operations(context, group_id) if tells_operations else NOT_ASKED
            members = [shape_member(one, context.services.image) for one in found.members]
            return {**_shape(found, members), "authorized_operations": operations}

        if not group_id:
            return _refuse(group_id, ErrorCode.invalid_group_id)
        if not may_group(context, AclOperation.DESCRIBE, group_id):
            return _refuse(group_id, ErrorCode.group_authorization_failed)
        return respond(lambda: find(group_id), shape, lambda error: _refuse(group_id, error))

    return {
        "throttle_time": 0,
        "groups": [await wait_for_answer(describe(group_id)) for group_id in group_ids],
    }


def _may_see_topics(group: DescribedConsumerGroup, context: RequestContext) -> bool:
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


def _refuse(group_id: str, error: ErrorCode, message: str | None = None) -> dict[str, object]:
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


def _shape(
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


def shape_partitions(partitions: AssignedPartitions, image: MetadataImage) -> dict[str, object]:
    """Topics that are gone have no name to be shown by."""
    rows = []
    for topic_id, some in partitions.items():
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            numbers = tuple(sorted(some))
            rows.append({"topic_id": topic_id, "topic_name": topic.name, "partitions": numbers})
    return {"topic_partitions": rows}
