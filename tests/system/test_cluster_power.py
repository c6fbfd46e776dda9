"""Machines lose their power under load: what a broker had not flushed is gone.

With fewer machines than in-sync replicas, nothing that was acknowledged is missing or there twice.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker_process import moldau_command
from support.cluster_processes import ClusterProcesses, cluster_processes
from support.machines import Machines
from support.partition_moves import BothProducers, both_producers
from support.promises import BrokenPromises
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import Zookeeper, zookeeper_ensemble

__all__ = ("zookeeper_ensemble",)  # a fixture

SETTINGS = {"replica.lag.time.max.ms": "30000"}  # who is busy is not late


@pytest.fixture
def machines(folder: Path) -> Machines:
    return Machines(folder)


@pytest.fixture
def cluster(
    folder: Path, zookeeper_ensemble: Zookeeper, machines: Machines
) -> Iterator[ClusterProcesses]:
    connect = zookeeper_ensemble.fresh_connect()
    with cluster_processes(folder, connect, network=machines, settings=SETTINGS) as running:
        yield running


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 pytest shows it with a failure
    return random.Random(seed)


@pytest.mark.parametrize("count", [1, 2], ids=["one machine", "two machines"])
def test_machines_lose_their_power(
    cluster: ClusterProcesses, machines: Machines, chance: random.Random, count: int
) -> None:
    """The leader is among them, once with all that was not flushed gone, once with some of it."""
    topic = cluster.create_topic(3)
    with both_producers(cluster, topic, 3) as producers:
        for source in (None, chance):
            cluster.wait_until_whole()
            producers.wait_until_both_are_served()
            leader = cluster.view(topic).leader
            others = [number for number in cluster.brokers if number != leader]
            dark = (leader, *chance.sample(others, count - 1))
            machines.lose_power(cluster, *dark, chance=source)
            cluster.start(*dark)
            producers.wait_until_both_are_served()
        cluster.wait_until_whole()


def test_the_last_machine_in_sync_loses_its_power(
    cluster: ClusterProcesses, machines: Machines, chance: random.Random
) -> None:
    """Whoever was killed while too few were in sync has all that was acknowledged, and leads
    (KIP-966); the one before it lacks some, and does not."""
    topic = cluster.create_topic()
    with both_producers(cluster, topic) as producers:
        last, *others = cluster.view(topic).replicas
        first, second = chance.sample(others, 2)
        cluster.kill(first)
        eventually(lambda: first not in cluster.view(topic).isr, "it is taken out of the set")
        producers.wait_until_both_are_served()
        cluster.kill(second)
        eventually(lambda: list(cluster.view(topic).isr) == [last], "the last one")
        machines.lose_power(cluster, last, chance=chance)
        cluster.start(first, second)
        eventually(lambda: cluster.view(topic).leader == second, f"{second} leads")
        cluster.start(last)
        producers.wait_until_both_are_served()
        cluster.wait_until_whole()


def elect_unclean(cluster: ClusterProcesses) -> None:
    """As a person would, who does not want to wait for the last machine."""
    command = moldau_command("elect", "unclean", "--all", "--bootstrap", cluster.bootstrap)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("by_hand", [True, False], ids=["elected by hand", "recovered"])
def test_all_machines_lose_their_power_and_every_batch_was_flushed(
    folder: Path, zookeeper_ensemble: Zookeeper, chance: random.Random, by_hand: bool
) -> None:
    """With `log.flush.interval.messages=1` every replica in sync has on its disk what is promised
    (REP-7), so whichever is elected, nothing is lost; not even without the quick disk."""
    machines = Machines(folder, sync_seconds={2: 0.02, 3: 0.02})
    settings = {**SETTINGS, "log.flush.interval.messages": "1"}
    connect = zookeeper_ensemble.fresh_connect()
    with cluster_processes(folder, connect, network=machines, settings=settings) as cluster:
        topic = cluster.create_topic(3)
        with both_producers(cluster, topic, 3) as producers:
            machines.lose_power(cluster, chance=chance.choice((None, chance)))
            cluster.start(2, 3)
            if by_hand:
                elect_unclean(cluster)
            cluster.start(1)
            producers.wait_until_both_are_served()
            cluster.wait_until_whole()


def test_all_machines_lose_their_power_and_nothing_was_flushed(
    cluster: ClusterProcesses, machines: Machines, chance: random.Random
) -> None:
    """The best log leads when all are back. What is left is the beginning of what was there, the
    same everywhere, and goes on."""
    topic = cluster.create_topic()
    with BothProducers(cluster, topic) as producers:
        producers.wait_until_both_are_served()
        machines.lose_power(cluster, chance=chance)
    cluster.start()
    cluster.wait_until_whole()
    broken = producers.find_broken_promises()
    assert broken == BrokenPromises.none()._replace(lost=broken.lost)
    cluster.assert_replicas_agree(topic, 1)
    with BothProducers(cluster, topic) as again:
        again.wait_until_both_are_served()
