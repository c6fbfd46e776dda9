"""SyncGroup, versions 0 to 5.

A member asks for its assignment; the leader's request brings those of all. The others wait for it.

v1 throttle time; v2 the same; v3 static members (KIP-345); v4 flexible; v5 names the protocol that
the member believes in, and is refused when it is not the group's (KIP-559).
"""

from __future__ import annotations

from kio.schema.sync_group.v5 import SyncGroupRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.events import Sync, SyncAnswer
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import SYNC_GROUP

API = serves(SYNC_GROUP, droppable=("protocol_type", "protocol_name"))

_FIRST_WITH_PROTOCOL = 5


def handle(request: SyncGroupRequest, context: RequestContext) -> Eventually[Values]:
    fault = _find_fault(request, context.version)
    if fault is not None:
        return _refuse(fault)
    if not may_group(context, AclOperation.READ, request.group_id):
        return _refuse(ErrorCode.group_authorization_failed)
    groups = context.services.groups
    event = _event_of(request)
    return respond(lambda: groups.submit(event), _shape, _refuse)


def _find_fault(request: SyncGroupRequest, version: int) -> ErrorCode | None:
    if not request.group_id:
        return ErrorCode.invalid_group_id
    if version >= _FIRST_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
        return ErrorCode.inconsistent_group_protocol
    return None


def _event_of(request: SyncGroupRequest) -> Sync:
    return Sync(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
    )


def _refuse(error: ErrorCode) -> Values:
    return _shape(SyncAnswer(error=error))


def _shape(answer: SyncAnswer) -> Values:
    return {
        "error_code": answer.error,
        "protocol_type": answer.protocol_type,
        "protocol_name": answer.protocol,
        "assignment": answer.assignment,
    }
