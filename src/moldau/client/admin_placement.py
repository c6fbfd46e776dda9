"""Requests about who leads and holds partitions: elections and moves. A part of `AsyncAdmin`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_part import DEFAULT_TIMEOUT_MS, AdminPart, indexes_by_topic, topic_rows
from moldau.client.admin_values import ElectionType, Reassignment
from moldau.client.broker_errors import error_for, find_error
from moldau.client.rules.denials import CLUSTER, lacking
from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.wire.apis import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsResponse
    from kio.schema.elect_leaders.v2 import ElectLeadersResponse
    from kio.schema.list_partition_reassignments.v0 import ListPartitionReassignmentsResponse

_FIRST_WITH_TYPE = 1  # ElectLeaders: before it, elections are of preferred leaders


class PlacementAdmin(AdminPart):
    """What `AsyncAdmin` does about who leads and holds partitions."""

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Elect leaders for these partitions, or for all that need it.

        Preferred: the first replica leads again, if it is in sync. Unclean: where nobody leads,
        any living replica does, and what it lacks is lost.
        """
        wanted = None
        if partitions is not None:
            wanted = [
                {"topic": topic, "partitions": tuple(numbers)}
                for topic, numbers in indexes_by_topic(partitions).items()
            ]

        async def ask() -> Mapping[TopicPartition, KafkaError | None]:
            connection = await self._client.connect_to_controller()
            version = connection.choose_version(
                ELECT_LEADERS,
                at_least=0 if election_type is ElectionType.PREFERRED else _FIRST_WITH_TYPE,
            )
            values: dict[str, object] = {"topic_partitions": wanted, "timeout": timeout_ms}
            if version >= _FIRST_WITH_TYPE:
                values["election_type"] = int(election_type)
            answer = await connection.call(ELECT_LEADERS, values, version=version)
            response = cast("ElectLeadersResponse", answer)
            code = getattr(response, "error_code", ErrorCode.none)  # without a message
            is_denied = code is ErrorCode.cluster_authorization_failed
            _raise_if_refused(code, lacking("Alter", CLUSTER) if is_denied else None)
            return {
                TopicPartition(row.topic, one.partition_id): find_error(
                    one.error_code, one.error_message, f"{row.topic}-{one.partition_id}"
                )
                for row in response.replica_election_results
                for one in row.partition_result
            }

        return await self._client.retry(ask, refresh=())

    async def alter_partition_reassignments(
        self,
        targets: Mapping[TopicPartition, Sequence[int] | None],
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, KafkaError | None]:
        """Move partitions to these brokers, the preferred leader first; None cancels a move."""
        values = {
            "timeout": timeout_ms,
            "topics": topic_rows(
                {
                    partition: {"replicas": None if replicas is None else tuple(replicas)}
                    for partition, replicas in targets.items()
                }
            ),
        }

        async def ask() -> Mapping[TopicPartition, KafkaError | None]:
            answer = await self._client.call_controller(ALTER_PARTITION_REASSIGNMENTS, values)
            response = cast("AlterPartitionReassignmentsResponse", answer)
            _raise_if_refused(response.error_code, response.error_message)
            return {
                TopicPartition(row.name, one.partition_index): find_error(
                    one.error_code, one.error_message, f"{row.name}-{one.partition_index}"
                )
                for row in response.responses
                for one in row.partitions
            }

        return await self._client.retry(ask, refresh=())

    async def list_partition_reassignments(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, Reassignment]:
        """Those of these partitions, or of all, that are being moved."""
        topics = None
        if partitions is not None:
            topics = [
                {"name": topic, "partition_indexes": tuple(numbers)}
                for topic, numbers in indexes_by_topic(partitions).items()
            ]
        values = {"timeout": timeout_ms, "topics": topics}

        async def ask() -> Mapping[TopicPartition, Reassignment]:
            answer = await self._client.call_controller(LIST_PARTITION_REASSIGNMENTS, values)
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

        return await self._client.retry(ask, refresh=())


def _raise_if_refused(code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        raise error_for(code, message)
