"""A cluster of three processes loses members in every way there is, under load.

After each fault every acknowledged record is there exactly once at its offset, commits of a group
did not go back, and all replicas are in sync again, byte for byte the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cluster_processes import ClusterProcesses, cluster, cluster_processes
from support.cluster_traffic import traffic_on
from support.waiting import eventually
from support.zookeeper import running_ensemble, zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

Show = Callable[[str], None]

_MOMENT_SECONDS = 1.0  # in which nobody's session ends


# kill -9


def test_a_leader_is_killed(cluster: ClusterProcesses, show_figure: Show) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        leader = cluster.view(topic).leader
        cluster.kill(leader)
        cluster.wait_until_led_by_another(topic, leader)
        traffic.wait_until_it_flows()
        cluster.start(leader)


def test_a_leader_is_killed_and_back_before_anybody_notices(
    cluster: ClusterProcesses, show_figure: Show
) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        for _ in range(2):
            leader = cluster.view(topic).leader
            cluster.kill(leader)
            cluster.start(leader)
            traffic.wait_until_it_flows()


def test_a_leader_is_killed_with_records_that_nobody_else_has(
    cluster: ClusterProcesses, show_figure: Show
) -> None:
    """They were not acknowledged, and go when it is back; their producer has sent them again."""
    with traffic_on(cluster, show_figure, 1) as (topic, traffic):
        leader, *followers = cluster.view(topic).replicas
        for follower in followers:
            cluster.pause(follower)
        time.sleep(_MOMENT_SECONDS)  # it takes what is on its way to it
        cluster.kill(leader)
        for follower in followers:
            cluster.resume(follower)
        cluster.wait_until_led_by_another(topic, leader)
        traffic.wait_until_it_flows()
        cluster.start(leader)


def test_a_follower_is_killed(cluster: ClusterProcesses, show_figure: Show) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        follower = cluster.view(topic).replicas[-1]
        cluster.kill(follower)
        eventually(lambda: follower not in cluster.view(topic).isr, "it is taken out of the set")
        traffic.wait_until_it_flows()
        cluster.start(follower)


def test_the_controller_is_killed(cluster: ClusterProcesses, show_figure: Show) -> None:
    with traffic_on(cluster, show_figure) as (_, traffic):
        controller = cluster.controller()
        cluster.kill(controller)
        eventually(lambda: cluster.controller() != controller, "another controller")
        traffic.wait_until_it_flows()
        cluster.start(controller)


def test_two_of_three_are_killed(cluster: ClusterProcesses, show_figure: Show) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        survivor = cluster.view(topic).replicas[-1]
        others = [number for number in cluster.brokers if number != survivor]
        cluster.kill(*others)
        eventually(lambda: cluster.registered() == {survivor}, "their sessions end")
        eventually(lambda: cluster.view(topic).leader == survivor, "the last one leads")
        cluster.start(*others)
        traffic.wait_until_it_flows()


def test_all_are_killed_at_once(cluster: ClusterProcesses, show_figure: Show) -> None:
    with traffic_on(cluster, show_figure) as (_, traffic):
        cluster.kill()
        cluster.start()
        traffic.wait_until_it_flows()


# Processes that stand still


@pytest.mark.parametrize("who", ["leader", "controller"])
def test_a_broker_is_paused_beyond_its_session(
    cluster: ClusterProcesses, show_figure: Show, who: str
) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        paused = cluster.view(topic).leader if who == "leader" else cluster.controller()
        cluster.pause(paused)
        eventually(lambda: paused not in cluster.registered(), "its session ends")
        eventually(lambda: cluster.controller() != paused, "another controller")
        cluster.wait_until_led_by_another(topic, paused)
        traffic.wait_until_it_flows()
        cluster.resume(paused)
        traffic.wait_until_it_flows()


# ZooKeeper


def test_the_leader_of_the_zookeeper_ensemble_is_killed(folder: Path, show_figure: Show) -> None:
    with (
        running_ensemble(3) as servers,
        cluster_processes(folder, servers.fresh_connect()) as cluster,
        traffic_on(cluster, show_figure) as (topic, traffic),
    ):
        killed = servers.leader()
        killed.kill()
        servers.leader()  # waits for the next
        traffic.wait_until_it_flows()
        leader = cluster.view(topic).leader
        cluster.kill(leader)  # the cluster is still able to elect
        cluster.wait_until_led_by_another(topic, leader)
        cluster.start(leader)
        servers.start_node(killed)


# On purpose


def test_a_rolling_restart_shows_clients_nothing_but_lost_connections(
    cluster: ClusterProcesses, show_figure: Show
) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        for number in cluster.brokers:
            cluster.stop(number)
            assert number not in [view.leader for view in cluster.views(topic).values()]
            cluster.start(number)
            cluster.wait_until_whole()
            traffic.wait_until_it_flows()
        assert traffic.unexpected_errors() == []
