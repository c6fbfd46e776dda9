"""Replicas that lost their data or hold damaged bytes: they get them again, and spread nothing."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from support.cluster_processes import ClusterProcesses, cluster
from support.cluster_traffic import traffic_on
from support.waiting import eventually
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

Show = Callable[[str], None]

_BATCH_START = struct.Struct(">qi")  # base offset, bytes that follow


def batch_positions(log: bytes) -> list[tuple[int, int]]:
    """Where each whole batch begins and ends."""
    found, position = [], 0
    while position + _BATCH_START.size <= len(log):
        end = position + _BATCH_START.size + _BATCH_START.unpack_from(log, position)[1]
        if end > len(log):
            break
        found.append((position, end))
        position = end
    return found


def damage_batch_after(path: Path, position: int) -> None:
    """The last byte of a batch that begins there or later is turned around."""
    end = next(end for start, end in batch_positions(path.read_bytes()) if start >= position)
    with path.open("r+b") as file:
        file.seek(end - 1)
        (byte,) = file.read(1)
        file.seek(end - 1)
        file.write(bytes([byte ^ 0xFF]))


@pytest.mark.parametrize("place", [0, -1], ids=["of a leader", "of a follower"])
def test_the_data_folder_is_lost(cluster: ClusterProcesses, show_figure: Show, place: int) -> None:
    with traffic_on(cluster, show_figure) as (topic, traffic):
        number = cluster.view(topic).replicas[place]
        cluster.kill(number)
        cluster.lose_data(number)
        cluster.start(number)
        traffic.wait_until_it_flows()


@pytest.mark.parametrize("place", [0, -1], ids=["by a leader", "by a follower"])
def test_damaged_bytes_are_found_after_a_kill(
    cluster: ClusterProcesses, show_figure: Show, place: int
) -> None:
    """And the broker is back before its session has ended: by the metadata it is still in sync."""
    with traffic_on(cluster, show_figure, 1) as (topic, traffic):
        number = cluster.view(topic).replicas[place]
        cluster.kill(number)
        (segment,) = cluster.segments(number, topic)
        damage_batch_after(segment, segment.stat().st_size // 2)
        cluster.start(number)
        traffic.wait_until_it_flows()


def test_a_leader_whose_bytes_are_damaged_steps_down_and_repairs_itself(
    cluster: ClusterProcesses, show_figure: Show
) -> None:
    with traffic_on(cluster, show_figure, 1) as (topic, traffic):
        leader, _, late = cluster.view(topic).replicas
        cluster.pause(late)
        eventually(lambda: late not in cluster.view(topic).isr, "it is taken out of the set")
        (segment,) = cluster.segments(leader, topic)
        # Behind what it may have been sent already: an answer waits for it in its socket.
        size = segment.stat().st_size
        traffic.wait_until_it_flows()
        damage_batch_after(segment, size)
        cluster.resume(late)  # and asks for what is damaged
        cluster.wait_until_led_by_another(topic, leader)
        traffic.wait_until_it_flows()
