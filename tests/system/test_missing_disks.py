"""A broker of a cluster whose disk is not mounted, is replaced, or comes back late (DEL-3)."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from support import confluent_client
from support.cluster_processes import ClusterProcesses, cluster_processes
from support.rows import numbered_rows, rows_of
from support.topics import fresh_name
from support.waiting import eventually
from support.zookeeper import Zookeeper, zookeeper_ensemble

__all__ = ("zookeeper_ensemble",)  # a fixture

ROWS = numbered_rows(50)


@pytest.fixture
def pair(folder: Path, zookeeper_ensemble: Zookeeper) -> Iterator[ClusterProcesses]:
    with cluster_processes(folder, zookeeper_ensemble.fresh_connect(), count=2) as running:
        yield running


def create_alone(cluster: ClusterProcesses) -> tuple[str, int]:
    """A topic with one replica, and the broker that has it."""
    name = fresh_name("alone")
    admin = confluent_client.admin_client(cluster.bootstrap)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    cluster.wait_until_whole()
    return name, cluster.view(name).leader


def read(cluster: ClusterProcesses, topic: str, count: int) -> list[object]:
    return rows_of(confluent_client.consume(cluster.bootstrap, topic, count))


def test_an_empty_mount_point_is_no_new_broker(pair: ClusterProcesses) -> None:
    topic, number = create_alone(pair)
    confluent_client.produce(pair.bootstrap, topic, ROWS)
    shared = pair.create_topic()
    confluent_client.produce(pair.bootstrap, shared, ROWS)
    broker, disk = pair.brokers[number], pair.data_folder(number)
    pair.kill(number)
    disk.rename(disk.with_name("unmounted"))
    for _ in range(2):  # the first time does not make it a known one
        disk.mkdir(exist_ok=True)
        with pytest.raises(AssertionError, match=rf"only complete copy of {topic}-0.* mount it"):
            broker.start()
    shutil.rmtree(disk)
    disk.with_name("unmounted").rename(disk)
    broker.start()
    pair.wait_until_whole()
    assert read(pair, topic, len(ROWS)) == ROWS

    # It is lost for good: what others have is copied, and the rest begins again.
    pair.kill(number)
    (lost,) = re.findall(r"^directory\.id=(.+)$", (disk / "meta.properties").read_text(), re.M)
    pair.lose_data(number)
    broker.settings["log.dirs.lost"] = lost
    broker.start()
    pair.wait_until_whole()
    eventually(lambda: pair.view(topic).leader == number, "it is led")
    assert confluent_client.produce(pair.bootstrap, topic, ROWS[:1]) == [0]
    assert read(pair, shared, len(ROWS)) == ROWS
