"""ShareGroupHeartbeat, version 1: membership of a share group in one (KIP-932).

Epoch 0 joins, -1 leaves; any other says that the member lives, and what it wants if that has
changed. The client makes its member id itself.

Difference from Kafka: the first member of a group waits, for two seconds at most, until the states
of its partitions are there, and has them with its first answer; in Kafka it hears of them with its
next heartbeat.

With an authorizer it takes READ of the group and DESCRIBE of each topic.
"""

from __future__ import annotations

from kio.schema.share_group_heartbeat.v1 import ShareGroupHeartbeatRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.coordinator_requests import respond
from moldau.broker.handlers.consumer_group_heartbeat import find_denial, shape_heartbeat
from moldau.coordinators.groups.rules.events import ConsumerHeartbeatAnswer, ShareHeartbeat
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.wire.apis import SHARE_GROUP_HEARTBEAT

API = serves(SHARE_GROUP_HEARTBEAT)

_PROTOCOL = "share"


def handle(request: ShareGroupHeartbeatRequest, context: RequestContext) -> Eventually[Values]:
    services = context.services
    if _PROTOCOL not in services.options.group_coordinator_rebalance_protocols:
        return shape_heartbeat(
            ConsumerHeartbeatAnswer(
                error=ErrorCode.unsupported_version,
                message="group.coordinator.rebalance.protocols of this broker has no `share`",
            )
        )
    names = request.subscribed_topic_names
    denied = find_denial(request.group_id, names, context)
    if denied is not None:
        return shape_heartbeat(ConsumerHeartbeatAnswer(error=denied))
    event = ShareHeartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        client_id=context.header.client_id or "",
        client_host=f"/{context.connection.peer_host}",  # as Java prints an address
        topics=None if names is None else frozenset(names),
    )
    return respond(
        lambda: services.groups.share_heartbeat(event),
        shape_heartbeat,
        lambda error: shape_heartbeat(ConsumerHeartbeatAnswer(error=error)),
    )
