"""CreateTopics, DeleteTopics, CreatePartitions, Metadata, DescribeTopicPartitions, DescribeCluster:
what each answers to a good request, to one about a topic that is not there, and to a wrong one."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from broker.handlers.handler_bench import HandlerBench, with_broker
from moldau.broker.handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    metadata,
)
from moldau.errors import ErrorCode

NO_ID = UUID(int=0)


def new_topic(name: str, partitions: int = 1, **more: Any) -> dict[str, Any]:
    row = {"num_partitions": partitions, "replication_factor": 1, "assignments": [], "configs": []}
    return {"name": name, **row, **more}


def wanted_topic(name: str | None, topic_id: UUID = NO_ID) -> dict[str, Any]:
    return {"topic_id": topic_id, "name": name}


def test_a_topic_is_made_and_answered_with_what_it_has_become() -> None:
    async def story(bench: HandlerBench) -> None:
        made = await bench.create("views", 3, retention_ms="1000")
        assert (made.error_code, made.num_partitions) == (ErrorCode.none, 3)
        assert made.topic_id == bench.services.image.topics["views"].topic_id
        assert {one.name: one.value for one in made.configs}["retention.ms"] == "1000"

    with_broker(story)


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (new_topic("clicks"), ErrorCode.topic_already_exists),
        (new_topic("a/b"), ErrorCode.invalid_topic_exception),
        (new_topic("views", 0), ErrorCode.invalid_partitions),
        (new_topic("views", replication_factor=3), ErrorCode.invalid_replication_factor),
        (
            new_topic("views", configs=[{"name": "retention.ms", "value": "long"}]),
            ErrorCode.invalid_config,
        ),
        (
            new_topic(
                "views",
                -1,
                replication_factor=-1,
                assignments=[{"partition_index": 0, "broker_ids": (1,)}] * 2,
            ),
            ErrorCode.invalid_replica_assignment,
        ),
    ],
    ids=["exists", "name", "partitions", "replicas", "config", "assigned twice"],
)
def test_a_topic_that_cannot_be_is_refused_with_a_message(
    row: dict[str, Any], code: ErrorCode
) -> None:
    async def story(bench: HandlerBench) -> None:
        answer = await bench.call(create_topics, topics=[row], timeout=1_000, validate_only=False)
        assert answer.topics[0].error_code is code
        assert answer.topics[0].error_message
        assert "views" not in bench.services.image.topics

    with_broker(story)


def test_a_name_that_stands_in_the_request_twice_is_refused_once() -> None:
    async def story(bench: HandlerBench) -> None:
        rows = [new_topic("views"), new_topic("likes"), new_topic("views")]
        answer = await bench.call(create_topics, topics=rows, timeout=1_000, validate_only=False)
        assert {row.name: row.error_code for row in answer.topics} == {
            "views": ErrorCode.invalid_request,
            "likes": ErrorCode.none,
        }

    with_broker(story)


def test_what_is_only_to_be_validated_is_not_made() -> None:
    async def story(bench: HandlerBench) -> None:
        rows = [new_topic("views")]
        answer = await bench.call(create_topics, topics=rows, timeout=1_000, validate_only=True)
        assert answer.topics[0].error_code is ErrorCode.none
        assert "views" not in bench.services.image.topics

    with_broker(story)


def test_topics_are_deleted_by_name_and_by_id() -> None:
    async def story(bench: HandlerBench) -> None:
        views = await bench.create("views")
        wanted = [wanted_topic("clicks"), wanted_topic(None, views.topic_id)]
        answer = await bench.call(delete_topics, topics=wanted, timeout=1_000)
        assert [row.error_code for row in answer.responses] == [ErrorCode.none] * 2
        assert not {"clicks", "views"} & set(bench.services.image.topics)

    with_broker(story)


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (wanted_topic("views"), ErrorCode.unknown_topic_or_partition),
        (wanted_topic(None, UUID(int=5)), ErrorCode.unknown_topic_id),
        (wanted_topic("clicks", UUID(int=5)), ErrorCode.invalid_request),
    ],
)
def test_what_is_not_there_cannot_be_deleted(wanted: dict[str, Any], code: ErrorCode) -> None:
    async def story(bench: HandlerBench) -> None:
        answer = await bench.call(delete_topics, topics=[wanted], timeout=1_000)
        assert answer.responses[0].error_code is code
        assert "clicks" in bench.services.image.topics

    with_broker(story)


@pytest.mark.parametrize(
    ("topic", "count", "code", "partitions"),
    [
        ("clicks", 5, ErrorCode.none, 5),
        ("clicks", 2, ErrorCode.invalid_partitions, 2),
        ("clicks", 1, ErrorCode.invalid_partitions, 2),
        ("views", 5, ErrorCode.unknown_topic_or_partition, 2),
    ],
)
def test_a_topic_grows_and_never_shrinks(
    topic: str, count: int, code: ErrorCode, partitions: int
) -> None:
    async def story(bench: HandlerBench) -> None:
        rows = [{"name": topic, "count": count, "assignments": None}]
        answer = await bench.call(
            create_partitions, topics=rows, timeout=1_000, validate_only=False
        )
        assert answer.results[0].error_code is code
        assert len(bench.services.image.topics["clicks"].partitions) == partitions

    with_broker(story)


@pytest.mark.parametrize("timeout", [0, -1])
def test_without_a_timeout_the_work_is_started_and_answered_at_once(timeout: int) -> None:
    async def story(bench: HandlerBench) -> None:
        async def ask(handler: Any, **values: Any) -> Any:
            return await bench.call(handler, timeout=timeout, **values)

        rows = [new_topic("views"), new_topic("clicks")]
        answer = await ask(create_topics, topics=rows, validate_only=False)
        assert [row.error_code for row in answer.topics] == [
            ErrorCode.request_timed_out,
            ErrorCode.topic_already_exists,
        ]
        assert "views" in bench.services.image.topics
        answer = await ask(create_topics, topics=[new_topic("likes")], validate_only=True)
        assert answer.topics[0].error_code is ErrorCode.none
        grown = [{"name": name, "count": 3, "assignments": None} for name in ("views", "nobody")]
        answer = await ask(create_partitions, topics=grown, validate_only=False)
        assert [row.error_code for row in answer.results] == [
            ErrorCode.request_timed_out,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert len(bench.services.image.topics["views"].partitions) == 3
        wanted = [wanted_topic("views"), wanted_topic("nobody")]
        answer = await ask(delete_topics, topics=wanted)
        assert [row.error_code for row in answer.responses] == [
            ErrorCode.request_timed_out,
            ErrorCode.unknown_topic_or_partition,
        ]
        assert "views" not in bench.services.image.topics

    with_broker(story)


def test_metadata_names_leaders_and_what_is_not_there() -> None:
    async def story(bench: HandlerBench) -> None:
        clicks, views = wanted_topic("clicks"), wanted_topic("views")
        answer = await bench.call(
            metadata,
            topics=[clicks, views],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        known, missing = answer.topics
        assert [row.leader_id for row in known.partitions] == [1, 1]
        assert missing.error_code is ErrorCode.unknown_topic_or_partition
        assert [(row.node_id, row.port) for row in answer.brokers] == [(1, 9092)]

    with_broker(story)


def test_metadata_of_all_topics_and_of_none() -> None:
    async def story(bench: HandlerBench) -> None:
        common = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
        every = await bench.call(metadata, topics=None, **common)
        none = await bench.call(metadata, topics=[], **common)
        assert [row.name for row in every.topics] == ["clicks"]
        assert none.topics == ()

    with_broker(story)


def test_pages_of_partitions_say_where_the_next_one_begins() -> None:
    async def story(bench: HandlerBench) -> None:
        rows = [{"name": "clicks"}, {"name": "views"}]
        first = await bench.call(
            describe_topic_partitions, topics=rows, response_partition_limit=1, cursor=None
        )
        assert [len(row.partitions) for row in first.topics] == [1]
        assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("clicks", 1)
        rest = await bench.call(
            describe_topic_partitions,
            topics=rows,
            response_partition_limit=2000,
            cursor={"topic_name": "clicks", "partition_index": 1},
        )
        assert [one.partition_index for one in rest.topics[0].partitions] == [1]
        assert rest.topics[1].error_code is ErrorCode.unknown_topic_or_partition
        assert rest.next_cursor is None

    with_broker(story)


def test_the_cluster_is_described_by_its_brokers_alone() -> None:
    async def story(bench: HandlerBench) -> None:
        common = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
        found = await bench.call(describe_cluster, endpoint_type=1, **common)
        assert found.cluster_id == bench.services.image.cluster_id
        assert [row.broker_id for row in found.brokers] == [1]
        refused = await bench.call(describe_cluster, endpoint_type=2, **common)
        assert refused.error_code is not ErrorCode.none

    with_broker(story)
