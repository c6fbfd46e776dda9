"""Requests about share groups (KIP-932) and how far they have come. A part of `AsyncAdmin`.

A share group commits no offsets: share coordinators keep, for each partition, from where on records
are not done with (its start offset) and what is under way after it. To set a start offset begins
the partition anew: what was delivered of it, and how often, is forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_part import AdminPart, indexes_by_topic
from moldau.client.broker_errors import error_for, find_error
from moldau.client.connections import BrokerConnection
from moldau.client.coordinators import ask_coordinator
from moldau.client.group_question import ask_for_groups
from moldau.client.group_values import (
    SHARE_TYPE,
    GroupDescription,
    GroupMember,
    GroupState,
    ShareGroupOffset,
)
from moldau.client.rules.arguments import require_names
from moldau.client.rules.cluster_metadata import Broker
from moldau.errors import (
    GroupNotEmptyError,
    GroupNotFoundError,
    KafkaError,
)
from moldau.model import TopicPartition
from moldau.wire.apis import (
    ALTER_SHARE_GROUP_OFFSETS,
    DELETE_SHARE_GROUP_OFFSETS,
    DESCRIBE_SHARE_GROUP_OFFSETS,
    SHARE_GROUP_DESCRIBE,
)

if TYPE_CHECKING:
    from kio.schema.alter_share_group_offsets.v0 import AlterShareGroupOffsetsResponse
    from kio.schema.delete_share_group_offsets.v0 import DeleteShareGroupOffsetsResponse
    from kio.schema.describe_share_group_offsets.v1 import DescribeShareGroupOffsetsResponse
    from kio.schema.describe_share_group_offsets.v1.response import (
        DescribeShareGroupOffsetsResponsePartition,
    )
    from kio.schema.share_group_describe.v1.response import DescribedGroup

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

        async def ask(
            connection: BrokerConnection,
        ) -> Mapping[TopicPartition, ShareGroupOffset | KafkaError]:
            values = {"groups": [{"group_id": group_id, "topics": topics}]}
            answer = await connection.call(DESCRIBE_SHARE_GROUP_OFFSETS, values)
            (group,) = cast("DescribeShareGroupOffsetsResponse", answer).groups
            _raise_if_refused(group.error_code, group.error_message, group_id)
            return {
                partition: _read_offset(partition, row)
                for topic in group.topics
                for row in topic.partitions
                for partition in (TopicPartition(topic.topic_name, row.partition_index),)
            }

        return await ask_coordinator(self._client, group_id, ask)

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

        async def ask(connection: BrokerConnection) -> Mapping[TopicPartition, KafkaError | None]:
            answer = await connection.call(ALTER_SHARE_GROUP_OFFSETS, values)
            response = cast("AlterShareGroupOffsetsResponse", answer)
            _raise_if_refused(response.error_code, response.error_message, group_id)
            return {
                partition: find_error(row.error_code, row.error_message, str(partition))
                for topic in response.responses
                for row in topic.partitions
                for partition in (TopicPartition(topic.topic_name, row.partition_index),)
            }

        return await ask_coordinator(self._client, group_id, ask)

    async def delete_share_group_offsets(
        self, group_id: str, topics: Collection[str]
    ) -> Mapping[str, KafkaError | None]:
        """Forget what a share group has done in topics. Refused while the group has members."""
        topics = require_names(topics)
        values = {"group_id": group_id, "topics": [{"topic_name": name} for name in topics]}

        async def ask(connection: BrokerConnection) -> Mapping[str, KafkaError | None]:
            answer = await connection.call(DELETE_SHARE_GROUP_OFFSETS, values)
            response = cast("DeleteShareGroupOffsetsResponse", answer)
            _raise_if_refused(response.error_code, response.error_message, group_id)
            return {
                str(row.topic_name): find_error(row.error_code, row.error_message, row.topic_name)
                for row in response.responses
            }

        return await ask_coordinator(self._client, group_id, ask)


async def describe_share_groups(
    connection: BrokerConnection, broker: Broker, group_ids: Sequence[str]
) -> Mapping[str, GroupDescription | KafkaError]:
    """Of those of the groups that are share groups; nothing of the others."""
    rows: Sequence[DescribedGroup] = await ask_for_groups(
        connection, SHARE_GROUP_DESCRIBE, group_ids
    )
    return {
        str(row.group_id): _read_group(row, broker)
        for row in rows
        if row.error_code is not ErrorCode.group_id_not_found
    }


def _read_group(row: DescribedGroup, coordinator: Broker) -> GroupDescription | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, row.error_message, f"group {row.group_id!r}")
    return GroupDescription(
        group_id=row.group_id,
        state=GroupState(row.group_state),
        protocol_type=SHARE_TYPE,
        protocol=row.assignor_name,
        coordinator=coordinator,
        type=SHARE_TYPE,
        epoch=row.group_epoch,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host.removeprefix("/"),
                assignment=tuple(
                    TopicPartition(topic.topic_name, number)
                    for topic in member.assignment.topic_partitions
                    for number in topic.partitions
                ),
                epoch=member.member_epoch,
            )
            for member in row.members
        ),
    )


def _read_offset(
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
