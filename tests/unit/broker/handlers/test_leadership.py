"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, as clients ask."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster_stage import Cluster, Machine, play
from moldau.errors import ErrorCode

ELECT, ALTER, LIST = 43, 45, 46


async def elect(cluster: Cluster, machine: Machine, version: int, *wanted: int, **more: int) -> Any:
    row = {"topic": "clicks", "partitions": wanted}
    values: dict[str, object] = {"topic_partitions": [row] if wanted else None, "timeout": 1000}
    if version > 0:
        values["election_type"] = more.get("election_type", 0)
    return await cluster.ask(machine, ELECT, version, **values)


def election_codes(answer: Any) -> dict[int, ErrorCode]:
    return {
        one.partition_id: one.error_code
        for row in answer.replica_election_results
        for one in row.partition_result
    }


async def move(
    cluster: Cluster, machine: Machine, replicas: tuple[int, ...] | None, version: int = 1
) -> Any:
    row = {"name": "clicks", "partitions": [{"partition_index": 0, "replicas": replicas}]}
    return await cluster.ask(machine, ALTER, version, timeout=1000, topics=[row])


def move_code(answer: Any) -> ErrorCode:
    code: ErrorCode = answer.responses[0].partitions[0].error_code
    return code


async def led_by_the_second(cluster: Cluster) -> Machine:
    """Partition 0 prefers broker 2, which was away; partition 1 is led as it shall be."""
    one, two = await cluster.start(1, 2)
    await cluster.create(one, "clicks", [2, 1], [1, 2])
    await two.stop()
    await two.start()
    await cluster.until(lambda: set(one.state("clicks").isr) == {1, 2})
    assert one.led("clicks")[0] == 1
    return one


@pytest.mark.parametrize("version", [0, 1, 2])
def test_preferred_leaders_are_elected_in_every_version(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        one = await led_by_the_second(cluster)
        answer = await elect(cluster, one, version, 0, 1, 9)
        assert election_codes(answer) == {
            0: ErrorCode.none,
            1: ErrorCode.election_not_needed,
            9: ErrorCode.unknown_topic_or_partition,
        }
        assert one.led("clicks")[0] == 2

    play(story)


def test_an_election_everywhere_tells_of_those_that_were_needed() -> None:
    async def story(cluster: Cluster) -> None:
        one = await led_by_the_second(cluster)
        assert election_codes(await elect(cluster, one, 2)) == {0: ErrorCode.none}
        assert election_codes(await elect(cluster, one, 2)) == {}

    play(story)


def test_an_election_of_an_unknown_kind_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        answer = await elect(cluster, one, 2, 0, election_type=7)
        assert answer.error_code is ErrorCode.invalid_request

    play(story)


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_is_moved_in_every_version(version: int) -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1])
        answer = await move(cluster, one, (2,), version)
        assert (answer.error_code, move_code(answer)) == (ErrorCode.none, ErrorCode.none)
        await cluster.until(lambda: two.state("clicks").replicas == (2,))
        assert one.led("clicks")[:2] == (2, (2,))

    play(story)


def test_moves_are_listed_while_they_last_and_can_be_cancelled() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1])
        cluster.network.cut("b1", "b2")
        cluster.network.cut("b2", "b1")
        assert move_code(await move(cluster, one, (2,))) is ErrorCode.none
        listed = await cluster.ask(one, LIST, 0, timeout=1000, topics=None)
        (row,) = listed.topics[0].partitions
        assert (row.replicas, row.adding_replicas, row.removing_replicas) == ((2, 1), (2,), (1,))
        other = {"name": "other", "partition_indexes": (0,)}
        assert (await cluster.ask(one, LIST, 0, timeout=1000, topics=[other])).topics == ()
        assert move_code(await move(cluster, one, None)) is ErrorCode.none
        assert (await cluster.ask(one, LIST, 0, timeout=1000, topics=None)).topics == ()
        assert move_code(await move(cluster, one, None)) is (ErrorCode.no_reassignment_in_progress)
        assert two.state("clicks").replicas == (1,)

    play(story)


def test_the_number_of_replicas_stays_when_the_client_says_so() -> None:
    async def story(cluster: Cluster) -> None:
        one, _ = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1])
        row = {"name": "clicks", "partitions": [{"partition_index": 0, "replicas": (1, 2)}]}
        answer = await cluster.ask(
            one, ALTER, 1, timeout=1000, allow_replication_factor_change=False, topics=[row]
        )
        assert answer.allow_replication_factor_change is False
        assert move_code(answer) is ErrorCode.invalid_replication_factor

    play(story)


def test_brokers_that_are_not_the_controller_say_so() -> None:
    async def story(cluster: Cluster) -> None:
        one, two = await cluster.start(1, 2)
        await cluster.create(one, "clicks", [1])
        assert (await elect(cluster, two, 2, 0)).error_code is ErrorCode.not_controller
        codes = election_codes(await elect(cluster, two, 0, 0))
        assert codes == {0: ErrorCode.not_controller}
        assert (await move(cluster, two, (2,))).error_code is ErrorCode.not_controller
        listed = await cluster.ask(two, LIST, 0, timeout=1000, topics=None)
        assert listed.error_code is ErrorCode.not_controller
        assert await cluster.create(two, "other", [1]) is ErrorCode.not_controller

    play(story)
