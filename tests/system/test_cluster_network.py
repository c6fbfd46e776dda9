"""Cables are pulled: a leader that reaches nobody, and brokers that cannot reach each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.cluster_processes import cluster_processes
from support.cluster_traffic import traffic_on
from support.network_namespaces import network_namespaces
from support.waiting import eventually
from support.zookeeper import Zookeeper, zookeeper_ensemble

__all__ = ("zookeeper_ensemble",)  # a fixture


def test_brokers_are_cut_off_and_come_back(
    folder: Path, zookeeper_ensemble: Zookeeper, show_figure: Callable[[str], None]
) -> None:
    connect = zookeeper_ensemble.fresh_connect()
    with (
        network_namespaces(3) as network,
        cluster_processes(folder, connect, network=network) as cluster,
        traffic_on(cluster, show_figure) as (topic, traffic),
    ):
        leader = cluster.view(topic).leader
        with network.cut(leader):
            cluster.wait_until_led_by_another(topic, leader)
            traffic.wait_until_it_flows()
        cluster.wait_until_whole()

        leader, isr, _ = cluster.view(topic)
        with network.apart(leader, next(number for number in isr if number != leader)):
            eventually(lambda: len(cluster.view(topic).isr) == 2, "the set shrinks")
            traffic.wait_until_it_flows()
