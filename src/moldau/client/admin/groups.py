"""Requests about groups of every kind and their offsets. Parts of `AsyncAdmin`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin import AdminPart, indexes_by_topic, topic_rows
from moldau.client.admin.values import (
    SHARE_TYPE,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupState,
    ShareGroupOffset,
)
from moldau.client.cluster import ClusterClient, ask_coordinator, ask_coordinators, find_coordinator
from moldau.client.connections import BrokerConnection
from moldau.client.rules.arguments import require_names
from moldau.client.rules.broker_errors import error_for, find_error
from moldau.client.rules.cluster_metadata import Broker
from moldau.client.rules.offsets import GroupOffset
from moldau.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupNotEmptyError,
    GroupNotFoundError,
    KafkaError,
    MalformedFrameError,
    NotCoordinatorError,
    UnsupportedByBrokerError,
)
from moldau.model import NO_GENERATION, NO_LEADER_EPOCH, NO_OFFSET, TopicPartition
from moldau.wire.apis import (
    ALTER_SHARE_GROUP_OFFSETS,
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_GROUPS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    SHARE_GROUP_DESCRIBE,
    STREAMS_GROUP_DESCRIBE,
    Api,
)
from moldau.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment

if TYPE_CHECKING:
    from kio.schema.alter_share_group_offsets.v0 import AlterShareGroupOffsetsResponse
    from kio.schema.consumer_group_describe.v1.response import Assignment as ConsumerAssignment
    from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
    from kio.schema.delete_share_group_offsets.v0 import DeleteShareGroupOffsetsResponse
    from kio.schema.describe_groups.v6.response import (
        DescribedGroup,
        DescribedGroupMember,
        DescribeGroupsResponse,
    )
    from kio.schema.describe_share_group_offsets.v1 import DescribeShareGroupOffsetsResponse
    from kio.schema.describe_share_group_offsets.v1.response import (
        DescribeShareGroupOffsetsResponsePartition,
    )
    from kio.schema.list_groups.v5.response import ListedGroup, ListGroupsResponse
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as SingleFetchResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition
    from kio.schema.offset_fetch.v9.response import (
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartitions,
    )
    from kio.schema.streams_group_describe.v0.response import Assignment as StreamsAssignment
    from kio.schema.streams_group_describe.v0.response import (
        DescribedGroup as DescribedStreamsGroup,
    )


# Requests about groups and their committed offsets. A part of `AsyncAdmin`.
#
# A group is the matter of its coordinator, and every broker coordinates some: a list of all groups
# is what all brokers say together. To set a committed offset is to commit without being a member,
# which a coordinator takes while the group is empty.


_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5
_FIRST_WITH_SEVERAL_GROUPS = 8
_NO_MEMBER = ""
_BROKERS_RETENTION = -1
_DESCRIBE_DROPPABLE = frozenset({"include_authorized_operations"})
_FETCH_DROPPABLE = frozenset({"require_stable"})
_COMMIT_DROPPABLE = frozenset({"committed_leader_epoch", "retention_time"})

Done = Mapping[TopicPartition, KafkaError | None]


class GroupAdmin(AdminPart):
    """What `AsyncAdmin` does with groups."""

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> Mapping[str, GroupListing]:
        """Groups by name: all of them, or those in one of the states and of one of the types."""

        async def ask_all() -> Mapping[str, GroupListing]:
            brokers = (
                self._client.metadata.current.brokers
                or (await self._client.metadata.refresh(())).brokers
            )
            work = [
                _list_of(self._client, broker_id, states, types) for broker_id in sorted(brokers)
            ]
            found = await asyncio.gather(*work)
            return {row.group_id: _read_listing(row) for rows in found for row in rows}

        # Together, since a group may move from one broker to another between two attempts.
        return await self._client.retry(ask_all, refresh=())

    async def describe_groups(
        self, group_ids: Collection[str]
    ) -> Mapping[str, GroupDescription | KafkaError]:
        """State, coordinator and members of these groups, and what each member reads."""
        group_ids = require_names(group_ids)

        async def send_request(
            broker: Broker, connection: BrokerConnection, some: Sequence[str]
        ) -> Mapping[str, GroupDescription | KafkaError]:
            values = {"groups": tuple(some), "include_authorized_operations": False}
            answer = await connection.call(DESCRIBE_GROUPS, values, _DESCRIBE_DROPPABLE)
            rows = cast("DescribeGroupsResponse", answer).groups
            found = {str(row.group_id): _read_description(row, broker) for row in rows}
            for kind in _NEWER_KINDS:
                missing = [key for key, one in found.items() if isinstance(one, GroupNotFoundError)]
                found |= await _describe_kind(connection, broker, kind, missing)
            return found

        return await ask_coordinators(self._client, group_ids, send_request)

    async def delete_groups(self, group_ids: Collection[str]) -> Mapping[str, KafkaError | None]:
        """Forget groups that have no members, and how far they have read."""
        group_ids = require_names(group_ids)

        async def send_request(
            broker: Broker, connection: BrokerConnection, some: Sequence[str]
        ) -> Mapping[str, KafkaError | None]:
            answer = await connection.call(DELETE_GROUPS, {"groups_names": tuple(some)})
            return {
                str(row.group_id): _read_deletion(row.group_id, row.error_code)
                for row in cast("DeleteGroupsResponse", answer).results
            }

        return await ask_coordinators(self._client, group_ids, send_request)

    async def find_coordinator(self, group_id: str) -> Broker:
        """The broker that looks after a group, whether or not there is such a group."""
        return await find_coordinator(self._client, group_id)

    async def list_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, GroupOffset | KafkaError]:
        """How far a group has read these partitions, or all; those without a commit are missing."""
        topics = None
        if partitions is not None:
            topics = [
                {"name": name, "partition_indexes": tuple(indexes)}
                for name, indexes in indexes_by_topic(partitions).items()
            ]

        async def send_request(
            connection: BrokerConnection,
        ) -> Mapping[TopicPartition, GroupOffset | KafkaError]:
            group = await _fetch(connection, group_id, topics)
            if group.error_code is not ErrorCode.none:
                raise error_for(group.error_code, None, f"group {group_id!r}")
            found = {
                TopicPartition(topic.name, row.partition_index): row
                for topic in group.topics
                for row in topic.partitions
            }
            return {
                partition: _read_offset(partition, row)
                for partition, row in found.items()
                if row.committed_offset != NO_OFFSET or row.error_code is not ErrorCode.none
            }

        return await ask_coordinator(self._client, group_id, send_request)

    async def alter_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int | GroupOffset]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Set where a group goes on reading. Refused while it has members."""
        values = {
            "group_id": group_id,
            "generation_id_or_member_epoch": NO_GENERATION,
            "member_id": _NO_MEMBER,
            "retention_time": _BROKERS_RETENTION,
            "topics": topic_rows(
                {partition: _commit_values(one) for partition, one in offsets.items()}
            ),
        }

        async def send_request(connection: BrokerConnection) -> Done:
            answer = await connection.call(OFFSET_COMMIT, values, _COMMIT_DROPPABLE)
            done = _raise_if_moved(_read_done(cast("OffsetCommitResponse", answer)))
            return {partition: _explain(error, group_id) for partition, error in done.items()}

        return await ask_coordinator(self._client, group_id, send_request)

    async def delete_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Forget how far a group has read. Refused for topics that its members read."""
        values = {
            "group_id": group_id,
            "topics": topic_rows({partition: {} for partition in partitions}),
        }

        async def send_request(connection: BrokerConnection) -> Done:
            answer = cast("OffsetDeleteResponse", await connection.call(OFFSET_DELETE, values))
            if answer.error_code is not ErrorCode.none:
                raise error_for(answer.error_code, None, f"group {group_id!r}")
            return _read_done(answer)

        return await ask_coordinator(self._client, group_id, send_request)


async def _list_of(
    client: ClusterClient, broker_id: int, states: Collection[str], types: Collection[str]
) -> Sequence[ListedGroup]:
    connection = await client.connect_to_broker(broker_id)
    first = _FIRST_WITH_TYPES if types else _FIRST_WITH_STATES if states else 0
    version = connection.choose_version(LIST_GROUPS, at_least=first)
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


def _partitions_of(assignment: ConsumerAssignment | None) -> tuple[TopicPartition, ...]:
    return (
        ()
        if assignment is None
        else tuple(
            TopicPartition(topic.topic_name, number)
            for topic in assignment.topic_partitions
            for number in topic.partitions
        )
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


def _read_deletion(group_id: str, code: ErrorCode) -> KafkaError | None:
    if code is ErrorCode.group_id_not_found:
        return _not_found(group_id)
    if code is ErrorCode.non_empty_group:
        return GroupNotEmptyError(f"group {group_id!r} has members")
    return find_error(code, None, f"group {group_id!r}")


async def _fetch(
    connection: BrokerConnection, group_id: str, topics: object
) -> OffsetFetchResponseGroup | SingleFetchResponse:
    version = connection.choose_version(OFFSET_FETCH)
    group = {"group_id": group_id, "topics": topics}
    if version < _FIRST_WITH_SEVERAL_GROUPS:
        values = {**group, "require_stable": False}
        answer = await connection.call(OFFSET_FETCH, values, _FETCH_DROPPABLE, version=version)
        return cast("SingleFetchResponse", answer)
    values = {"groups": [group], "require_stable": False}
    answer = await connection.call(OFFSET_FETCH, values, version=version)
    (found,) = cast("OffsetFetchResponse", answer).groups
    return found


def _read_offset(
    partition: TopicPartition, row: OffsetFetchResponsePartition | OffsetFetchResponsePartitions
) -> GroupOffset | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, None, str(partition))
    return GroupOffset(
        offset=row.committed_offset,
        leader_epoch=getattr(row, "committed_leader_epoch", NO_LEADER_EPOCH),  # from version 5 on
        metadata=row.metadata or "",
    )


def _commit_values(wanted: int | GroupOffset) -> dict[str, object]:
    if not isinstance(wanted, GroupOffset):
        wanted = GroupOffset(offset=wanted)
    return {
        "committed_offset": wanted.offset,
        "committed_leader_epoch": wanted.leader_epoch,
        "committed_metadata": wanted.metadata,
    }


def _explain(error: KafkaError | None, group_id: str) -> KafkaError | None:
    """A group with members misses ours in the request: what it means is that it has some."""
    if error is not None and error.code is ErrorCode.unknown_member_id:
        return GroupNotEmptyError(f"group {group_id!r} has members")
    return error


def _read_done(answer: OffsetCommitResponse | OffsetDeleteResponse) -> Done:
    done: dict[TopicPartition, KafkaError | None] = {}
    for topic in answer.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            done[partition] = find_error(row.error_code, None, str(partition))
    return done


def _raise_if_moved(rows: Done) -> Done:
    """Every row says so when the coordinator has moved or is not ready: then look for it again."""
    for row in rows.values():
        if isinstance(
            row, NotCoordinatorError | CoordinatorNotAvailableError | CoordinatorLoadInProgressError
        ):
            raise row
    return rows


# Requests about share groups (KIP-932) and how far they have come. A part of `AsyncAdmin`.
#
# A share group commits no offsets: share coordinators keep, for each partition, from where on
# records are not done with (its start offset) and what is under way after it. To set a start offset
# begins the partition anew: what was delivered of it, and how often, is forgotten.


_UNKNOWN = -1


class ShareGroupAdmin(AdminPart):
    """What `AsyncAdmin` does with share groups."""

    async def list_share_group_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, ShareGroupOffset | KafkaError]:
        """How far a share group has come in these partitions, or in all that it has taken from."""
        topics = None
        if partitions is not None:
            topics = [
                {"topic_name": name, "partitions": tuple(indexes)}
                for name, indexes in indexes_by_topic(partitions).items()
            ]

        async def send_request(
            connection: BrokerConnection,
        ) -> Mapping[TopicPartition, ShareGroupOffset | KafkaError]:
            values = {"groups": [{"group_id": group_id, "topics": topics}]}
            answer = await connection.call(DESCRIBE_SHARE_GROUP_OFFSETS, values)
            (group,) = cast("DescribeShareGroupOffsetsResponse", answer).groups
            _raise_if_refused(group.error_code, group.error_message, group_id)
            return {
                partition: _read_share_offset(partition, row)
                for topic in group.topics
                for row in topic.partitions
                for partition in (TopicPartition(topic.topic_name, row.partition_index),)
            }

        return await ask_coordinator(self._client, group_id, send_request)

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Begin partitions anew, at these offsets. Refused while the group has members."""
        topics: dict[str, list[dict[str, object]]] = {}
        for partition, offset in offsets.items():
            row: dict[str, object] = {
                "partition_index": partition.partition,
                "start_offset": offset,
            }
            topics.setdefault(partition.topic, []).append(row)
        values = {
            "group_id": group_id,
            "topics": [{"topic_name": name, "partitions": rows} for name, rows in topics.items()],
        }

        async def send_request(
            connection: BrokerConnection,
        ) -> Mapping[TopicPartition, KafkaError | None]:
            answer = await connection.call(ALTER_SHARE_GROUP_OFFSETS, values)
            response = cast("AlterShareGroupOffsetsResponse", answer)
            _raise_if_refused(response.error_code, response.error_message, group_id)
            return {
                partition: find_error(row.error_code, row.error_message, str(partition))
                for topic in response.responses
                for row in topic.partitions
                for partition in (TopicPartition(topic.topic_name, row.partition_index),)
            }

        return await ask_coordinator(self._client, group_id, send_request)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Collection[str]
    ) -> Mapping[str, KafkaError | None]:
        """Forget what a share group has done in topics. Refused while the group has members."""
        topics = require_names(topics)
        values = {"group_id": group_id, "topics": [{"topic_name": name} for name in topics]}

        async def send_request(connection: BrokerConnection) -> Mapping[str, KafkaError | None]:
            answer = await connection.call(DELETE_SHARE_GROUP_OFFSETS, values)
            response = cast("DeleteShareGroupOffsetsResponse", answer)
            _raise_if_refused(response.error_code, response.error_message, group_id)
            return {
                str(row.topic_name): find_error(row.error_code, row.error_message, row.topic_name)
                for row in response.responses
            }

        return await ask_coordinator(self._client, group_id, send_request)


