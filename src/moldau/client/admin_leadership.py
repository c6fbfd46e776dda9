"""Requests about who leads and holds partitions: elections and moves. Used by `AsyncAdmin`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_topics import find_error
from moldau.client.admin_values import ElectionType, Reassignment
from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.rules.versions import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)
from moldau.errors import KafkaError
from moldau.model import TopicPartition

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsResponse
    from kio.schema.elect_leaders.v2 import ElectLeadersResponse
    from kio.schema.list_partition_reassignments.v0 import ListPartitionReassignmentsResponse

_FIRST_WITH_TYPE = 1  # ElectLeaders: before it, elections are of preferred leaders


async def elect_leaders(
    client: ClusterClient,
    partitions: Collection[TopicPartition] | None,
    *,
    election_type: ElectionType,
    timeout_ms: int,
) -> Mapping[TopicPartition, KafkaError | None]:
    wanted = None
    if partitions is not None:
        wanted = [
            {"topic": topic, "partitions": tuple(numbers)}
            for topic, numbers in _by_topic(partitions).items()
        ]

    async def ask() -> Mapping[TopicPartition, KafkaError | None]:
        connection = await client.connect_to_controller()
        version = connection.choose_version(
            ELECT_LEADERS
            if election_type is ElectionType.PREFERRED
            else ELECT_LEADERS._replace(first=_FIRST_WITH_TYPE)
        )
        values: dict[str, object] = {"topic_partitions": wanted, "timeout": timeout_ms}
        if version >= _FIRST_WITH_TYPE:
            values["election_type"] = int(election_type)
        answer = await connection.call(ELECT_LEADERS, values, version=version)
        response = cast("ElectLeadersResponse", answer)
        _raise_if_refused(getattr(response, "error_code", ErrorCode.none), None)
        return {
            TopicPartition(row.topic, one.partition_id): find_error(
                one.error_code, one.error_message, f"{row.topic}-{one.partition_id}"
            )
            for row in response.replica_election_results
            for one in row.partition_result
        }

    return await client.retry(ask, refresh=())


async def alter_partition_reassignments(
    client: ClusterClient,
    targets: Mapping[TopicPartition, Sequence[int] | None],
    *,
    timeout_ms: int,
) -> Mapping[TopicPartition, KafkaError | None]:
    values = {
        "timeout": timeout_ms,
        "topics": [
            {
                "name": topic,
                "partitions": [
                    {"partition_index": number, "replicas": _replicas(targets, topic, number)}
                    for number in numbers
                ],
            }
            for topic, numbers in _by_topic(targets).items()
        ],
    }

    async def ask() -> Mapping[TopicPartition, KafkaError | None]:
        answer = await client.call_controller(ALTER_PARTITION_REASSIGNMENTS, values)
        response = cast("AlterPartitionReassignmentsResponse", answer)
        _raise_if_refused(response.error_code, response.error_message)
        return {
            TopicPartition(row.name, one.partition_index): find_error(
                one.error_code, one.error_message, f"{row.name}-{one.partition_index}"
            )
            for row in response.responses
            for one in row.partitions
        }

    return await client.retry(ask, refresh=())


async def list_partition_reassignments(
    client: ClusterClient,
    partitions: Collection[TopicPartition] | None,
    *,
    timeout_ms: int,
) -> Mapping[TopicPartition, Reassignment]:
    topics = None
    if partitions is not None:
        topics = [
            {"name": topic, "partition_indexes": tuple(numbers)}
            for topic, numbers in _by_topic(partitions).items()
        ]
    values = {"timeout": timeout_ms, "topics": topics}

    async def ask() -> Mapping[TopicPartition, Reassignment]:
        answer = await client.call_controller(LIST_PARTITION_REASSIGNMENTS, values)
        response = cast("ListPartitionReassignmentsResponse", answer)
        _raise_if_refused(response.error_code, response.error_message)
        return {
            TopicPartition(row.name, one.partition_index): Reassignment(
                replicas=tuple(one.replicas),
                adding_replicas=tuple(one.adding_replicas),
                removing_replicas=tuple(one.removing_replicas),
            )
            for row in response.topics
            for one in row.partitions
        }

    return await client.retry(ask, refresh=())


def _replicas(
    targets: Mapping[TopicPartition, Sequence[int] | None], topic: str, number: int
) -> tuple[int, ...] | None:
    replicas = targets[TopicPartition(topic, number)]
    return None if replicas is None else tuple(replicas)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def _raise_if_refused(code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        raise error_for(code, message)
