"""Requests about topics: create, delete, describe, add partitions. A part of `AsyncAdmin`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from kio.schema.errors import ErrorCode

from moldau.client.admin import DEFAULT_TIMEOUT_MS, AdminPart
from moldau.client.admin.values import BROKER_DEFAULT, CreatedTopic, EligibleLeaders, NewTopic
from moldau.client.rules.arguments import require_list, require_names, wrong_type
from moldau.client.rules.broker_errors import error_for, find_error
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.errors import (
    KafkaError,
    NotControllerError,
    ThrottlingQuotaExceededError,
    UnknownTopicError,
)
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

_Answers: TypeAlias = tuple[Mapping[str, T], float]  # by topic, and for how long to wait

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
        topics = require_list(topics, NewTopic, "topics, like [moldau.NewTopic(name='clicks')]")

        async def send_request(names: Collection[str]) -> _Answers[CreatedTopic | KafkaError]:
            values = {
                "topics": [_new_topic_values(topic) for topic in topics if topic.name in names],
                "timeout": timeout_ms,
                "validate_only": validate_only,
            }
            answer = await self._client.call_controller(CREATE_TOPICS, values)
            told = cast("CreateTopicsResponse", answer)
            return {str(row.name): _created(row) for row in told.topics}, _throttle_seconds(told)

        return await self._ask_controller([topic.name for topic in topics], send_request)

    async def delete_topics(
        self, names: Collection[str], *, timeout_ms: int = DEFAULT_TIMEOUT_MS
    ) -> Mapping[str, KafkaError | None]:
        """Delete topics with all their records."""
        names = require_names(names)

        async def send_request(names: Collection[str]) -> _Answers[KafkaError | None]:
            connection = await self._client.connect_to_controller()
            version = connection.choose_version(DELETE_TOPICS)
            topics: dict[str, object] = (
                {"topics": [{"name": name, "topic_id": None} for name in names]}
                if version >= _FIRST_BY_ID
                else {"topic_names": list(names)}
            )
            values = {**topics, "timeout": timeout_ms}
            answer = await connection.call(DELETE_TOPICS, values, version=version)
            told = cast("DeleteTopicsResponse", answer)
            return {
                str(row.name): find_error(
                    row.error_code, getattr(row, "error_message", None), f"topic {row.name!r}"
                )
                for row in told.responses
            }, _throttle_seconds(told)

        return await self._ask_controller(names, send_request)

    async def list_topics(self) -> Mapping[str, TopicMetadata]:
        """Every topic by name, internal ones included."""
        return (await self._client.metadata.refresh()).topics

    async def describe_topics(
        self, names: Collection[str]
    ) -> Mapping[str, TopicMetadata | KafkaError]:
        """Partitions, leaders and replicas of these topics."""
        names = require_names(names)
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
        names = require_names(names)
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
        if not isinstance(totals, Mapping):
            raise wrong_type("totals", "a mapping, like {'clicks': 6}", totals)

        async def send_request(names: Collection[str]) -> _Answers[KafkaError | None]:
            values = {
                "topics": [
                    {"name": name, "count": totals[name], "assignments": None} for name in names
                ],
                "timeout": timeout_ms,
                "validate_only": validate_only,
            }
            answer = await self._client.call_controller(CREATE_PARTITIONS, values)
            told = cast("CreatePartitionsResponse", answer)
            return {
                str(row.name): find_error(row.error_code, row.error_message, f"topic {row.name!r}")
                for row in told.results
            }, _throttle_seconds(told)

        return await self._ask_controller(list(totals), send_request)

    async def _ask_controller(
        self,
        names: Collection[str],
        send_request: Callable[[Collection[str]], Awaitable[_Answers[T]]],
    ) -> Mapping[str, T]:
        """Ask about topics; again, after the time that it names, about those that the controller
        has refused because of `controller_mutation_rate` (KIP-599). When it is longer than an
        operation may take, the refusal is the answer."""
        clock, left = self._client.clock, names
        end = clock.monotonic() + self._client.settings.timeout_seconds
        answers: dict[str, T] = {}
        while True:
            rows, throttle_seconds = await self._client.retry(
                partial(_ask_where_it_is, send_request, left), refresh=()
            )
            answers.update(rows)
            left = [
                name for name in left if isinstance(answers.get(name), ThrottlingQuotaExceededError)
            ]
            wait_seconds = max(throttle_seconds, self._client.backoff_seconds(0))
            if not left or clock.monotonic() + wait_seconds > end:
                return answers
            await clock.sleep(wait_seconds)


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


async def _ask_where_it_is(
    send_request: Callable[[Collection[str]], Awaitable[_Answers[T]]], names: Collection[str]
) -> _Answers[T]:
    """Every row says NOT_CONTROLLER when the controller has moved: then ask the new one."""
    rows, throttle_seconds = await send_request(names)
    for row in rows.values():
        if isinstance(row, NotControllerError):
            raise row
    return rows, throttle_seconds


def _throttle_seconds(answer: object) -> float:
    throttle: timedelta = getattr(answer, "throttle_time", timedelta(0))
    return throttle.total_seconds()