def _read_share_offset(
    partition: TopicPartition, row: DescribeShareGroupOffsetsResponsePartition
) -> ShareGroupOffset | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, row.error_message, str(partition))
    lag = getattr(row, "lag", _UNKNOWN)  # from version 1 on
    return ShareGroupOffset(
        start_offset=None if row.start_offset == _UNKNOWN else row.start_offset,
        lag=None if lag == _UNKNOWN else lag,
        leader_epoch=row.leader_epoch,
    )


def _raise_if_refused(code: ErrorCode, message: str | None, group_id: str) -> None:
    if code is ErrorCode.group_id_not_found:
        raise GroupNotFoundError(f"there is no share group {group_id!r}")
    if code is ErrorCode.non_empty_group:
        raise GroupNotEmptyError(f"group {group_id!r} has members")
    if code is not ErrorCode.none:
        raise error_for(code, message, f"group {group_id!r}")


# Groups that DescribeGroups does not know: of the consumer protocol (KIP-848), of share consumers
# (KIP-932) and of streams (KIP-1071), whose members run tasks. What a task reads are the partitions
# of its number in the topics of its subtopology.


_STREAMS_TYPE: Final = "streams"
_STREAMS_ASSIGNOR: Final = "sticky"
"""The only one that there is; brokers do not tell it."""

