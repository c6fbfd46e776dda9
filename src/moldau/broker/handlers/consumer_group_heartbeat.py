"""ConsumerGroupHeartbeat, versions 0 and 1: membership of a consumer group in one (KIP-848).

Epoch 0 joins, -1 leaves for good, -2 leaves to come back as the same instance; any other says that
the member lives, what it owns, and what it wants if that has changed.

v1 the client makes its member id itself, and may subscribe with a regular expression that is
matched here.

With an authorizer it takes READ of the group and DESCRIBE of each topic that is named; expressions
match the topics that the member may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.consumer_group_heartbeat.v1 import ConsumerGroupHeartbeatRequest
from kio.schema.consumer_group_heartbeat.v1.request import TopicPartitions

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group, may_topic, topic_filter
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.assigned_partitions import AssignedPartitions, partitions_of
from moldau.coordinators.groups.rules.events import (
    JOINING_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatAnswer,
)
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import CONSUMER_GROUP_HEARTBEAT
from moldau.wire.shape import millis

API = serves(CONSUMER_GROUP_HEARTBEAT)

_FIRST_WITH_CLIENTS_OWN_ID = 1
_PROTOCOL = "consumer"


def handle(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> Eventually[Values]:
    services = context.services
    if _PROTOCOL not in services.options.group_coordinator_rebalance_protocols:
        return shape_heartbeat(
            ConsumerHeartbeatAnswer(
                error=ErrorCode.unsupported_version,
                message="group.coordinator.rebalance.protocols of this broker has no `consumer`",
            )
        )
    denied = find_denial(request.group_id, request.subscribed_topic_names, context)
    if denied is not None:
        return shape_heartbeat(ConsumerHeartbeatAnswer(error=denied))
    event = _event_of(request, context)
    return respond(
        lambda: services.groups.submit(event),
        shape_heartbeat,
        lambda error: shape_heartbeat(ConsumerHeartbeatAnswer(error=error)),
    )


def find_denial(
    group_id: str, topics: Sequence[str] | None, context: RequestContext
) -> ErrorCode | None:
    """What a member of a group needs, whatever kind it is."""
    if not may_group(context, AclOperation.READ, group_id):
        return ErrorCode.group_authorization_failed
    for topic in topics or ():
        if not may_topic(context, AclOperation.DESCRIBE, topic):
            return ErrorCode.topic_authorization_failed
    return None


def _event_of(request: ConsumerGroupHeartbeatRequest, context: RequestContext) -> ConsumerHeartbeat:
    member_id = request.member_id
    is_nameless = context.version < _FIRST_WITH_CLIENTS_OWN_ID and not member_id
    if is_nameless and request.member_epoch == JOINING_EPOCH:
        member_id = context.services.groups.new_consumer_id()
    names = request.subscribed_topic_names
    return ConsumerHeartbeat(
        group_id=request.group_id,
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.header.client_id or "",
        client_host=f"/{context.connection.peer_host}",  # as Java prints an address
        rebalance_timeout_ms=millis(request.rebalance_timeout),
        topics=None if names is None else frozenset(names),
        regex=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        may_see=topic_filter(context),
    )


def _owned(rows: Sequence[TopicPartitions] | None) -> AssignedPartitions | None:
    if rows is None:
        return None
    return partitions_of(
        (row.topic_id, partition)
        for row in rows
        if row.topic_id is not None
        for partition in row.partitions
    )


def shape_heartbeat(answer: ConsumerHeartbeatAnswer) -> Values:
    assigned = answer.assigned
    return {
        "error_code": answer.error,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": answer.heartbeat_interval_ms,
        "assignment": None
        if assigned is None
        else {
            "topic_partitions": [
                {"topic_id": topic_id, "partitions": tuple(sorted(some))}
                for topic_id, some in assigned.items()
            ]
        },
    }
