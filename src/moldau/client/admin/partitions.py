"""Requests about partitions: offsets, deletion, disks, elections, moves. Parts of `AsyncAdmin`.

Offsets and deletion are the leader's matter: partitions are grouped by leader, each group asked
at once, and partitions whose leader has moved are asked again after fresh metadata.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin import DEFAULT_TIMEOUT_MS, AdminPart, indexes_by_topic, topic_rows
from moldau.client.admin.values import ElectionType, LogDirDescription, Reassignment, ReplicaOnDisk
from moldau.client.cluster import ClusterClient
from moldau.client.connections import BrokerConnection
from moldau.client.rules.arguments import require_by_partition
from moldau.client.rules.broker_errors import CLUSTER, describe_missing_right, error_for, find_error
from moldau.client.rules.offsets import ListedOffset
from moldau.errors import KafkaError
from moldau.model import CONSUMER, NO_LEADER_EPOCH, READ_COMMITTED, READ_UNCOMMITTED, TopicPartition
from moldau.wire.apis import (
    ALTER_PARTITION_REASSIGNMENTS,
    ALTER_REPLICA_LOG_DIRS,
    DELETE_RECORDS,
    DESCRIBE_LOG_DIRS,
    ELECT_LEADERS,
    LIST_OFFSETS,
    LIST_PARTITION_REASSIGNMENTS,
)

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1 import AlterPartitionReassignmentsResponse
    from kio.schema.alter_replica_log_dirs.v2.response import AlterReplicaLogDirsResponse
    from kio.schema.delete_records.v2.response import DeleteRecordsResponse
    from kio.schema.describe_log_dirs.v4.response import (
        DescribeLogDirsResponse,
        DescribeLogDirsResult,
    )
    from kio.schema.elect_leaders.v2 import ElectLeadersResponse
    from kio.schema.list_offsets.v10.response import (
        ListOffsetsPartitionResponse,
        ListOffsetsResponse,
    )
    from kio.schema.list_partition_reassignments.v0 import ListPartitionReassignmentsResponse


T = TypeVar("T")
Q = TypeVar("Q")

_LIST_DROPPABLE = frozenset({"current_leader_epoch", "isolation_level", "timeout"})


class LogAdmin(AdminPart):
    """What `AsyncAdmin` does with the logs behind partitions."""

    async def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
        """Offsets by `OffsetSpec`, or by a time in milliseconds: the first record at or after."""
        isolation_level = READ_COMMITTED if read_committed else READ_UNCOMMITTED

        async def send_request(
            connection: BrokerConnection, group: Mapping[TopicPartition, int]
        ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
            topics = topic_rows({one: _list_values(timestamp) for one, timestamp in group.items()})
            values = {
                "replica_id": CONSUMER,
                "isolation_level": isolation_level,
                "topics": topics,
                "timeout": timeout_ms,
            }
            answer = cast(
                "ListOffsetsResponse", await connection.call(LIST_OFFSETS, values, _LIST_DROPPABLE)
            )
            return {
                (partition := TopicPartition(topic.name, row.partition_index)): _read_listed(
                    partition, row
                )
                for topic in answer.topics
                for row in topic.partitions
            }

        return await ask_leaders(self._client, wanted, send_request)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[TopicPartition, int | KafkaError]:
        """Delete what precedes an offset (-1: everything); answers with the new log start."""

        async def send_request(
            connection: BrokerConnection, group: Mapping[TopicPartition, int]
        ) -> Mapping[TopicPartition, int | KafkaError]:
            topics = topic_rows({one: {"offset": offset} for one, offset in group.items()})
            values = {"topics": topics, "timeout": timeout_ms}
            answer = await connection.call(DELETE_RECORDS, values)
            deleted: dict[TopicPartition, int | KafkaError] = {}
            for topic in cast("DeleteRecordsResponse", answer).topics:
                for row in topic.partitions:
                    partition = TopicPartition(topic.name, row.partition_index)
                    error = find_error(row.error_code, None, str(partition))
                    deleted[partition] = error or row.low_watermark
            return deleted

        return await ask_leaders(self._client, before, send_request)

    async def describe_log_dirs(
        self, broker_ids: Collection[int] | None = None
    ) -> Mapping[int, tuple[LogDirDescription | KafkaError, ...]]:
        """Log directories and their replicas, of these brokers or of all."""
        if broker_ids is None:
            broker_ids = tuple((await self._client.metadata.refresh(())).brokers)
        described: dict[int, tuple[LogDirDescription | KafkaError, ...]] = {}
        for broker_id in broker_ids:
            connection = await self._client.connect_to_broker(broker_id)
            answer = await connection.call(DESCRIBE_LOG_DIRS, {"topics": None})
            told = cast("DescribeLogDirsResponse", answer)
            code = getattr(told, "error_code", ErrorCode.none)  # from version 3 on
            if code is not ErrorCode.none:
                raise _refusal(code, broker_id)
            described[broker_id] = tuple(map(_read_log_dir, told.results))
        return described

    async def alter_replica_log_dirs(
        self, targets: Mapping[tuple[int, TopicPartition], str]
    ) -> Mapping[tuple[int, TopicPartition], KafkaError | None]:
        """Move replicas, each named by its broker and partition, to log directories there.

        Answers when the moves have begun: until one is done, `describe_log_dirs` shows a future
        replica. A replica that is not there yet is answered with ReplicaNotAvailableError, and is
        made in that directory later.
        """
        answers: dict[tuple[int, TopicPartition], KafkaError | None] = {}
        for broker_id in sorted({broker_id for broker_id, _ in targets}):
            paths: defaultdict[str, list[TopicPartition]] = defaultdict(list)
            for (each, partition), path in targets.items():
                if each == broker_id:
                    paths[path].append(partition)
            connection = await self._client.connect_to_broker(broker_id)
            values = {"dirs": [_dir_values(path, moved) for path, moved in paths.items()]}
            answer = await connection.call(ALTER_REPLICA_LOG_DIRS, values)
            for topic in cast("AlterReplicaLogDirsResponse", answer).results:
                for row in topic.partitions:
                    partition = TopicPartition(topic.topic_name, row.partition_index)
                    message = f"{partition} on broker {broker_id}"
                    error = find_error(row.error_code, None, message)
                    answers[broker_id, partition] = error
        return answers


def _dir_values(path: str, partitions: Sequence[TopicPartition]) -> dict[str, object]:
    topics: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        topics[partition.topic].append(partition.partition)
    rows = [{"name": name, "partitions": numbers} for name, numbers in topics.items()]
    return {"path": path, "topics": rows}


def _list_values(timestamp: int) -> dict[str, object]:
    return {"current_leader_epoch": NO_LEADER_EPOCH, "timestamp": timestamp}


def _read_listed(
    partition: TopicPartition, row: ListOffsetsPartitionResponse
) -> ListedOffset | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, None, str(partition))
    return ListedOffset(
        offset=row.offset,
        timestamp_ms=row.timestamp,
        leader_epoch=getattr(row, "leader_epoch", NO_LEADER_EPOCH),  # from version 4 on
    )


def _refusal(code: ErrorCode, broker_id: int) -> KafkaError:
    """The answer has no room for a message."""
    is_denied = code is ErrorCode.cluster_authorization_failed
    message = describe_missing_right("Describe", CLUSTER) if is_denied else None
    return error_for(code, message, f"broker {broker_id}")


def _read_log_dir(row: DescribeLogDirsResult) -> LogDirDescription | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, None, row.log_dir)
    return LogDirDescription(
        path=row.log_dir,
        total_bytes=getattr(row, "total_bytes", -1),  # from version 4 on
        usable_bytes=getattr(row, "usable_bytes", -1),
        replicas=tuple(
            ReplicaOnDisk(
                partition=TopicPartition(topic.name, one.partition_index),
                size_bytes=one.partition_size,
                offset_lag=one.offset_lag,
                is_future=one.is_future_key,
            )
            for topic in row.topics
            for one in topic.partitions
        ),
    )


AskLeader = Callable[
    [BrokerConnection, Mapping[TopicPartition, Q]],
    Awaitable[Mapping[TopicPartition, T | KafkaError]],
]


async def ask_leaders(
    client: ClusterClient, questions: Mapping[TopicPartition, Q], send_request: AskLeader[Q, T]
) -> Mapping[TopicPartition, T | KafkaError]:
    """Ask each leader about its partitions, until every partition has a lasting answer."""
    questions = require_by_partition(questions)

    async def ask_about(left: Sequence[TopicPartition]) -> Mapping[TopicPartition, T | KafkaError]:
        groups = await _by_leader(client, {partition: questions[partition] for partition in left})
        found = await asyncio.gather(
            *[_ask_group(client, leader, group, send_request) for leader, group in groups.items()]
        )
        return {partition: answer for answers in found for partition, answer in answers.items()}

    topics = {partition.topic for partition in questions}
    return await client.retry_each(questions.keys(), ask_about, refresh=topics)


async def _ask_group(
    client: ClusterClient,
    leader_id: int,
    group: Mapping[TopicPartition, Q],
    send_request: AskLeader[Q, T],
) -> Mapping[TopicPartition, T | KafkaError]:
    return await send_request(await client.connect_to_broker(leader_id), group)


async def _by_leader(
    client: ClusterClient, questions: Mapping[TopicPartition, Q]
) -> Mapping[int, dict[TopicPartition, Q]]:
    unknown = {p.topic for p in questions} - client.metadata.current.topics.keys()
    if unknown:
        await client.metadata.refresh(unknown)
    groups: defaultdict[int, dict[TopicPartition, Q]] = defaultdict(dict)
    for partition, question in questions.items():
        groups[client.metadata.current.require_leader(partition)][partition] = question
    return groups


# Leaders and replicas: elections and moves


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

        async def send_request() -> Mapping[TopicPartition, KafkaError | None]:
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
            _raise_if_refused(code, describe_missing_right("Alter", CLUSTER) if is_denied else None)
            return {
                TopicPartition(row.topic, one.partition_id): find_error(
                    one.error_code, one.error_message, f"{row.topic}-{one.partition_id}"
                )
                for row in response.replica_election_results
                for one in row.partition_result
            }

        return await self._client.retry(send_request, refresh=())

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

        async def send_request() -> Mapping[TopicPartition, KafkaError | None]:
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

        return await self._client.retry(send_request, refresh=())

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

        async def send_request() -> Mapping[TopicPartition, Reassignment]:
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

        return await self._client.retry(send_request, refresh=())


def _raise_if_refused(code: ErrorCode, message: str | None) -> None:
    if code is not ErrorCode.none:
        raise error_for(code, message)
