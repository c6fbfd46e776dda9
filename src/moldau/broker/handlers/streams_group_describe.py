"""StreamsGroupDescribe, version 0: streams groups with their topology, members and tasks
(KIP-1071).

A group that is not there, and one of another kind, is GROUP_ID_NOT_FOUND. Internal topics have
their numbers of partitions when all topics of the group are as they must be; else those that the
application has asked for.
With an authorizer it takes DESCRIBE of the group and of all its topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kio.schema.streams_group_describe.v0 import StreamsGroupDescribeRequest

from moldau.broker.api import RequestContext, Values, error_values, serves
from moldau.broker.authorization import NOT_ASKED, group_operations, may_group, may_topic
from moldau.broker.coordinator_requests import respond
from moldau.broker.handlers.streams_group_heartbeat import shape_tasks
from moldau.coordinators.groups.rules.streams_group import (
    DescribedStreamsGroup,
    DescribedStreamsMember,
)
from moldau.coordinators.groups.rules.streams_topology import (
    Subtopology,
    Tasks,
    TopicInfo,
    Topology,
)
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import STREAMS_GROUP_DESCRIBE

API = serves(STREAMS_GROUP_DESCRIBE)

_Values = Values


async def handle(request: StreamsGroupDescribeRequest, context: RequestContext) -> _Values:
    tells_operations = request.include_authorized_operations
    rows = [
        await wait_for_answer(_describe(group_id, context, tells_operations))
        for group_id in request.group_ids
    ]
    return {"groups": rows}


def _describe(
    group_id: str, context: RequestContext, tells_operations: bool
) -> Eventually[_Values]:
    def shape(found: DescribedStreamsGroup | None) -> _Values:
        if found is None:
            message = f"there is no streams group {group_id!r}"
            return _refuse(group_id, ErrorCode.group_id_not_found, message)
        topics = () if found.topology is None else sorted(found.topology.all_topics)
        if not all(may_topic(context, AclOperation.DESCRIBE, name) for name in topics):
            message = "the group has topics that the principal may not describe"
            return _refuse(group_id, ErrorCode.topic_authorization_failed, message)
        operations = group_operations(context, group_id) if tells_operations else NOT_ASKED
        return {**_shape(found), "authorized_operations": operations}

    if not group_id:
        return _refuse(group_id, ErrorCode.invalid_group_id)
    if not may_group(context, AclOperation.DESCRIBE, group_id):
        return _refuse(group_id, ErrorCode.group_authorization_failed)
    return respond(
        lambda: context.services.groups.describe_streams_group(group_id),
        shape,
        lambda error: _refuse(group_id, error),
    )


def _refuse(group_id: str, error: ErrorCode, message: str | None = None) -> _Values:
    return {
        "error_code": error,
        "error_message": message,
        "group_id": group_id,
        "group_state": "",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "topology": None,
        "members": [],
    }


def _shape(group: DescribedStreamsGroup) -> _Values:
    topology = group.topology
    return {
        **error_values(None),
        "group_id": group.group_id,
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "topology": None if topology is None else _shape_topology(topology, group.partition_counts),
        "members": [_shape_member(one) for one in group.members],
    }


def _shape_topology(topology: Topology, counts: Mapping[str, int]) -> _Values:
    ordered = sorted(topology.subtopologies, key=lambda one: one.subtopology_id)
    return {
        "epoch": topology.epoch,
        "subtopologies": [_shape_subtopology(one, counts) for one in ordered],
    }


def _shape_subtopology(subtopology: Subtopology, counts: Mapping[str, int]) -> _Values:
    return {
        "subtopology_id": subtopology.subtopology_id,
        "source_topics": tuple(sorted(subtopology.source_topics)),
        "repartition_sink_topics": tuple(sorted(subtopology.repartition_sinks)),
        "state_changelog_topics": _shape_topics(subtopology.changelog_topics, counts),
        "repartition_source_topics": _shape_topics(subtopology.repartition_sources, counts),
    }


def _shape_topics(topics: Iterable[TopicInfo], counts: Mapping[str, int]) -> list[_Values]:
    return [
        {
            "name": one.name,
            "partitions": counts.get(one.name, one.partition_count),
            "replication_factor": one.replication_factor,
            "topic_configs": _shape_pairs(one.configs),
        }
        for one in sorted(topics)
    ]


def _shape_pairs(pairs: Iterable[tuple[str, str]]) -> list[_Values]:
    return [{"key": name, "value": value} for name, value in pairs]


def _shape_member(row: DescribedStreamsMember) -> _Values:
    member, endpoint = row.member, row.member.endpoint
    return {
        "member_id": member.member_id,
        "member_epoch": row.current.epoch,
        "instance_id": None,
        "rack_id": member.rack_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "topology_epoch": member.topology_epoch,
        "process_id": member.process_id,
        "user_endpoint": None
        if endpoint is None
        else {"host": endpoint.host, "port": endpoint.port},
        "client_tags": _shape_pairs(member.tags),
        "task_offsets": [],
        "task_end_offsets": [],
        "assignment": _shape_assignment(row.current.assigned),
        "target_assignment": _shape_assignment(row.target),
        "is_classic": False,
    }


def _shape_assignment(tasks: Tasks) -> _Values:
    return {
        "active_tasks": shape_tasks(tasks.active),
        "standby_tasks": shape_tasks(tasks.standby),
        "warmup_tasks": shape_tasks(tasks.warmup),
    }
