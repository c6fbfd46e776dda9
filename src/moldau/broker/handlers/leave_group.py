"""LeaveGroup, versions 0 to 5.

Members go, and the others share what they had. An administrator removes static members by their
instance ids.

v1 throttle time; v2 the same; v3 several members at once (KIP-345); v4 flexible; v5 a reason
(KIP-800).
"""

from __future__ import annotations

from kio.schema.leave_group.v5 import LeaveGroupRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import may_group
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.events import Leave, LeaveAnswer, LeavingMember
from moldau.coordinators.runtime.shard import Eventually
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import LEAVE_GROUP

API = serves(LEAVE_GROUP)

_FIRST_WITH_SEVERAL_MEMBERS = 3


def handle(request: LeaveGroupRequest, context: RequestContext) -> Eventually[Values]:
    version = context.version

    def shape(answer: LeaveAnswer) -> Values:
        return _shape(answer, version)

    def refuse(error: ErrorCode) -> Values:
        return _shape(LeaveAnswer(error=error), version)

    if not request.group_id:
        return refuse(ErrorCode.invalid_group_id)
    if not may_group(context, AclOperation.READ, request.group_id):
        return refuse(ErrorCode.group_authorization_failed)
    groups = context.services.groups
    event = Leave(group_id=request.group_id, members=_members_of(request, version))
    return respond(lambda: groups.submit(event), shape, refuse)


def _members_of(request: LeaveGroupRequest, version: int) -> tuple[LeavingMember, ...]:
    if version < _FIRST_WITH_SEVERAL_MEMBERS:
        return (LeavingMember(request.member_id),)  # type: ignore[attr-defined]
    return tuple(
        LeavingMember(one.member_id, one.group_instance_id, getattr(one, "reason", None))
        for one in request.members
    )


def _shape(answer: LeaveAnswer, version: int) -> Values:
    if version < _FIRST_WITH_SEVERAL_MEMBERS:
        error = answer.error
        if error is ErrorCode.none and answer.members:
            error = answer.members[0].error
        return {"error_code": error}
    return {
        "error_code": answer.error,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "error_code": member.error,
            }
            for member in answer.members
        ],
    }
