"""Elections and moves of partitions, as the administration client asks for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

import pytest

from client.scripted_broker import METADATA, Request, Script, Stage, metadata
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import ElectionType, EligibleLeaders, Reassignment
from moldau.errors import (
    ElectionNotNeededError,
    NoReassignmentInProgressError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition

T = TypeVar("T")

ELECT, ALTER, LIST, DESCRIBE = 43, 45, 46, 75
NOT_CONTROLLER, ELECTION_NOT_NEEDED, NO_REASSIGNMENT = 41, 84, 85
CLICKS_0, CLICKS_1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
NEWEST = {ELECT: 2, ALTER: 1, LIST: 0, DESCRIBE: 0}


def administer(stage: Stage, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    async def story() -> T:
        async with AsyncAdmin(
            "b1:9092", network=stage.network.host("client"), clock=stage.clock
        ) as admin:
            return await work(admin)

    return stage.play(story)


def scripted(
    api_key: int, script: Script, *, version: int | None = None, brokers: int = 1
) -> Stage:
    stage = Stage(broker_count=brokers)
    for broker in stage.brokers:
        broker.scripts[METADATA] = metadata({"clicks": [1, 1]}, brokers=brokers)
        broker.scripts[api_key] = script
        chosen = NEWEST[api_key] if version is None else version
        broker.versions[api_key] = (chosen, chosen)
    return stage


def elected(code: int = 0) -> Script:
    rows = [
        {"partition_id": 0, "error_code": 0, "error_message": None},
        {"partition_id": 1, "error_code": ELECTION_NOT_NEEDED, "error_message": "it leads"},
    ]
    return lambda request: {
        "throttle_time": 0,
        "error_code": code,
        "replica_election_results": [{"topic": "clicks", "partition_result": rows}],
    }


def altered(code: int, row_code: int = 0) -> Script:
    row = {"partition_index": 0, "error_code": row_code, "error_message": None}
    return lambda request: {
        "throttle_time": 0,
        "allow_replication_factor_change": True,
        "error_code": code,
        "error_message": None,
        "responses": [{"name": "clicks", "partitions": [row]}],
    }


@pytest.mark.parametrize("version", [0, 1, 2])
def test_preferred_leaders_are_elected_in_every_version(version: int) -> None:
    stage = scripted(ELECT, elected(), version=version)
    answer = administer(stage, lambda admin: admin.elect_leaders([CLICKS_0, CLICKS_1]))
    assert answer[CLICKS_0] is None
    assert isinstance(answer[CLICKS_1], ElectionNotNeededError)
    (request,) = stage.brokers[0].asked(ELECT)
    assert [(row.topic, row.partitions) for row in request.topic_partitions] == [("clicks", (0, 1))]
    assert getattr(request, "election_type", 0) == 0


def test_all_partitions_are_asked_for_by_null() -> None:
    stage = scripted(ELECT, elected())
    administer(stage, lambda admin: admin.elect_leaders(election_type=ElectionType.UNCLEAN))
    (request,) = stage.brokers[0].asked(ELECT)
    assert (request.topic_partitions, request.election_type) == (None, 1)


def test_an_old_broker_cannot_hold_unclean_elections() -> None:
    stage = scripted(ELECT, elected(), version=0)
    with pytest.raises(UnsupportedByBrokerError):
        administer(
            stage,
            lambda admin: admin.elect_leaders([CLICKS_0], election_type=ElectionType.UNCLEAN),
        )


@pytest.mark.parametrize("version", [0, 1])
def test_moves_begin_and_are_cancelled_in_every_version(version: int) -> None:
    stage = scripted(ALTER, altered(0, NO_REASSIGNMENT), version=version)
    answer = administer(
        stage,
        lambda admin: admin.alter_partition_reassignments({CLICKS_0: [3, 2], CLICKS_1: None}),
    )
    assert isinstance(answer[CLICKS_0], NoReassignmentInProgressError)
    (request,) = stage.brokers[0].asked(ALTER)
    rows = [(row.partition_index, row.replicas) for row in request.topics[0].partitions]
    assert rows == [(0, (3, 2)), (1, None)]


def test_a_controller_that_moved_is_asked_again() -> None:
    stage = scripted(ALTER, altered(0), brokers=2)

    def moved(request: Request) -> Mapping[str, object]:
        for broker in stage.brokers:
            broker.scripts[METADATA] = metadata({}, brokers=2, controller=2)
        answer = altered(NOT_CONTROLLER)(request)
        assert isinstance(answer, Mapping)
        return answer

    stage.brokers[0].scripts[ALTER] = moved
    answer = administer(stage, lambda admin: admin.alter_partition_reassignments({CLICKS_0: [2]}))
    assert answer == {CLICKS_0: None}
    assert len(stage.brokers[1].asked(ALTER)) == 1


def test_moves_are_listed_with_where_they_go_to() -> None:
    row = {
        "partition_index": 1,
        "replicas": (3, 2, 1),
        "adding_replicas": (3,),
        "removing_replicas": (1,),
    }
    values = {
        "throttle_time": 0,
        "error_code": 0,
        "error_message": None,
        "topics": [{"name": "clicks", "partitions": [row]}],
    }
    stage = scripted(LIST, lambda request: values)

    async def list_twice(admin: AsyncAdmin) -> Mapping[TopicPartition, Reassignment]:
        await admin.list_partition_reassignments([CLICKS_0])
        return await admin.list_partition_reassignments()

    answer = administer(stage, list_twice)
    expected = Reassignment(replicas=(3, 2, 1), adding_replicas=(3,), removing_replicas=(1,))
    assert answer == {CLICKS_1: expected}
    assert expected.target == (3, 2)
    one, everything = stage.brokers[0].asked(LIST)
    assert everything.topics is None
    assert [(row.name, row.partition_indexes) for row in one.topics] == [("clicks", (0,))]


# Eligible leaders


def described(request: Request) -> Mapping[str, object]:
    """One partition at a time."""
    number = 0 if request.cursor is None else request.cursor.partition_index
    row = {
        "error_code": 0,
        "partition_index": number,
        "leader_id": 1,
        "leader_epoch": 4,
        "replica_nodes": (1, 2, 3),
        "isr_nodes": (1,),
        "eligible_leader_replicas": (2,) if number else None,
        "last_known_elr": (3,) if number else None,
        "offline_replicas": (),
    }
    topic = {
        "error_code": 0,
        "name": "clicks",
        "topic_id": None,
        "is_internal": False,
        "partitions": [row],
    }
    cursor = {"topic_name": "clicks", "partition_index": 1}
    return {"throttle_time": 0, "topics": [topic], "next_cursor": None if number else cursor}


def test_eligible_leaders_are_described_page_by_page() -> None:
    stage = scripted(DESCRIBE, described)
    found = administer(stage, lambda admin: admin.describe_eligible_leaders(["clicks"]))
    assert found == {
        CLICKS_0: EligibleLeaders(),
        CLICKS_1: EligibleLeaders(eligible=(2,), last_known=(3,)),
    }