_ReadTopics = Mapping[str, Sequence[str]]
_ReadAssignment = Callable[[Any], tuple[TopicPartition, ...]]


class _Kind(NamedTuple):
    """A type of group, and how its description is read."""

    api: Api
    type: str
    protocol_type: str
    choose_reader: Callable[[Any], _ReadAssignment]
    assignor: str | None = None  # None: the answer tells


async def _describe_kind(
    connection: BrokerConnection, broker: Broker, kind: _Kind, group_ids: Sequence[str]
) -> Mapping[str, GroupDescription | KafkaError]:
    """Those of the groups that are of this kind; none where a broker knows no such groups."""
    try:
        version = connection.choose_version(kind.api)
    except UnsupportedByBrokerError:
        return {}
    if not group_ids:
        return {}
    values = {"group_ids": tuple(group_ids), "include_authorized_operations": False}
    answer: Any = await connection.call(kind.api, values, version=version)
    absent = {ErrorCode.group_id_not_found}
    if kind.type == _STREAMS_TYPE:  # Kafka refuses the request where the protocol is off
        absent.add(ErrorCode.unsupported_version)
    return {
        str(row.group_id): _read_kind(row, broker, kind)
        for row in answer.groups
        if row.error_code not in absent
    }


def _read_kind(row: Any, coordinator: Broker, kind: _Kind) -> GroupDescription | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, row.error_message, f"group {row.group_id!r}")
    read_assignment = kind.choose_reader(row)
    return GroupDescription(
        group_id=row.group_id,
        state=GroupState(row.group_state),
        protocol_type=kind.protocol_type,
        protocol=kind.assignor or row.assignor_name,
        coordinator=coordinator,
        type=kind.type,
        epoch=row.group_epoch,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host.removeprefix("/"),
                instance_id=getattr(member, "instance_id", None),  # share groups have none
                assignment=read_assignment(member.assignment),
                epoch=member.member_epoch,
                target=read_assignment(getattr(member, "target_assignment", None)),
            )
            for member in row.members
        ),
    )


