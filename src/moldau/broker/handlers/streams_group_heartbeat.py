"""StreamsGroupHeartbeat, version 0: membership of a streams group in one (KIP-1071).

Epoch 0 joins and brings the topology of the application, -1 leaves; any other says that the member
lives, and what tasks it has if that has changed. Internal topics that are missing are made, in the
name of the member.

As in Kafka 4.3, static members, warm-up tasks, offsets of tasks, and topics by regular expressions
are INVALID_REQUEST, and so is another topology than the group has.

Difference from Kafka: the answer waits up to two seconds for internal topics, so that it can tell
why one could not be made.

With an authorizer it takes READ of the group and DESCRIBE of each topic; missing internal topics
take CREATE, of each or of the cluster. They count for the controller_mutation_rate of the member,
whose heartbeats are not throttled for it: who owes changes has no topics made until it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kio.schema.streams_group_heartbeat.v0 import StreamsGroupHeartbeatRequest
from kio.schema.streams_group_heartbeat.v0 import request as requested

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import audit_change, may_create_topic
from moldau.broker.handlers.consumer_group_heartbeat import find_denial
from moldau.coordinators.groups.rules.assigned_partitions import partitions_of
from moldau.coordinators.groups.rules.events import (
    EndpointTasks,
    StreamsHeartbeat,
    StreamsHeartbeatAnswer,
)
from moldau.coordinators.groups.rules.streams_records import StreamsEndpoint
from moldau.coordinators.groups.rules.streams_topology import (
    NO_TASKS,
    CopartitionGroup,
    CreatableTopic,
    StreamsStatus,
    Subtopology,
    TaskSet,
    TopicInfo,
    Topology,
)
from moldau.coordinators.runtime.shard import wait_for_answer
from moldau.errors import ErrorCode, KafkaError
from moldau.model import INTERNAL_TOPICS, find_topic_name_fault
from moldau.wire.apis import STREAMS_GROUP_HEARTBEAT
from moldau.wire.shape import millis

API = serves(STREAMS_GROUP_HEARTBEAT)

_PROTOCOL = "streams"
_MOST_FAULTS = 3
"""Topics whose faults are told in one answer."""


async def handle(request: StreamsGroupHeartbeatRequest, context: RequestContext) -> Values:
    services = context.services
    if _PROTOCOL not in services.options.group_coordinator_rebalance_protocols:
        return _refuse(
            ErrorCode.unsupported_version,
            "group.coordinator.rebalance.protocols of this broker has no `streams`",
        )
    topology = None if request.topology is None else _topology_of(request.topology)
    names = () if topology is None else sorted(topology.all_topics)
    denied = find_denial(request.group_id, None, context)
    if denied is not None:
        return _refuse(denied)
    fault = _find_fault(names)
    if fault is not None:
        return _refuse(ErrorCode.streams_invalid_topology, fault)
    denied = find_denial(request.group_id, names, context)
    if denied is not None:
        return _refuse(denied)
    event = _event_of(request, topology, context)
    try:
        answer = await wait_for_answer(services.groups.submit(event))
    except KafkaError as error:
        return _refuse(error.code)
    if answer.missing:
        answer = await _make_missing(answer, context)
    return _shape(answer)


def _find_fault(names: Sequence[str]) -> str | None:
    """Before anybody is asked for an authorization of them."""
    internal = [name for name in names if name in INTERNAL_TOPICS]
    if internal:
        told = ", ".join(internal)
        return f"the internal topics {told} of the brokers may not be part of a topology"
    return next(
        (fault for name in names if (fault := find_topic_name_fault(name)) is not None), None
    )


# What the member says


def _event_of(
    request: StreamsGroupHeartbeatRequest, topology: Topology | None, context: RequestContext
) -> StreamsHeartbeat:
    endpoint, tags = request.user_endpoint, request.client_tags
    tells_offsets = request.task_offsets is not None or request.task_end_offsets is not None
    return StreamsHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        endpoint_epoch=request.endpoint_information_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.header.client_id or "",
        client_host=f"/{context.connection.peer_host}",  # as Java prints an address
        rebalance_timeout_ms=millis(request.rebalance_timeout),
        topology=topology,
        active=_tasks_of(request.active_tasks),
        standby=_tasks_of(request.standby_tasks),
        warmup=_tasks_of(request.warmup_tasks),
        process_id=request.process_id,
        endpoint=None if endpoint is None else StreamsEndpoint(endpoint.host, endpoint.port),
        tags=None if tags is None else _pairs_of(tags),
        tells_offsets=tells_offsets,
        shuts_down=request.shutdown_application,
    )


def _tasks_of(rows: Sequence[requested.TaskIds] | None) -> TaskSet | None:
    if rows is None:
        return None
    return partitions_of(
        (row.subtopology_id, int(partition)) for row in rows for partition in row.partitions
    )


def _topology_of(topology: requested.Topology) -> Topology:
    return Topology(
        topology.epoch,
        tuple(
            Subtopology(
                subtopology_id=one.subtopology_id,
                source_topics=tuple(one.source_topics),
                source_regexes=tuple(one.source_topic_regex),
                changelog_topics=_topics_of(one.state_changelog_topics),
                repartition_sinks=tuple(one.repartition_sink_topics),
                repartition_sources=_topics_of(one.repartition_source_topics),
                copartition_groups=tuple(
                    CopartitionGroup(
                        tuple(map(int, group.source_topics)),
                        tuple(map(int, group.source_topic_regex)),
                        tuple(map(int, group.repartition_source_topics)),
                    )
                    for group in one.copartition_groups
                ),
            )
            for one in topology.subtopologies
        ),
    )


def _topics_of(rows: Sequence[requested.TopicInfo]) -> tuple[TopicInfo, ...]:
    return tuple(
        TopicInfo(row.name, row.partitions, row.replication_factor, _pairs_of(row.topic_configs))
        for row in rows
    )


def _pairs_of(rows: Sequence[requested.KeyValue]) -> tuple[tuple[str, str], ...]:
    """In the order of their names: the same settings are the same value."""
    return tuple(sorted((row.key, row.value) for row in rows))


# What it hears


async def _make_missing(
    answer: StreamsHeartbeatAnswer, context: RequestContext
) -> StreamsHeartbeatAnswer:
    names = [one.name for one in answer.missing]
    denied = [name for name in names if not may_create_topic(context, name)]
    if denied:
        return _tell(answer, f"Unauthorized to CREATE on topics {', '.join(denied)}")
    throttle = context.throttle
    if throttle is not None and throttle.owes_mutations:
        return _tell(answer, "Creation failed: controller_mutation_rate is exceeded")

    def on_made(topic: CreatableTopic) -> None:
        audit_change(context, f"Topic:{topic.name}")
        if throttle is not None:
            throttle.note_mutations(topic.partition_count)

    faults = await context.services.internal_topics.make(answer.missing, on_made)
    if not faults:
        return answer
    told = [f"{name} ({faults[name]})" for name in sorted(faults)][:_MOST_FAULTS]
    more = len(faults) - len(told)
    rest = f" and {more} more" if more else ""
    return _tell(answer, f"Creation failed: {', '.join(told)}{rest}")


def _tell(answer: StreamsHeartbeatAnswer, what: str) -> StreamsHeartbeatAnswer:
    missing = StreamsStatus.MISSING_INTERNAL_TOPICS
    statuses = tuple(
        note._replace(detail=f"{note.detail}; {what}.") if note.status is missing else note
        for note in answer.statuses
    )
    return replace(answer, statuses=statuses)


def _refuse(error: ErrorCode, message: str | None = None) -> Values:
    return _shape(StreamsHeartbeatAnswer(error=error, message=message))


def _shape(answer: StreamsHeartbeatAnswer) -> Values:
    tasks = answer.tasks
    active, standby, warmup = NO_TASKS if tasks is None else tasks
    has_failed = answer.error is not ErrorCode.none
    return {
        "error_code": answer.error,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "acceptable_recovery_lag": 0,
        "task_offset_interval": 0,
        "status": None
        if has_failed
        else [
            {"status_code": note.status.value, "status_detail": note.detail}
            for note in answer.statuses
        ],
        "active_tasks": None if tasks is None else shape_tasks(active),
        "standby_tasks": None if tasks is None else shape_tasks(standby),
        "warmup_tasks": None if tasks is None else shape_tasks(warmup),
        "endpoint_information_epoch": answer.endpoint_epoch,
        "partitions_by_user_endpoint": None
        if answer.endpoints is None
        else [_shape_endpoint(one) for one in answer.endpoints],
    }


def shape_tasks(tasks: TaskSet) -> list[Values]:
    return [
        {"subtopology_id": one, "partitions": tuple(sorted(tasks[one]))} for one in sorted(tasks)
    ]


def _shape_endpoint(row: EndpointTasks) -> Values:
    return {
        "user_endpoint": {"host": row.endpoint.host, "port": row.endpoint.port},
        "active_partitions": _shape_partitions(row.active),
        "standby_partitions": _shape_partitions(row.standby),
    }


def _shape_partitions(partitions: Mapping[str, frozenset[int]]) -> list[Values]:
    return [{"topic": name, "partitions": tuple(sorted(some))} for name, some in partitions.items()]
