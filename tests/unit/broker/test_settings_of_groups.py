"""Settings of a group on three brokers: any of them takes a change, its coordinator obeys it."""

from typing import Any

from broker.cluster_stage import Cluster, Machine, play
from moldau.errors import ErrorCode
from moldau.model import GROUP_OFFSETS_TOPIC

FIND_COORDINATOR, INCREMENTAL_ALTER_CONFIGS, CONSUMER_GROUP_HEARTBEAT = 10, 44, 68
BROKER_TYPE, GROUP_TYPE, SET = 4, 32, 0
CONFIG = {"offsets_topic_num_partitions": "1", "offsets_topic_replication_factor": "3"}


async def beat(cluster: Cluster, machine: Machine, epoch: int, member_id: str = "a") -> Any:
    answer = await cluster.ask(
        machine,
        CONSUMER_GROUP_HEARTBEAT,
        0,
        group_id="readers",
        member_id=member_id,
        member_epoch=epoch,
        instance_id=None,
        rack_id=None,
        rebalance_timeout=60_000,
        subscribed_topic_names=("t",),
        server_assignor=None,
        topic_partitions=(),
    )
    assert answer.error_code is ErrorCode.none
    return answer


async def set_interval(
    cluster: Cluster,
    machine: Machine,
    interval_ms: int,
    name: str = "consumer.heartbeat.interval.ms",
) -> ErrorCode:
    """Of the group; of all brokers, if the name is that of their option."""
    row = {"name": name, "config_operation": SET, "value": str(interval_ms)}
    resource = {"resource_type": GROUP_TYPE, "resource_name": "readers", "configs": [row]}
    if name.startswith("group."):
        resource |= {"resource_type": BROKER_TYPE, "resource_name": ""}
    answer = await cluster.ask(
        machine,
        INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=[resource],
        validate_only=False,
    )
    code: ErrorCode = answer.responses[0].error_code
    return code


def test_a_change_through_another_broker_reaches_the_coordinator_and_the_next_one() -> None:
    async def story(cluster: Cluster) -> None:
        machines = await cluster.start(1, 2, 3)
        await cluster.create(machines[0], "t", [1, 2, 3])
        await cluster.ask(
            machines[0], FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("readers",)
        )
        await cluster.until(
            lambda: all(GROUP_OFFSETS_TOPIC in each.image.topics for each in machines)
        )
        leader = machines[0].state(GROUP_OFFSETS_TOPIC).leader
        first, *others = sorted(machines, key=lambda each: each.id != leader)
        joined = await beat(cluster, first, 0)
        assert joined.heartbeat_interval.total_seconds() == 5

        assert await set_interval(cluster, others[0], 12_000) is ErrorCode.none
        await cluster.until(lambda: bool(first.image.group_config("readers")))
        answer = await beat(cluster, first, joined.member_epoch)
        assert answer.heartbeat_interval.total_seconds() == 12
        assert await set_interval(cluster, others[1], 1) is ErrorCode.invalid_config

        await first.kill()
        assert first.session is not None
        first.session.expire()
        await cluster.until(lambda: others[0].state(GROUP_OFFSETS_TOPIC).leader != first.id)
        leader = others[0].state(GROUP_OFFSETS_TOPIC).leader
        second = next(each for each in others if each.id == leader)
        found = second.services.partitions.find(GROUP_OFFSETS_TOPIC, 0)
        assert found is not None
        await cluster.until(lambda: found.state.is_settled)
        await cluster.clock.advance(0.1)
        answer = await beat(cluster, second, joined.member_epoch)
        assert answer.heartbeat_interval.total_seconds() == 12

    play(story, **CONFIG)


def test_the_assignment_interval_changes_while_the_broker_runs() -> None:
    name = "group.consumer.assignment.interval.ms"

    async def story(cluster: Cluster) -> None:
        (machine,) = await cluster.start(1)
        await cluster.create(machine, "t", [1])
        await cluster.ask(machine, FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("readers",))
        await cluster.until(lambda: GROUP_OFFSETS_TOPIC in machine.image.topics)

        async def change(interval_ms: int) -> None:
            code = await set_interval(cluster, machine, interval_ms, name)
            assert code is ErrorCode.none
            services = machine.services
            await cluster.until(
                lambda: services.options.group_consumer_assignment_interval_ms == interval_ms
            )

        await change(15_000)
        assert (await beat(cluster, machine, 0)).member_epoch == 1
        assert (await beat(cluster, machine, 0, "b")).member_epoch == 1
        await change(0)
        assert (await beat(cluster, machine, 1, "b")).member_epoch == 2
        assert await set_interval(cluster, machine, 15_001, name) is ErrorCode.invalid_config

    play(story, **{**CONFIG, "offsets_topic_replication_factor": "1"})
