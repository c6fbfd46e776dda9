"""DescribeGroups, versions 0 to 6: who is in a group, and who reads what.

v1 throttle time; v2 the same; v3 authorized operations; v4 instance ids; v5 flexible; v6 a group
that is not there is GROUP_ID_NOT_FOUND with a message. Before, it is a group in the state Dead.
"""

from __future__ import annotations

from kio.schema.describe_groups.v6 import DescribeGroupsRequest

from moldau.broker.api import (
    RequestContext,
    Slices,
    Values,
    answered_class,
    encode_element,
    error_values,
    serves,
)
from moldau.broker.authorization import NOT_ASKED, group_operations, may_group
from moldau.broker.coordinator_requests import respond
from moldau.coordinators.groups.rules.classic_group import (
    ClassicGroupState,
    DescribedGroup,
    DescribedMember,
)
from moldau.coordinators.runtime.shard import Eventually, wait_for_answer
from moldau.errors import ErrorCode
from moldau.model import AclOperation
from moldau.wire.apis import DESCRIBE_GROUPS
from moldau.wire.shape import EncodedArray

API = serves(
    DESCRIBE_GROUPS, droppable=("group_instance_id", "error_message", "authorized_operations")
)

_FIRST_WITH_NOT_FOUND = 6

_GROUPS_AT_ONCE = 50
"""Before others have the loop: a group may have many members."""


async def handle(request: DescribeGroupsRequest, context: RequestContext) -> Values:
    is_asked = getattr(request, "include_authorized_operations", False)  # from version 3 on
    group_class = answered_class(API, context.version, "groups")
    slices = Slices(_GROUPS_AT_ONCE)
    groups = []
    for group_id in request.groups:
        operations = group_operations(context, group_id) if is_asked else NOT_ASKED
        described = await wait_for_answer(_describe(group_id, operations, context))
        groups.append(encode_element(group_class, described, API))
        await slices.piece_done()
    return {"groups": EncodedArray(groups)}


def _describe(group_id: str, operations: int, context: RequestContext) -> Eventually[Values]:
    groups = context.services.groups

    def shape(found: DescribedGroup | None) -> Values:
        if found is not None:
            return {**_shape(found), "authorized_operations": operations}
        if context.version < _FIRST_WITH_NOT_FOUND:
            return {
                **_shape(DescribedGroup(group_id=group_id)),
                "authorized_operations": operations,
            }
        return refuse(ErrorCode.group_id_not_found, f"there is no group {group_id!r}")

    def refuse(error: ErrorCode, message: str | None = None) -> Values:
        # Kafka leaves the state out where it does not know it, and names it where it does.
        is_dead = error is ErrorCode.group_id_not_found
        values = _shape(DescribedGroup(group_id=group_id))
        state = ClassicGroupState.DEAD.value if is_dead else ""
        return {**values, "error_code": error, "error_message": message, "group_state": state}

    if not may_group(context, AclOperation.DESCRIBE, group_id):
        return refuse(ErrorCode.group_authorization_failed)
    return respond(lambda: groups.describe_group(group_id), shape, refuse)


def _shape(group: DescribedGroup) -> Values:
    return {
        **error_values(None),
        "group_id": group.group_id,
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol,
        "members": [_shape_member(member) for member in group.members],
    }


def _shape_member(member: DescribedMember) -> Values:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
