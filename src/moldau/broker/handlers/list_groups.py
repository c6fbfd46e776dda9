"""ListGroups, versions 0 to 5: the groups that this broker coordinates.

v1 throttle time; v2 the same; v3 flexible; v4 states, and a filter for them (KIP-518); v5 types,
and a filter for them (KIP-848). Filters do not mind upper and lower case.

With an authorizer who may not DESCRIBE the cluster sees the groups that he may DESCRIBE.
"""

from __future__ import annotations

from collections.abc import Sequence

from kio.schema.list_groups.v5 import ListGroupsRequest

from moldau.broker.api import RequestContext, Slices, Values, answered_class, encode_array, serves
from moldau.broker.authorization import may_see
from moldau.coordinators.groups.rules.events import ListedGroup
from moldau.errors import ErrorCode, KafkaError
from moldau.model import CLUSTER_NAME, AclResourceType
from moldau.wire.apis import LIST_GROUPS

API = serves(LIST_GROUPS, droppable=("group_state", "group_type"))

_GROUPS_AT_ONCE = 300
"""Before others have the loop: two milliseconds."""


async def handle(request: ListGroupsRequest, context: RequestContext) -> Values:
    try:
        listed = await context.services.groups.list_groups()
    except KafkaError as error:
        return {"error_code": error.code, "groups": []}
    states = _folded(getattr(request, "states_filter", ()))
    types = _folded(getattr(request, "types_filter", ()))
    sees_all = may_see(context, AclResourceType.CLUSTER, CLUSTER_NAME)
    groups = (
        _shape(group)
        for group in listed
        if (sees_all or may_see(context, AclResourceType.GROUP, group.group_id))
        and (not states or group.state.value.casefold() in states)
        and (not types or group.type.value in types)
    )
    group_class = answered_class(API, context.version, "groups")
    return {
        "error_code": ErrorCode.none,
        "groups": await encode_array(group_class, groups, API, Slices(_GROUPS_AT_ONCE)),
    }


def _folded(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.casefold() for name in names)


def _shape(group: ListedGroup) -> Values:
    return {
        "group_id": group.group_id,
        "protocol_type": group.protocol_type,
        "group_state": group.state.value,
        "group_type": group.type.value,
    }
