"""The coordinator of a group is killed while members of both protocols (KIP-848) read.

Whoever coordinates next finds the group as it was logged: every record is dealt with, no partition
has two owners at a time, and committed offsets only grow.
"""

from __future__ import annotations

from pathlib import Path

from moldau.coordinators.runtime.internal_topic import partition_for
from moldau.model import GROUP_OFFSETS_TOPIC
from support.cluster_processes import ClusterProcesses, cluster
from support.mixed_group_story import PARTITIONS, Story, check
from support.zookeeper import zookeeper_ensemble

__all__ = ("cluster", "zookeeper_ensemble")  # fixtures

OFFSETS_PARTITIONS = 3


def test_a_mixed_group_outlives_its_coordinators(cluster: ClusterProcesses, tmp_path: Path) -> None:
    topic = cluster.create_topic(PARTITIONS)
    with Story(cluster.bootstrap, tmp_path, "cooperative-sticky", topic=topic) as story:
        number = partition_for(story.group, OFFSETS_PARTITIONS)

        def kill_coordinator() -> int:
            coordinator = cluster.view(GROUP_OFFSETS_TOPIC, number).leader
            cluster.kill(coordinator)
            cluster.wait_until_led_by_another(GROUP_OFFSETS_TOPIC, coordinator, number)
            return coordinator

        story.join("confluent", "moldau")
        (new, other) = story.join("confluent-consumer", "confluent-consumer")
        story.let_flow(200)
        killed = kill_coordinator()
        story.let_flow(200)
        new.kill()
        story.join("confluent")
        cluster.start(killed)
        cluster.wait_until_whole()
        killed = kill_coordinator()
        story.join("confluent-consumer")
        other.leave()
        cluster.start(killed)
        story.let_flow(200)
        story.finish()
        check(story)
