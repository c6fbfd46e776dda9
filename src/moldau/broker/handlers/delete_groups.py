"""DeleteGroups, versions 0 to 2: forgets groups and how far they have read.

A group with members is NON_EMPTY_GROUP. v1 throttle after the answer; v2 flexible.
"""

from __future__ import annotations

from kio.schema.delete_groups.v2 import DeleteGroupsRequest

from moldau.broker.api import RequestContext, Values, serves
from moldau.broker.authorization import audit_change, may_group
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.events import CodeAnswer, DeleteGroup
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import DELETE_GROUPS

API = serves(DELETE_GROUPS, changes_cluster=True)


async def handle(request: DeleteGroupsRequest, context: RequestContext) -> Values:
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        error = await wait_for_answer(_delete(group_id, context))
        audit_change(context, f"Group:{group_id}", error)
        results.append({"group_id": group_id, "error_code": error})
    return {"results": results}


def _delete(group_id: str, context: RequestContext) -> Eventually[ErrorCode]:
    if not may_group(context, AclOperation.DELETE, group_id):
        return ErrorCode.group_authorization_failed
    groups = context.services.groups
    event = DeleteGroup(group_id=group_id)
    return respond(lambda: groups.delete_group(event), _error_of, lambda error: error)


def _error_of(answer: CodeAnswer) -> ErrorCode:
    return answer.error
