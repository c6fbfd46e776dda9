"""Requests about topics: create, delete, describe, add partitions. A part of `AsyncAdmin`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin_part import DEFAULT_TIMEOUT_MS, AdminPart
from moldau.client.admin_values import (
    BROKER_DEFAULT,
    CreatedTopic,
    EligibleLeaders,
    NewTopic,
)
from moldau.client.broker_errors import error_for, find_error
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import KafkaError, NotControllerError, UnknownTopicError
from moldau.model import TopicPartition
from moldau.wire.apis import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_TOPIC_PARTITIONS,
)

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.response import CreatePartitionsResponse
    from kio.schema.create_topics.v7.response import CreatableTopicResult, CreateTopicsResponse
    from kio.schema.delete_topics.v6.response import DeleteTopicsResponse
    from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse

T = TypeVar("T")

_PAGE_PARTITIONS = 2000  # of DescribeTopicPartitions, as Kafka's clients ask for
_FIRST_BY_ID = 6  # DeleteTopics: from here on topics are structures with a name or an id


class TopicAdmin(AdminPart):
    """What `AsyncAdmin` does with topics."""

    async def create_topics(
        self,
        topics: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, CreatedTopic | KafkaError]:
        """Make topics; with `validate_only` say what would happen."""
        values = {
            "topics": [_new_topic_values(topic) for topic in topics],
            "timeout": timeout_ms,
            "validate_only": validate_only,
        }

        async def ask() -> Mapping[str, CreatedTopic | KafkaError]:
            answer = await self._client.call_controller(CREATE_TOPICS, values)
            rows = cast("CreateTopicsResponse", answer).topics
            return _raise_if_moved({str(row.name): _created(row) for row in rows})

        return await self._client.retry(ask, refresh=())

    async def delete_topics(
        self, names: Collection[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[str, KafkaError | None]:
        """Delete topics with all their records."""

        async def ask() -> Mapping[str, KafkaError | None]:
            connection = await self._client.connect_to_controller()
            version = connection.choose_version(DELETE_TOPICS)
            topics: dict[str, object] = (
                {"topics": [{"name": name, "topic_id": None} for name in names]}
                if version >= _FIRST_BY_ID
                else {"topic_names": list(names)}
            )
            values = {**topics, "timeout": timeout_ms}
            answer = await connection.call(DELETE_TOPICS, values, version=version)
            return _raise_if_moved(
                {
                    str(row.name): find_error(
                        row.error_code, getattr(row, "error_message", None), f"topic {row.name!r}"
                    )
                    for row in cast("DeleteTopicsResponse", answer).responses
                }
            )

        return await self._client.retry(ask, refresh=())

    async def list_topics(self) -> Mapping[str, TopicMetadata]:
        """Every topic by name, internal ones included."""
        return (await self._client.metadata.refresh()).topics

    async def describe_topics(
        self, names: Collection[str]
    ) -> Mapping[str, TopicMetadata | KafkaError]:
        """Partitions, leaders and replicas of these topics."""
        found = await self._client.metadata.refresh(names)
        described: dict[str, TopicMetadata | KafkaError] = {}
        for name in names:
            topic = found.topics.get(name)
            if topic is None:
                described[name] = UnknownTopicError(f"there is no topic {name!r}")
            else:
                described[name] = topic if topic.error is None else topic.error
        return described

    async def describe_eligible_leaders(
        self, names: Collection[str]
    ) -> Mapping[TopicPartition, EligibleLeaders]:
        """Who may lead the partitions of these topics although it is not in sync (KIP-966)."""
        found: dict[TopicPartition, EligibleLeaders] = {}
        cursor: dict[str, object] | None = None
        while True:
            values = {
                "topics": [{"name": name} for name in sorted(names)],
                "response_partition_limit": _PAGE_PARTITIONS,
                "cursor": cursor,
            }
            connection = await self._client.pool.to_any()
            answer = cast(
                "DescribeTopicPartitionsResponse",
                await connection.call(DESCRIBE_TOPIC_PARTITIONS, values),
            )
            for topic in answer.topics:
                for row in topic.partitions:
                    found[TopicPartition(topic.name or "", row.partition_index)] = EligibleLeaders(
                        eligible=tuple(row.eligible_leader_replicas or ()),
                        last_known=tuple(row.last_known_elr or ()),
                    )
            if answer.next_cursor is None:
                return found
            at = answer.next_cursor
            cursor = {"topic_name": at.topic_name, "partition_index": at.partition_index}

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        validate_only: bool = False,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> Mapping[str, KafkaError | None]:
        """Grow topics to these numbers of partitions."""
        values = {
            "topics": [
                {"name": name, "count": total, "assignments": None}
                for name, total in totals.items()
            ],
            "timeout": timeout_ms,
            "validate_only": validate_only,
        }

        async def ask() -> Mapping[str, KafkaError | None]:
            answer = await self._client.call_controller(CREATE_PARTITIONS, values)
            return _raise_if_moved(
                {
                    str(row.name): find_error(
                        row.error_code, row.error_message, f"topic {row.name!r}"
                    )
                    for row in cast("CreatePartitionsResponse", answer).results
                }
            )

        return await self._client.retry(ask, refresh=())


def _new_topic_values(topic: NewTopic) -> dict[str, object]:
    by_hand = bool(topic.assignments)
    return {
        "name": topic.name,
        "num_partitions": BROKER_DEFAULT if by_hand else topic.partitions,
        "replication_factor": BROKER_DEFAULT if by_hand else topic.replication_factor,
        "assignments": [
            {"partition_index": index, "broker_ids": tuple(brokers)}
            for index, brokers in sorted(topic.assignments.items())
        ],
        "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
    }


def _created(row: CreatableTopicResult) -> CreatedTopic | KafkaError:
    if row.error_code is not ErrorCode.none:
        return error_for(row.error_code, row.error_message, f"topic {row.name!r}")
    return CreatedTopic(
        name=row.name,
        topic_id=getattr(row, "topic_id", None),  # from version 7 on
        partitions=getattr(row, "num_partitions", BROKER_DEFAULT),  # from version 5 on
        replication_factor=getattr(row, "replication_factor", BROKER_DEFAULT),
    )


def _raise_if_moved(rows: Mapping[str, T]) -> Mapping[str, T]:
    """Every row says NOT_CONTROLLER when the controller has moved: then ask the new one."""
    for row in rows.values():
        if isinstance(row, NotControllerError):
            raise row
    return rows
