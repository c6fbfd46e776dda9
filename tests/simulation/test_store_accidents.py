"""Topics deleted and made again, a store that people damage, and one that is set back.

Brokers crash, pause, stop and are cut off meanwhile. What was acknowledged is kept (DEL-1, DEL-2).
A transaction whose commit was confirmed becomes readable as a whole (TXN-4), and a share group
delivers what is left, and nothing that is done (SHR-8, SHR-9).
"""

from __future__ import annotations

import pytest

from moldau.simulation.campaign import is_store_seed, run_seed
from moldau.simulation.fault_plan import HARMLESS, FaultKind
from moldau.simulation.faults import ACCIDENTS, REMOVALS
from moldau.simulation.operations import TOPICS
from moldau.testing import SimulatedCluster

RUNNING = [
    kind
    for kind in HARMLESS
    if kind
    not in (FaultKind.CRASH, FaultKind.CRASH_CONTROLLER, FaultKind.CRASH_ALL, FaultKind.STOP)
]
"""No process ends by them."""


@pytest.mark.parametrize("first", range(1, 21, 5))
def test_a_topic_that_is_made_again_is_another_one(first: int) -> None:
    for seed in range(first, first + 5):
        SimulatedCluster(seed=seed, operations=[TOPICS]).run().require_success()


@pytest.mark.parametrize("first", range(1, 31, 5))
def test_what_people_do_to_the_store_costs_no_record(first: int) -> None:
    for seed in range(first, first + 5):
        cluster = SimulatedCluster(seed=seed, kinds=HARMLESS, operations=[ACCIDENTS])
        cluster.run().require_success()


@pytest.mark.parametrize("first", range(1, 21, 5))
def test_a_store_that_is_emptied_under_living_sessions_costs_no_record(first: int) -> None:
    for seed in range(first, first + 5):
        cluster = SimulatedCluster(seed=seed, kinds=RUNNING, operations=[REMOVALS])
        cluster.run().require_success()


async def set_back(cluster: SimulatedCluster) -> None:
    """A backup is taken; leaders change, in-sync sets shrink and grow; the backup is restored.

    All brokers run then, and know what the backup does not. Clients never stop.
    """
    random = cluster.world.streams.stream("set back")
    await cluster.begin()
    await cluster.sleep(random.uniform(0.5, 2.0))
    backup = cluster.world.service.take_backup()
    for _ in range(random.randint(1, 3)):
        machine = cluster.machines[random.choice(cluster.broker_ids)]
        machine.crash()
        await cluster.sleep(random.uniform(0.5, 4.0))
        machine.start()
        await cluster.sleep(random.uniform(0.0, 3.0))
    await cluster.heal()
    await cluster.sleep(random.uniform(0.0, 1.0))
    with cluster.history.muted():  # that epochs go back is what is done to the cluster here
        cluster.world.service.restore(backup)
    await cluster.heal()
    await cluster.sleep(2.0)
    await cluster.finish()


@pytest.mark.parametrize("first", range(1, 21, 5))
def test_a_store_that_was_set_back_costs_no_record(first: int) -> None:
    for seed in range(first, first + 5):
        SimulatedCluster(seed=seed, operations=[]).run(set_back).require_success()


@pytest.mark.parametrize("seed", [1, 2])
def test_a_store_that_was_set_back_costs_no_transaction_and_no_delivery(seed: int) -> None:
    cluster = SimulatedCluster(seed=seed, operations=[], transactions=True, shares=True)
    outcome = cluster.run(set_back)
    outcome.require_success()
    assert outcome.transactions > 0
    assert outcome.shared > 0


def test_some_seeds_of_a_campaign_have_absent_topics_transactions_and_share_groups() -> None:
    seed = next(filter(is_store_seed, range(1, 100)))
    outcome = run_seed(seed)
    outcome.require_success()
    assert any("absences" in planned for planned in outcome.schedule)
    assert outcome.transactions > 0
    assert outcome.shared > 0
