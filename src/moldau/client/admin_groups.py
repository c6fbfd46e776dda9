"""Requests about groups: list, describe, delete. Used by `AsyncAdmin`.

A group is the matter of its coordinator, and every broker coordinates some: a list of all groups is
what all brokers say together. Where groups have read to is in `admin_group_offsets`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_topics import find_error
from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import BrokerConnection
from moldau.client.coordinators import ask_coordinators
from moldau.client.group_values import GroupDescription, GroupListing, GroupMember, GroupState
from moldau.client.rules.cluster_metadata import Broker
from moldau.client.rules.group_protocol import PROTOCOL_TYPE, decode_assignment
from moldau.client.rules.versions import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from moldau.errors import (
    GroupNotEmptyError,
    GroupNotFoundError,
    KafkaError,
    MalformedFrameError,
)
from moldau.model import TopicPartition

if TYPE_CHECKING:
    from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
    from kio.schema.describe_groups.v6.response import (
        DescribedGroup,
        DescribedGroupMember,
        DescribeGroupsResponse,
    )
    from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse

_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5
_DESCRIBE_DROPPABLE = frozenset({"include_authorized_operations"})


async def list_groups(
    client: ClusterClient, *, states: Collection[str], types: Collection[str]
) -> Mapping[str, GroupListing]:
    async def ask_all() -> Mapping[str, GroupListing]:
        brokers = client.metadata.current.brokers or (await client.metadata.refresh(())).brokers
        work = [_list_of(client, broker_id, states, types) for broker_id in sorted(brokers)]
        found = await asyncio.gather(*work)
        return {row.group_id: _read_listing(row) for rows in found for row in rows}

    # Together, since a group may move from one broker to another between two attempts.
    return await client.retry(ask_all, refresh=())


async def _list_of(
    client: ClusterClient, broker_id: int, states: Collection[str], types: Collection[str]
) -> Sequence[ListedGroup]:
    connection = await client.connect_to_broker(broker_id)
    first = _FIRST_WITH_TYPES if types else _FIRST_WITH_STATES if states else LIST_GROUPS.first
    version = connection.choose_version(LIST_GROUPS._replace(first=first))
    values: dict[str, object] = {}
    if states:
        values["states_filter"] = tuple(states)
    if types:
        values["types_filter"] = tuple(types)
    answer = cast("ListGroupsResponse", await connection.call(LIST_GROUPS, values, version=version))
    if answer.error_code is not ErrorCode.none:
        raise error_for(answer.error_code, None, f"the groups of broker {broker_id}")
    return answer.groups


def _read_listing(row: ListedGroup) -> GroupListing:
    return GroupListing(
        group_id=row.group_id,
        protocol_type=row.protocol_type,
        state=GroupState(getattr(row, "group_state", "")),  # from version 4 on
        type=getattr(row, "group_type", None),  # from version 5 on
    )


async def describe_groups(
    client: ClusterClient, group_ids: Collection[str]
) -> Mapping[str, GroupDescription | KafkaError]:
    async def ask(
        broker: Broker, connection: BrokerConnection, some: Sequence[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        values = {"groups": tuple(some), "include_authorized_operations": False}
        answer = await connection.call(DESCRIBE_GROUPS, values, _DESCRIBE_DROPPABLE)
        rows = cast("DescribeGroupsResponse", answer).groups
        return {str(row.group_id): _read_description(row, broker) for row in rows}

    return await ask_coordinators(client, group_ids, ask)


def _read_description(row: DescribedGroup, coordinator: Broker) -> GroupDescription | KafkaError:
    state = GroupState(row.group_state)
    # Up to version 5 a group that is not there is one that is dead.
    if row.error_code is ErrorCode.group_id_not_found or state is GroupState.DEAD:
        return _not_found(row.group_id)
    if row.error_code is not ErrorCode.none:
        message = getattr(row, "error_message", None)  # from version 6 on
        return error_for(row.error_code, message, f"group {row.group_id!r}")
    return GroupDescription(
        group_id=row.group_id,
        state=state,
        protocol_type=row.protocol_type,
        protocol=row.protocol_data,
        coordinator=coordinator,
        members=tuple(_read_member(member, row.protocol_type) for member in row.members),
    )


def _not_found(group_id: str) -> GroupNotFoundError:
    return GroupNotFoundError(f"there is no group {group_id!r}")


def _read_member(row: DescribedGroupMember, protocol_type: str) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        client_id=row.client_id,
        host=row.client_host.removeprefix("/"),  # Java writes addresses that way
        instance_id=getattr(row, "group_instance_id", None),  # from version 4 on
        assignment=_read_assignment(row.member_assignment, protocol_type),
    )


def _read_assignment(data: bytes, protocol_type: str) -> tuple[TopicPartition, ...]:
    if protocol_type != PROTOCOL_TYPE:
        return ()
    try:
        return decode_assignment(data).partitions
    except MalformedFrameError:  # members may agree on anything; the broker does not look
        return ()


async def delete_groups(
    client: ClusterClient, group_ids: Collection[str]
) -> Mapping[str, KafkaError | None]:
    async def ask(
        broker: Broker, connection: BrokerConnection, some: Sequence[str]
    ) -> Mapping[str, KafkaError | None]:
        answer = await connection.call(DELETE_GROUPS, {"groups_names": tuple(some)})
        return {
            str(row.group_id): _read_deletion(row.group_id, row.error_code)
            for row in cast("DeleteGroupsResponse", answer).results
        }

    return await ask_coordinators(client, group_ids, ask)


def _read_deletion(group_id: str, code: ErrorCode) -> KafkaError | None:
    if code is ErrorCode.group_id_not_found:
        return _not_found(group_id)
    if code is ErrorCode.non_empty_group:
        return GroupNotEmptyError(f"group {group_id!r} has members")
    return find_error(code, None, f"group {group_id!r}")
