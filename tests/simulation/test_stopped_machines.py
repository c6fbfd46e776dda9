"""A machine whose broker was stopped in good order has nothing to lose by a power loss."""

from __future__ import annotations

from moldau.simulation.cluster import SimulatedCluster
from moldau.simulation.fault_plan import FaultKind, PlannedFault


async def stop_two_and_switch_one_of_them_off(cluster: SimulatedCluster) -> None:
    """The second that goes leaves too few in sync, and so stays eligible."""
    await cluster.begin()
    await cluster.sleep(1)
    for kind, broker, seconds in (
        (FaultKind.STOP, 1, 4.0),
        (FaultKind.STOP, 2, 4.0),
        (FaultKind.POWER_LOSS, 2, 0.5),
    ):
        cluster.faults.strike(
            PlannedFault(
                at_seconds=cluster.world.loop.time(),
                kind=kind,
                broker=broker,
                other=3,
                seconds=seconds,
                amount=0.0,
            )
        )
        await cluster.sleep(1)
    await cluster.sleep(4)
    await cluster.heal()
    await cluster.finish()


def test_it_is_what_it_was_when_it_is_back() -> None:
    for seed in range(1, 4):
        outcome = SimulatedCluster(seed=seed, brokers=3).run(stop_two_and_switch_one_of_them_off)
        outcome.require_success()
