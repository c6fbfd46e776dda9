"""Topics that are created while a registered broker is away."""

from __future__ import annotations

from typing import Any

import pytest

from broker.cluster_stage import Cluster, Machine, play
from moldau.errors import ErrorCode
from moldau.model import GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC

FIND_COORDINATOR, CREATE_TOPICS, CREATE_PARTITIONS, UNREGISTER_BROKER = 10, 19, 37, 64
CONFIG = {
    "offsets_topic_num_partitions": "2",
    "offsets_topic_replication_factor": "3",
    "transaction_state_log_num_partitions": "2",
    "transaction_state_log_replication_factor": "3",
    "min_insync_replicas": "2",
}


async def create(cluster: Cluster, machine: Machine, topic: str) -> Any:
    row = {
        "name": topic,
        "num_partitions": 3,
        "replication_factor": 3,
        "assignments": [],
        "configs": [],
    }
    answer = await cluster.ask(
        machine, CREATE_TOPICS, 7, topics=[row], timeout=1000, validate_only=False
    )
    return answer.topics[0].error_code


def is_whole(machine: Machine, topic: str) -> bool:
    states = machine.image.topics[topic].partitions
    return all(sorted(state.isr) == [1, 2, 3] for state in states)


def require_led_by_the_living(machine: Machine, topic: str, alive: set[int]) -> None:
    for state in machine.image.topics[topic].partitions:
        assert sorted(state.replicas) == [1, 2, 3]
        assert set(state.isr) == alive
        assert state.leader in alive


@pytest.mark.parametrize("ends_well", [True, False])
def test_a_topic_is_created_while_a_broker_is_away_which_is_in_sync_when_it_returns(
    ends_well: bool,
) -> None:
    async def story(cluster: Cluster) -> None:
        first, second, third = await cluster.start(1, 2, 3)
        if ends_well:
            await third.stop()
        else:
            await third.kill()
            third.reboot("second")
        await cluster.until(lambda: 3 not in first.image.brokers)
        assert await create(cluster, first, "t") is ErrorCode.none
        require_led_by_the_living(first, "t", {1, 2})
        row = {"name": "t", "count": 5, "assignments": None}
        grown = await cluster.ask(
            first, CREATE_PARTITIONS, 3, topics=[row], timeout=1000, validate_only=False
        )
        assert grown.results[0].error_code is ErrorCode.none
        require_led_by_the_living(first, "t", {1, 2})
        await third.start()
        await cluster.until(lambda: is_whole(second, "t"))

    play(story, **CONFIG)


def test_internal_topics_are_created_while_a_broker_is_away() -> None:
    async def story(cluster: Cluster) -> None:
        first, second, third = await cluster.start(1, 2, 3)
        await third.stop()
        for kind, topic in enumerate((GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC)):
            await cluster.ask(second, FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=("g",))
            await cluster.until(lambda topic=topic: topic in first.image.topics)
            require_led_by_the_living(first, topic, {1, 2})
            found = await cluster.ask(
                second, FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=("g",)
            )
            assert found.coordinators[0].error_code is ErrorCode.none
        await third.start()
        for topic in (GROUP_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
            await cluster.until(lambda topic=topic: is_whole(first, topic))

    play(story, **CONFIG)


def test_a_new_controller_expects_the_same_brokers() -> None:
    async def story(cluster: Cluster) -> None:
        first, second, third = await cluster.start(1, 2, 3)
        await third.stop()
        await first.stop()
        await cluster.until(lambda: second.image.controller_id == 2)
        assert await create(cluster, second, "t") is ErrorCode.none
        require_led_by_the_living(second, "t", {2})
        await first.start()
        await third.start()
        await cluster.until(lambda: is_whole(second, "t"))

    play(story, **CONFIG)


def test_an_unregistered_broker_gets_no_replicas_until_it_registers_again() -> None:
    async def story(cluster: Cluster) -> None:
        first, _, third = await cluster.start(1, 2, 3)
        answer = await cluster.ask(first, UNREGISTER_BROKER, 0, broker_id=3)
        assert answer.error_code is ErrorCode.invalid_request  # it is alive
        await third.stop()
        answer = await cluster.ask(first, UNREGISTER_BROKER, 0, broker_id=3)
        assert answer.error_code is ErrorCode.none
        answer = await cluster.ask(first, UNREGISTER_BROKER, 0, broker_id=3)
        assert answer.error_code is ErrorCode.broker_id_not_registered
        assert await create(cluster, first, "t") is ErrorCode.invalid_replication_factor
        await third.start()
        await third.stop()
        assert await create(cluster, first, "t") is ErrorCode.none

    play(story, **CONFIG)


def test_an_assignment_may_name_a_broker_that_is_away_beside_one_that_is_alive() -> None:
    async def story(cluster: Cluster) -> None:
        first, _, third = await cluster.start(1, 2, 3)
        await third.stop()
        assert await cluster.create(first, "t", [3, 1]) is ErrorCode.none
        assert first.led("t")[:2] == (1, (1,))
        for replicas in ([3], [1, 4]):
            refused = await cluster.create(first, "u", replicas)
            assert refused is ErrorCode.invalid_replica_assignment
        await third.start()
        await cluster.until(lambda: sorted(first.state("t").isr) == [1, 3])

    play(story)
