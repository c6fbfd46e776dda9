"""JoinGroup, versions 0 to 9.

A member comes, or comes again, and waits until the group has all its members together.

v1 rebalance time-out beside the session time-out; v2 throttle time; v3 the same; v4 a newcomer is
told its id first and joins with it (KIP-394); v5 static members (KIP-345); v6 flexible; v7 protocol
type in the answer (KIP-559); v8 a reason (KIP-800); v9 lets a static leader go on without assigning
anew (KIP-814).

Kafka advertises version 0 again since 4.0.1 (KAFKA-19444).
"""

from __future__ import annotations

from kio.schema.join_group.v9 import JoinGroupRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group, topic_filter
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.events import GroupProtocol, Join, JoinAnswer
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import JOIN_GROUP
from moldau.wire.shape import millis

API = serves(JOIN_GROUP, droppable=("protocol_type", "skip_assignment", "group_instance_id"))

_FIRST_WITH_REBALANCE_TIMEOUT = 1
_FIRST_WITH_MEMBER_ID_REQUIRED = 4
_FIRST_WITH_NULLABLE_PROTOCOL = 7
_FIRST_WITH_SKIPPED_ASSIGNMENT = 9


def handle(request: JoinGroupRequest, context: RequestContext) -> Eventually[Values]:
    def refuse(error: ErrorCode) -> Values:
        return _shape(JoinAnswer(error=error, member_id=request.member_id), context.version)

    if not may_group(context, AclOperation.READ, request.group_id):
        return refuse(ErrorCode.group_authorization_failed)
    groups = context.services.groups
    event = _event_of(request, context)
    return respond(
        lambda: groups.submit(event), lambda answer: _shape(answer, context.version), refuse
    )


def _event_of(request: JoinGroupRequest, context: RequestContext) -> Join:
    version = context.version
    client_id = context.header.client_id or ""
    instance_id = getattr(request, "group_instance_id", None)
    session_timeout_ms = millis(request.session_timeout)
    rebalance_timeout_ms = session_timeout_ms
    if version >= _FIRST_WITH_REBALANCE_TIMEOUT:
        rebalance_timeout_ms = millis(request.rebalance_timeout)
    return Join(
        group_id=request.group_id,
        member_id=request.member_id,
        instance_id=instance_id,
        new_member_id=context.services.groups.new_member_id(instance_id or client_id),
        client_id=client_id,
        client_host=f"/{context.connection.peer_host}",  # as Java prints an address
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(GroupProtocol(one.name, one.metadata) for one in request.protocols),
        needs_member_id=version >= _FIRST_WITH_MEMBER_ID_REQUIRED,
        can_skip_assignment=version >= _FIRST_WITH_SKIPPED_ASSIGNMENT,
        reason=getattr(request, "reason", None),
        may_see=topic_filter(context),
    )


def _shape(answer: JoinAnswer, version: int) -> Values:
    protocol = answer.protocol
    if protocol is None and version < _FIRST_WITH_NULLABLE_PROTOCOL:
        protocol = ""
    return {
        "error_code": answer.error,
        "generation_id": answer.generation,
        "protocol_type": answer.protocol_type,
        "protocol_name": protocol,
        "leader": answer.leader,
        "skip_assignment": answer.skip_assignment,
        "member_id": answer.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in answer.members
        ],
    }
