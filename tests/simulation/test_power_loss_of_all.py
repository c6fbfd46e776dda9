"""Power losses that nobody in sync survives, and what is left of the promises then (ELR)."""

from __future__ import annotations

from random import Random

import pytest

from moldau.simulation import faults
from moldau.simulation.cluster import SimulatedCluster, Story
from moldau.simulation.machine import DATA_FOLDER, read_log
from moldau.simulation.observer import ObservedState

PATIENCE_SECONDS = 20.0


async def until_state(
    cluster: SimulatedCluster, partition: int, leader: int, in_sync: tuple[int, ...]
) -> ObservedState:
    key = cluster.partitions[partition]
    end = cluster.world.loop.time() + PATIENCE_SECONDS
    while cluster.observer.states[key][0::2][:2] != (leader, in_sync):
        assert cluster.world.loop.time() < end, cluster.observer.states[key]
        await cluster.sleep(0.05)
    return cluster.observer.states[key]


def run(seed: int, story: Story, **options: str) -> list[str]:
    cluster = SimulatedCluster(seed=seed, brokers=3, operations=(), options=options)
    outcome = cluster.run(story)
    outcome.require_success()
    assert outcome.acknowledged
    return list(outcome.events)


@pytest.mark.parametrize("seed", [2, 3, 5, 8])
def test_after_a_power_loss_of_all_the_cluster_is_back_with_what_the_disks_kept(seed: int) -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.begin()
        random = Random(cluster.seed)
        await cluster.sleep(random.uniform(1.0, 4.0))
        await faults.lose_all_power(cluster, random)
        await cluster.sleep(1.0)
        await cluster.finish()

    events = run(seed, story)
    assert any("unclean election by the balanced strategy" in line for line in events)


def test_without_a_strategy_nobody_leads_and_nothing_is_truncated() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.begin()
        await cluster.sleep(3.0)
        faults.switch_off(cluster)
        for machine in cluster.machines.values():
            machine.start()
        while cluster.observer.registered != set(cluster.broker_ids):
            await cluster.sleep(0.1)
        logs = logs_of(cluster)
        assert any(logs.values())
        await cluster.sleep(10.0)
        for partition in cluster.partitions:
            state = cluster.observer.states[partition]
            assert (state.leader, state.in_sync, state.eligible) == (-1, (), ())
            assert set(state.last_known) == set(cluster.broker_ids)
        assert logs_of(cluster) == logs

    run(4, story, **{"unclean.recovery.strategy": "none"})


def logs_of(cluster: SimulatedCluster) -> dict[tuple[int, str], int]:
    """Where each log ends, on the disk."""
    return {
        (broker_id, str(partition)): batches[-1].end_offset if batches else 0
        for broker_id, machine in cluster.machines.items()
        for partition in cluster.partitions
        for batches in [read_log(machine.files, DATA_FOLDER, partition)]
    }


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_is_killed_and_the_other_loses_power_and_nothing_is_lost(seed: int) -> None:
    """The killed one is eligible: nothing was committed without it."""

    async def story(cluster: SimulatedCluster) -> None:
        await cluster.begin()
        await cluster.sleep(2.0)
        state = cluster.observer.states[cluster.partitions[0]]
        killed, other = state.in_sync
        cluster.machines[killed].crash()
        state = await until_state(cluster, 0, other, (other,))
        assert state.eligible == (killed,)
        await cluster.sleep(1.0)
        cluster.observer.lose_data(other)
        cluster.machines[other].lose_power()
        await until_state(cluster, 0, -1, (other,))
        cluster.machines[killed].start()
        state = await until_state(cluster, 0, killed, (killed,))
        cluster.machines[other].start()
        await cluster.heal()
        await cluster.finish()

    events = run(seed, story, **{"default.replication.factor": "2"})
    assert not any("unclean election" in line for line in events if "t-0" in line)
