"""Brokers of one machine whose supervisor serves their store, and is paused and killed.

One in twenty of the seeds of `test_seeds` is so; these are some that are so for sure.
"""

from __future__ import annotations

from moldau.cluster import znodes
from moldau.simulation.cluster import SimulatedCluster
from moldau.simulation.served_store import ServedStore


def test_nothing_is_lost_when_the_supervisor_is_paused_and_killed() -> None:
    for seed in range(4, 9):
        outcome = SimulatedCluster(seed=seed, is_served=True).run()
        outcome.require_success()
        assert any("supervisor" in planned for planned in outcome.schedule)


def supervisor_of(cluster: SimulatedCluster) -> ServedStore:
    supervisor = cluster.world.supervisor
    assert supervisor is not None
    return supervisor


def test_brokers_end_with_their_supervisor_and_the_next_one_starts_them_again() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.begin()
        await cluster.sleep(1.0)
        supervisor = supervisor_of(cluster)
        topic = supervisor.find(znodes.topic_path("t"))
        sessions = [supervisor.records_of(each.host)[-1] for each in cluster.machines.values()]
        supervisor.kill()
        await cluster.sleep(3.0)
        assert not any(machine.is_running for machine in cluster.machines.values())
        assert cluster.observer.registered == set(cluster.broker_ids)  # nobody looks any more
        supervisor.start()
        await cluster.heal()
        assert supervisor.find(znodes.topic_path("t")) == topic
        later = [supervisor.records_of(each.host)[-1] for each in cluster.machines.values()]
        assert not {each.session_id for each in later} & {each.session_id for each in sessions}
        await cluster.finish()

    SimulatedCluster(seed=1, is_served=True, operations=[]).run(story).require_success()


def test_the_next_supervisor_waits_for_a_broker_of_the_former_one() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.begin()
        await cluster.sleep(1.0)
        process = cluster.machines[1].process
        assert process is not None
        process.pause()
        supervisor = supervisor_of(cluster)
        supervisor.kill()
        supervisor.start()
        await cluster.sleep(5.0)
        assert not supervisor.is_serving
        process.resume()
        await cluster.heal()
        assert supervisor.is_serving
        await cluster.finish()

    SimulatedCluster(seed=2, is_served=True, operations=[]).run(story).require_success()


def test_the_end_of_a_broker_is_known_at_once() -> None:
    async def story(cluster: SimulatedCluster) -> None:
        await cluster.begin()
        await cluster.sleep(1.0)
        cluster.machines[1].crash()
        await cluster.sleep(0.1)  # of virtual time; a session lasts fifteen times as long
        assert cluster.observer.registered == {*cluster.broker_ids} - {1}
        await cluster.heal()
        await cluster.finish()

    SimulatedCluster(seed=3, is_served=True, operations=[]).run(story).require_success()
