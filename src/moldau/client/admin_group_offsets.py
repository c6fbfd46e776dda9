"""Requests about how far groups have read: show, set, forget. Used by `AsyncAdmin`.

Setting is committing without being a member, which a coordinator takes while the group is empty.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_topics import find_error
from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import BrokerConnection
from moldau.client.coordinators import ask_coordinator
from moldau.client.group_values import NO_EPOCH, GroupOffset
from moldau.client.rules.versions import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from moldau.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupNotEmptyError,
    KafkaError,
    NotCoordinatorError,
)
from moldau.model import TopicPartition

if TYPE_CHECKING:
    from kio.schema.offset_commit.v9.response import OffsetCommitResponse
    from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as SingleFetchResponse
    from kio.schema.offset_fetch.v7.response import OffsetFetchResponsePartition
    from kio.schema.offset_fetch.v9.response import (
        OffsetFetchResponse,
        OffsetFetchResponseGroup,
        OffsetFetchResponsePartitions,
    )

_FIRST_WITH_SEVERAL_GROUPS = 8
_NO_GENERATION = -1
_NO_MEMBER = ""
_BROKERS_RETENTION = -1
_NO_OFFSET = -1
_FETCH_DROPPABLE = frozenset({"require_stable"})
_COMMIT_DROPPABLE = frozenset({"committed_leader_epoch", "retention_time"})

Done = Mapping[TopicPartition, KafkaError | None]


async def list_group_offsets(
    client: ClusterClient, group_id: str, partitions: Collection[TopicPartition] | None
) -> Mapping[TopicPartition, GroupOffset | KafkaError]:
    topics = None if partitions is None else _topics_to_fetch(partitions)

    async def ask(
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
            if row.committed_offset != _NO_OFFSET or row.error_code is not ErrorCode.none
        }

    return await ask_coordinator(client, group_id, ask)


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


def _topics_to_fetch(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    indexes: defaultdict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        indexes[partition.topic].append(partition.partition)
    return [{"name": name, "partition_indexes": tuple(some)} for name, some in indexes.items()]


def _read_offset(
    partition: TopicPartition, row: OffsetFetchResponsePartition | OffsetFetchResponsePartitions
) -> GroupOffset | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, None, str(partition))
    return GroupOffset(
        offset=row.committed_offset,
        leader_epoch=getattr(row, "committed_leader_epoch", NO_EPOCH),  # from version 5 on
        metadata=row.metadata or "",
    )


async def alter_group_offsets(
    client: ClusterClient, group_id: str, offsets: Mapping[TopicPartition, int | GroupOffset]
) -> Done:
    values = {
        "group_id": group_id,
        "generation_id_or_member_epoch": _NO_GENERATION,
        "member_id": _NO_MEMBER,
        "retention_time": _BROKERS_RETENTION,
        "topics": _by_topic({partition: _commit_values(one) for partition, one in offsets.items()}),
    }

    async def ask(connection: BrokerConnection) -> Done:
        answer = await connection.call(OFFSET_COMMIT, values, _COMMIT_DROPPABLE)
        done = _raise_if_moved(_read_done(cast("OffsetCommitResponse", answer)))
        return {partition: _explain(error, group_id) for partition, error in done.items()}

    return await ask_coordinator(client, group_id, ask)


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


async def delete_group_offsets(
    client: ClusterClient, group_id: str, partitions: Collection[TopicPartition]
) -> Done:
    values = {
        "group_id": group_id,
        "topics": _by_topic({partition: {} for partition in partitions}),
    }

    async def ask(connection: BrokerConnection) -> Done:
        answer = cast("OffsetDeleteResponse", await connection.call(OFFSET_DELETE, values))
        if answer.error_code is not ErrorCode.none:
            raise error_for(answer.error_code, None, f"group {group_id!r}")
        return _read_done(answer)

    return await ask_coordinator(client, group_id, ask)


def _by_topic(rows: Mapping[TopicPartition, dict[str, object]]) -> list[dict[str, object]]:
    topics: defaultdict[str, list[dict[str, object]]] = defaultdict(list)
    for partition, row in rows.items():
        topics[partition.topic].append({"partition_index": partition.partition, **row})
    return [{"name": name, "partitions": some} for name, some in topics.items()]


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
