"""Logs move between log directories while leaders change, processes are killed and power is lost
(MOV-1 to MOV-4)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from types import MappingProxyType
from typing import Final

from moldau.errors import KafkaError
from moldau.model import TopicPartition
from moldau.simulation.cluster import SimulatedCluster
from moldau.simulation.fault_plan import FaultKind, PlannedFault
from moldau.simulation.machine import DATA_FOLDER, SECOND_FOLDER, SimulatedMachine

KINDS = (
    FaultKind.CRASH,
    FaultKind.POWER_LOSS,
    FaultKind.POWER_LOSS,
    FaultKind.EXPIRE,
    FaultKind.ISOLATE,
    FaultKind.STOP,
)
ROUNDS = 4
OPTIONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.dirs": f"{DATA_FOLDER},{SECOND_FOLDER}",
        "replica.alter.log.dirs.io.max.bytes.per.second": "4000",  # so that it takes a while
    }
)


def move_to_other_directory(machine: SimulatedMachine, partition: TopicPartition) -> bool:
    """Ask a broker for it, as AlterReplicaLogDirs does; False if it cannot be asked."""
    broker, process = machine.broker, machine.process
    held = None if broker is None else broker.services.partitions.find(*partition)
    if broker is None or process is None or held is None:
        return False
    log, moves = held.log, broker.services.log_store.moves
    target = DATA_FOLDER if log.directory.folder == SECOND_FOLDER else SECOND_FOLDER

    async def move() -> None:
        with suppress(KafkaError):
            await moves.start_move(log, target)

    process.kept.append(process.spawn(move()))
    return True


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
