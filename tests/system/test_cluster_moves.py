"""Partitions move from broker to broker under load, and brokers are far from each other.

Both producers, librdkafka's and ours, are idempotent and want acks=all: in the end nothing that was
acknowledged is missing or there twice, and all replicas are the same, byte for byte. Moves begin,
turn and are cancelled while fetches of the replicas are still on their way.
`test_cluster_soak` does the same for as long as one likes, with faults.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.broker_process import moldau_command
from support.cluster_processes import ClusterProcesses, cluster_processes
from support.long_links import LongLinks, long_links
from support.partition_moves import Mover, both_producers
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import Zookeeper, zookeeper_ensemble

__all__ = ("zookeeper_ensemble",)  # a fixture

Show = Callable[[str], None]

ONE_WAY_SECONDS = 0.06
MOVING_SECONDS = 8.0


@pytest.fixture
def links() -> Iterator[LongLinks]:
    with long_links(0) as links:
        yield links


@pytest.fixture
def cluster(
    folder: Path, zookeeper_ensemble: Zookeeper, links: LongLinks
) -> Iterator[ClusterProcesses]:
    """Three brokers far from each other."""
    connect = zookeeper_ensemble.fresh_connect()
    with cluster_processes(folder, connect, network=links) as running:
        yield running


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 pytest shows it with a failure
    return random.Random(seed)


@pytest.mark.parametrize("way", [Mover.take_away_and_bring_back, Mover.wander])
def test_a_partition_moves_all_the_time(
    cluster: ClusterProcesses,
    links: LongLinks,
    chance: random.Random,
    show_figure: Show,
    way: Callable[[Mover], None],
) -> None:
    topic = cluster.create_topic()
    links.one_way_seconds = ONE_WAY_SECONDS
    with (
        Mover(cluster, topic, chance) as mover,
        both_producers(cluster, topic) as producers,
    ):
        end = time.monotonic() + MOVING_SECONDS
        while time.monotonic() < end:
            way(mover)
        mover.go_home()
    show_figure(f"{producers.count} records acknowledged during {mover.count} steps of moves")


@pytest.mark.parametrize("who", ["the leader", "the controller", "the one that comes"])
def test_a_broker_is_killed_while_a_partition_moves(
    cluster: ClusterProcesses, links: LongLinks, chance: random.Random, who: str
) -> None:
    topic = cluster.create_topic()
    links.one_way_seconds = ONE_WAY_SECONDS
    with Mover(cluster, topic, chance) as mover, both_producers(cluster, topic):
        leader = cluster.view(topic).leader
        comes, stays = (number for number in cluster.brokers if number != leader)
        mover.move(leader, stays)
        mover.wait_until_there()
        victims = {"the leader": leader, "the controller": cluster.controller()}
        mover.move(comes, stays)
        mover.pause()
        victim = victims.get(who, comes)
        cluster.kill(victim)
        cluster.start(victim)
        mover.wait_until_there()
        mover.go_home()


# How people ask for it


def moldau(cluster: ClusterProcesses, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = moldau_command(*arguments, "--bootstrap", cluster.bootstrap)
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )


def test_the_command_line_moves_and_cancels_and_elects(
    cluster: ClusterProcesses, links: LongLinks, folder: Path
) -> None:
    topic = cluster.create_topic()
    links.one_way_seconds = ONE_WAY_SECONDS
    start = cluster.view(topic)
    plan, back = folder / "plan.json", folder / "back.json"
    others = [number for number in cluster.brokers if number != start.leader]
    move = {"topic": topic, "partition": 0, "replicas": others}
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    with both_producers(cluster, topic):
        back.write_text(moldau(cluster, "reassign", "plan", topic, "--current").stdout)

        throttle = ("--throttle", "10000000")
        assert (
            moldau(cluster, "reassign", "execute", "--plan", str(plan), *throttle).returncode == 0
        )
        verify = ("reassign", "verify", "--plan", str(plan))
        eventually(lambda: moldau(cluster, *verify).returncode == 0, "all is done")
        assert list(cluster.view(topic).replicas) == others

        assert moldau(cluster, "reassign", "execute", "--plan", str(back)).returncode == 0
        moldau(cluster, "reassign", "cancel", "--plan", str(back))  # or it is there already
        moldau(cluster, "reassign", "execute", "--plan", str(back))
        verify = ("reassign", "verify", "--plan", str(back))
        eventually(lambda: moldau(cluster, *verify).returncode == 0, "all is done")
        assert list(cluster.view(topic).replicas) == list(start.replicas)

        assert moldau(cluster, "elect", "preferred", f"{topic}-0").returncode == 0
        assert cluster.view(topic).leader == start.replicas[0]


def test_the_node_of_kafkas_older_tool_moves_partitions(
    cluster: ClusterProcesses, links: LongLinks, chance: random.Random
) -> None:
    topic = cluster.create_topic()
    links.one_way_seconds = ONE_WAY_SECONDS
    numbers = sorted(cluster.brokers)
    with both_producers(cluster, topic) as producers:
        for count in (2, 1, 3):
            wanted = chance.sample(numbers, count)
            move = {"topic": topic, "partition": 0, "replicas": wanted}
            cluster.ask("/admin/reassign_partitions", {"version": 1, "partitions": [move]})
            assert list(cluster.view(topic).replicas) == wanted
            if count > 1:  # fewer than min.insync.replicas are refused
                producers.wait_until_both_are_served()
        cluster.wait_until_whole()
