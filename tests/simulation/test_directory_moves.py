"""Logs move between log directories while leaders change, processes are killed and power is lost
(MOV-1 to MOV-4)."""

from __future__ import annotations

from random import Random

from moldau.testing.cluster_directories import OPTIONS, move_to_other_directory
from moldau.testing.fault_plan import FaultKind, PlannedFault
from moldau.testing.simulated_cluster import SimulatedCluster

KINDS = (
    FaultKind.CRASH,
    FaultKind.POWER_LOSS,
    FaultKind.POWER_LOSS,
    FaultKind.EXPIRE,
    FaultKind.ISOLATE,
    FaultKind.STOP,
)
ROUNDS = 4


async def logs_move_and_machines_fail(cluster: SimulatedCluster) -> None:
    await cluster.begin()
    random = Random(cluster.seed)
    for _ in range(ROUNDS):
        await cluster.sleep(random.uniform(0.3, 0.8))
        replicas = cluster.observer.replicas
        held = [(broker, one) for one in cluster.partitions for broker in replicas[one]]
        for broker, partition in random.sample(held, 3):
            move_to_other_directory(cluster.machines[broker], partition)
        await cluster.sleep(random.uniform(0.0, 0.6))
        broker, other = random.sample(cluster.broker_ids, 2)
        cluster.faults.strike(
            PlannedFault(
                at_seconds=cluster.world.loop.time(),
                kind=random.choice(KINDS),
                broker=broker,
                other=other,
                seconds=random.uniform(0.2, 2.0),
                amount=random.random(),
            )
        )
        await cluster.sleep(random.uniform(0.5, 2.0))
    await cluster.heal()
    await cluster.finish()


def test_nothing_is_lost_while_logs_move_between_directories() -> None:
    for seed in range(1, 6):
        cluster = SimulatedCluster(seed=seed, brokers=3, options=OPTIONS)
        outcome = cluster.run(logs_move_and_machines_fail)
        outcome.require_success()
