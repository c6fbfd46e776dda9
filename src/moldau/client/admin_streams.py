"""What is asked about streams groups (KIP-1071). A part of `AsyncAdmin`.

Their members run tasks; what a task reads are the partitions of its number in the topics of its
subtopology.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from moldau.client.broker_errors import error_for
from moldau.client.connections import BrokerConnection
from moldau.client.group_question import ask_for_groups
from moldau.client.group_values import GroupDescription, GroupMember, GroupState
from moldau.client.rules.cluster_metadata import Broker
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.wire.apis import STREAMS_GROUP_DESCRIBE

if TYPE_CHECKING:
    from kio.schema.streams_group_describe.v0.response import Assignment, DescribedGroup

_STREAMS_TYPE: Final = "streams"
_ASSIGNOR: Final = "sticky"
"""The only one that there is; brokers do not tell it."""

_ReadTopics = Mapping[str, Sequence[str]]


async def describe_streams_groups(
    connection: BrokerConnection, broker: Broker, group_ids: Sequence[str]
) -> Mapping[str, GroupDescription | KafkaError]:
    """Of those of the groups that are streams groups; nothing of the others."""
    rows: Sequence[DescribedGroup] = await ask_for_groups(
        connection, STREAMS_GROUP_DESCRIBE, group_ids
    )
    return {
        str(row.group_id): _read_group(row, broker)
        for row in rows
        # Kafka refuses the request as a whole where the protocol is off.
        if row.error_code not in (ErrorCode.group_id_not_found, ErrorCode.unsupported_version)
    }


def _read_group(row: DescribedGroup, coordinator: Broker) -> GroupDescription | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, row.error_message, f"group {row.group_id!r}")
    subtopologies = () if row.topology is None else row.topology.subtopologies or ()
    read = {
        one.subtopology_id: (
            *one.source_topics,
            *(topic.name for topic in one.repartition_source_topics),
        )
        for one in subtopologies
    }
    return GroupDescription(
        group_id=row.group_id,
        state=GroupState(row.group_state),
        protocol_type=_STREAMS_TYPE,
        protocol=_ASSIGNOR,
        coordinator=coordinator,
        type=_STREAMS_TYPE,
        epoch=row.group_epoch,
        members=tuple(
            GroupMember(
                member_id=member.member_id,
                client_id=member.client_id,
                host=member.client_host.removeprefix("/"),
                instance_id=member.instance_id,
                assignment=_partitions_of(member.assignment, read),
                epoch=member.member_epoch,
                target=_partitions_of(member.target_assignment, read),
            )
            for member in row.members
        ),
    )


def _partitions_of(assignment: Assignment, read: _ReadTopics) -> tuple[TopicPartition, ...]:
    """Of active tasks: nobody reads for a copy of their state but from its changelog."""
    return tuple(
        TopicPartition(name, number)
        for tasks in assignment.active_tasks
        for name in read.get(tasks.subtopology_id, ())
        for number in tasks.partitions
    )
