"""A power loss of all machines at once, and what may be gone after it. A shell over a simulation.

Nobody that was in sync is spared, so what was acknowledged and flushed by nobody is lost. But what
the disks kept is not: of all logs of those who were in sync or eligible, the best one, by the epoch
of its last record and its end, leads when the cluster is back, without anybody's help (ELR-4). The
history forgets what was promised behind the end of that log, and nothing else.

A machine that is back before the sessions of the others have ended sees them leave one by one, as
if each had failed alone. Whoever leaves while enough stay is not waited for, as KIP-966 has it;
then only what every disk kept is promised.

Clients end in the middle of what they do, as if they were on the same machines, and others come
when the power is back: an idempotent producer whose last records are gone cannot go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final, Protocol

from moldau.model import TopicPartition
from moldau.testing.cluster_history import ClusterHistory, StoredBatch
from moldau.testing.cluster_observer import ClusterObserver
from moldau.testing.replica_logs import read_log
from moldau.testing.simulated_machine import DATA_FOLDER, SimulatedMachine, World
from moldau.testing.simulated_workload import Workload

SHARE: Final = 0.1
"""Of the seeds."""
_GOES_AGAIN_SHARE: Final = 0.5
_BACK_EARLY_SHARE: Final = 0.3
_LONGEST_SECONDS: Final = 3.0
"""From the first machine that is back to the last one, and from there to the end of it."""


class PoweredCluster(Protocol):
    """What it is about (`simulated_cluster.SimulatedCluster`)."""

    world: World
    machines: dict[int, SimulatedMachine]
    observer: ClusterObserver
    history: ClusterHistory
    workload: Workload

    async def sleep(self, seconds: float) -> None: ...
    async def heal(self) -> None: ...


async def lose_all_power(cluster: PoweredCluster, random: Random) -> None:
    """All machines are off at once, and come back one after the other; until all is whole.

    Now and then the first one is away again when the last one comes, and has to be waited for.
    """
    is_back_early = random.random() < _BACK_EARLY_SHARE
    switch_off(cluster, one_by_one=is_back_early)
    first, *others = random.sample(list(cluster.machines.values()), len(cluster.machines))
    await cluster.sleep(random.uniform(0.1, 1.0))
    goes_again = not is_back_early and random.random() < _GOES_AGAIN_SHARE
    if not is_back_early:
        await _wait_for(cluster, lambda: not cluster.observer.registered)
    first.start()
    if goes_again:
        await _wait_for(cluster, lambda: first.broker_id in cluster.observer.registered)
        await cluster.sleep(random.uniform(0.0, 0.2))
        first.crash()
    for machine in others:
        await cluster.sleep(random.uniform(0.0, _LONGEST_SECONDS / len(others)))
        machine.start()
    expected = {machine.broker_id for machine in others}
    await _wait_for(cluster, lambda: expected <= cluster.observer.registered)
    await cluster.sleep(random.uniform(0.0, _LONGEST_SECONDS))
    await cluster.heal()
    cluster.workload.hire()


async def _wait_for(cluster: PoweredCluster, condition: Callable[[], bool]) -> None:
    """But not for ever: brokers may be cut off from the coordination service."""
    for _ in range(50):
        if condition():
            return
        await cluster.sleep(0.1)


def switch_off(cluster: PoweredCluster, *, one_by_one: bool = False) -> None:
    """All at once; `one_by_one` is how those who are back early will see the others leave."""
    cluster.world.log.note("fault: power loss of all")
    cluster.workload.dismiss()
    cluster.history.power_losses += 1
    observer = cluster.observer
    for broker_id, machine in cluster.machines.items():
        if not machine.is_closed:
            observer.lose_data(broker_id)
        cluster.world.service.drop(machine.host)  # nothing arrives later that was on its way
        machine.lose_power()
    for partition in sorted(observer.states):
        ends = log_ends(cluster.machines, observer.last_known(partition), partition)
        _, end_offset = (min if one_by_one else max)(ends, default=(-1, 0))
        cluster.world.log.note(f"{partition}: the disks kept it up to {end_offset}")
        cluster.history.forgive_after(partition, end_offset)


def log_ends(
    machines: Mapping[int, SimulatedMachine], replicas: tuple[int, ...], partition: TopicPartition
) -> list[tuple[int, int]]:
    """The last epoch and the end of the log of each."""
    return [_log_end(read_log(machines[each].files, DATA_FOLDER, partition)) for each in replicas]


def _log_end(batches: list[StoredBatch]) -> tuple[int, int]:
    """The last epoch and the end, as far as there is no gap: the rest is cut off at the start."""
    epoch, end_offset = -1, 0
    for number, batch in enumerate(batches):
        if number and batch.base_offset != end_offset:
            break
        epoch, end_offset = batch.leader_epoch, batch.end_offset
    return epoch, end_offset
