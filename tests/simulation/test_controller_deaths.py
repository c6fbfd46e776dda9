"""The controller dies after each of the writes of an operation, and its successor goes on with it.

A first run counts the writes; then there is a run for each of them, in which the controller's
process is killed as soon as that write is done, before it has heard that it is. Clients are at work
all the time: nothing that was promised is lost, whatever was begun comes to its end, and nothing is
left over on the disks (REP-3, CTL-3, DEL-1).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from moldau.cluster import znodes
from moldau.coordination.tree import Change
from moldau.model import TopicPartition
from moldau.simulation.operations import (
    Operator,
    add_partition,
    delete_and_make_again,
    elect_preferred,
    reassign,
)
from moldau.simulation.workload import TOPIC
from moldau.testing import SimulatedCluster

SEED = 5
AWAY_SECONDS = 4.0
PARTITION = TopicPartition(TOPIC, 0)

Work = Callable[[Operator], Awaitable[None]]


class Killer:
    """Kills the controller after so many writes to the store; 0 for never."""

    def __init__(self, cluster: SimulatedCluster, after: int) -> None:
        self.writes = 0
        self._after = after
        self._cluster = cluster
        self._is_armed = False
        cluster.world.service.observers.append(self._on_write)

    def arm(self) -> None:
        self._is_armed = True

    def disarm(self) -> None:
        self._is_armed = False

    def _on_write(self, changes: Sequence[Change]) -> None:
        if not self._is_armed:
            return
        self.writes += 1
        if self.writes == self._after:
            self._is_armed = False
            self._cluster.world.clock.call_later(0, self._kill)

    def _kill(self) -> None:
        node = self._cluster.world.service.find(znodes.CONTROLLER)
        if node is not None:
            machine = self._cluster.machines[znodes.decode_controller(node.data)]
            self._cluster.world.log.note(f"{machine.host} is controller and dies")
            machine.crash()


def replicas_without_leader(operator: Operator) -> list[int]:
    """All but the present leader's."""
    leader = operator.cluster.observer.states[PARTITION].leader
    return [broker_id for broker_id in operator.cluster.broker_ids if broker_id != leader]


async def move(operator: Operator) -> None:
    await reassign(operator, PARTITION, replicas_without_leader(operator))


async def move_and_cancel(operator: Operator) -> None:
    await reassign(operator, PARTITION, replicas_without_leader(operator))
    await reassign(operator, PARTITION, None)


async def redirect(operator: Operator) -> None:
    brokers = operator.cluster.broker_ids
    await reassign(operator, PARTITION, replicas_without_leader(operator))
    await reassign(operator, PARTITION, [brokers[-1], brokers[0]])


async def move_and_prefer(operator: Operator) -> None:
    replicas = operator.cluster.observer.replicas[PARTITION]
    await reassign(operator, PARTITION, list(reversed(replicas)))
    await elect_preferred(operator)


def play(work: Work, kill_after: int, seed: int = SEED) -> int:
    """How many writes there were."""

    async def story(cluster: SimulatedCluster) -> None:
        nonlocal writes
        await cluster.begin()
        await cluster.sleep(0.5)
        killer = Killer(cluster, kill_after)
        operator = Operator("mover", cluster, cluster.world.streams.stream("mover"))
        killer.arm()
        await work(operator)
        await cluster.sleep(AWAY_SECONDS)
        killer.disarm()
        writes = killer.writes
        await cluster.heal()
        await cluster.finish()

    writes = 0
    cluster = SimulatedCluster(seed=seed, brokers=4, partitions=1, operations=[])
    cluster.run(story).require_success()
    return writes


@pytest.mark.parametrize(
    "work",
    [move, move_and_cancel, redirect, move_and_prefer, add_partition, delete_and_make_again],
    ids=lambda work: work.__name__,
)
def test_a_controller_that_dies_after_any_write_leaves_nothing_undone(work: Work) -> None:
    writes = play(work, 0)
    assert writes
    for after in range(1, writes + 1):
        play(work, after)
