"""Heartbeat, versions 0 to 4: a member is alive, and learns when it has to join again.

v1 throttle time; v2 the same; v3 static members (KIP-345); v4 flexible.
"""

from __future__ import annotations

from kio.schema.heartbeat.v4 import HeartbeatRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.events import CodeAnswer, Heartbeat
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import HEARTBEAT

API = serves(HEARTBEAT)


def handle(request: HeartbeatRequest, context: RequestContext) -> Eventually[Values]:
    if not request.group_id:
        return _refuse(ErrorCode.invalid_group_id)
    if not may_group(context, AclOperation.READ, request.group_id):
        return _refuse(ErrorCode.group_authorization_failed)
    groups = context.services.groups
    event = Heartbeat(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=getattr(request, "group_instance_id", None),
    )
    return respond(lambda: groups.submit(event), _shape, _refuse)


def _shape(answer: CodeAnswer) -> Values:
    return _refuse(answer.error)


def _refuse(error: ErrorCode) -> Values:
    return {"error_code": error}
