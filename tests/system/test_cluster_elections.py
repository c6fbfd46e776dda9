"""Leaders are elected on purpose, under load: preferred ones, and unclean ones as a last resort."""

from __future__ import annotations

import random

import pytest

from support.cluster_processes import ClusterProcesses, cluster
from support.partition_moves import BothProducers, Mover, both_producers
from support.promises import BrokenPromises
from support.waiting import eventually
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures


@pytest.fixture
def chance() -> random.Random:
    return random.Random(1)


def test_preferred_leaders_are_elected_again_and_again(
    cluster: ClusterProcesses, chance: random.Random
) -> None:
    """Another order of the same replicas prefers another leader; moving that way takes no time."""
    topic = cluster.create_topic()
    with Mover(cluster, topic, chance) as mover, both_producers(cluster, topic) as producers:
        for _ in range(10):
            first, *others = chance.sample(sorted(cluster.brokers), 3)
            mover.move(first, *others)
            mover.wait_until_there()
            mover.elect_preferred()
            eventually(lambda: cluster.view(topic).leader == first, f"{first} leads")  # noqa: B023
            mover.pause()
        producers.wait_until_both_are_served()
        cluster.wait_until_whole()


def test_an_unclean_leader_loses_what_it_lacks_and_nothing_else(
    cluster: ClusterProcesses, chance: random.Random
) -> None:
    """Everybody goes back to it, byte for byte, and nothing comes twice or in another order."""
    topic = cluster.create_topic()
    with Mover(cluster, topic, chance) as mover:
        with BothProducers(cluster, topic) as producers:
            producers.wait_until_both_are_served()
            late, *others = chance.sample(sorted(cluster.brokers), 3)
            cluster.kill(late)
            eventually(lambda: late not in cluster.view(topic).isr, "it is taken out of the set")
            (copy,) = cluster.segments(late, topic)
            kept = copy.read_bytes()
            producers.wait_until_both_are_served()
            cluster.kill(*others)
        cluster.start(late)
        eventually(lambda: cluster.registered() == {late}, "the others' sessions end")
        assert cluster.view(topic).leader != late
        eventually(lambda: mover.elect_unclean() is None, "a leader")
        assert cluster.view(topic).leader == late
        cluster.start(*others)
        cluster.wait_until_whole()
        broken = producers.find_broken_promises()
        assert broken.lost > 0
        assert broken == BrokenPromises.none()._replace(lost=broken.lost)
        cluster.assert_replicas_agree(topic, 1)
        (copy,) = cluster.segments(others[0], topic)
        assert copy.read_bytes() == kept
        with BothProducers(cluster, topic) as again:
            again.wait_until_both_are_served()