def _choose_partition_reader(_: Any) -> _ReadAssignment:
    return _partitions_of


def _choose_task_reader(row: DescribedStreamsGroup) -> _ReadAssignment:
    subtopologies = () if row.topology is None else row.topology.subtopologies or ()
    read = {
        one.subtopology_id: (
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        )
        for one in subtopologies
    }
    return lambda assignment: _partitions_of_tasks(assignment, read)


def _partitions_of_tasks(
    assignment: StreamsAssignment, read: _ReadTopics
) -> tuple[TopicPartition, ...]:
    """Of active tasks: nobody reads for a copy of their state but from its changelog."""
    return tuple(
        TopicPartition(name, number)
        for tasks in assignment.active_tasks
        for name in read.get(tasks.subtopology_id, ())
        for number in tasks.partitions
    )


_NEWER_KINDS: Final = (
    _Kind(CONSUMER_GROUP_DESCRIBE, "consumer", PROTOCOL_TYPE, _choose_partition_reader),
    _Kind(SHARE_GROUP_DESCRIBE, SHARE_TYPE, SHARE_TYPE, _choose_partition_reader),
    _Kind(
        STREAMS_GROUP_DESCRIBE, _STREAMS_TYPE, _STREAMS_TYPE, _choose_task_reader, _STREAMS_ASSIGNOR
    ),
)
