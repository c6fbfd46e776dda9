"""A real ZooKeeper is restored from a backup, or somebody removes and damages its nodes.

The logs are worth more than what ZooKeeper says of them: nothing on the disks is lost, and it is
served again as soon as that is possible (DEL-1, DEL-2).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kazoo.client import KazooClient, KazooState

from support.cluster_processes import ClusterProcesses, cluster_processes
from support.confluent_client import consume, produce
from support.rows import Row
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import Zookeeper, running_ensemble, zookeeper

__all__ = ("zookeeper",)  # a fixture

RECORDS = 40


def rows(first: int, count: int = RECORDS) -> list[Row]:
    return [Row(None, b"%06d" % number) for number in range(first, first + count)]


def assert_holds(cluster: ClusterProcesses, topic: str, count: int) -> None:
    """Every record that was acknowledged is there once, in its place."""
    got = consume(cluster.bootstrap, topic, count)
    assert [one.value for one in got] == [row.value for row in rows(0, count)]


def log_sizes(cluster: ClusterProcesses, topic: str) -> list[int]:
    return [
        sum(size_of(path) for path in cluster.segments(number, topic)) for number in cluster.brokers
    ]


def size_of(segment: Path) -> int:
    try:
        return segment.stat().st_size
    except FileNotFoundError:  # deleted since it was listed
        return 0


@contextlib.contextmanager
def connected(connect: str) -> Iterator[KazooClient]:
    client = KazooClient(connect)
    try:
        client.start(PATIENCE_SECONDS)
        assert client.state == KazooState.CONNECTED
        yield client
    finally:
        client.stop()
        client.close()


@contextlib.contextmanager
def stopped(servers: Zookeeper, cluster: ClusterProcesses) -> Iterator[Path]:
    """ZooKeeper is down meanwhile; gives its data folder."""
    (node,) = servers.nodes
    with cluster.without_zookeeper():  # a session that has seen more is not served by an older one
        servers.kill()
        yield node.folder / "data"
        servers.start_node(node)


def test_zookeeper_is_restored_from_a_backup_while_brokers_run(folder: Path) -> None:
    with running_ensemble(1) as servers:
        connect = servers.fresh_connect()
        with cluster_processes(folder, connect) as cluster:
            topic = cluster.create_topic()
            produce(cluster.bootstrap, topic, rows(0))
            with stopped(servers, cluster) as data:
                shutil.copytree(data, folder / "older")
            cluster.wait_until_whole()
            leader = cluster.view(topic).leader
            cluster.kill(leader)  # an election that the backup does not know of
            cluster.wait_until_led_by_another(topic, leader)
            produce(cluster.bootstrap, topic, rows(RECORDS))
            cluster.start(leader)
            later = cluster.create_topic()
            produce(cluster.bootstrap, later, rows(0))
            sizes = log_sizes(cluster, later)

            with stopped(servers, cluster) as data:
                shutil.copytree(data, folder / "newer")
                shutil.rmtree(data)
                shutil.copytree(folder / "older", data)
            # The backup has registrations in it: they are no sign that somebody is back.
            told = f"{later}-0 (topic id "
            eventually(
                lambda: all(told in broker.output for broker in cluster.brokers.values()),
                "everybody says what is kept",
            )
            cluster.wait_until_whole()
            assert_holds(cluster, topic, 2 * RECORDS)
            produce(cluster.bootstrap, topic, rows(2 * RECORDS))
            assert_holds(cluster, topic, 3 * RECORDS)
            assert log_sizes(cluster, later) == sizes  # unknown to the backup, and kept

            with stopped(servers, cluster) as data:  # somebody finds the newer one
                shutil.rmtree(data)
                shutil.copytree(folder / "newer", data)
            assert_holds(cluster, later, RECORDS)
            cluster.wait_until_whole()
            assert_holds(cluster, topic, 3 * RECORDS)


def test_zookeeper_is_restored_from_a_backup_while_brokers_are_down(folder: Path) -> None:
    with running_ensemble(1) as servers:
        connect = servers.fresh_connect()
        with cluster_processes(folder, connect) as cluster:
            topic = cluster.create_topic()
            produce(cluster.bootstrap, topic, rows(0))
            with stopped(servers, cluster) as data:
                shutil.copytree(data, folder / "older")
            cluster.wait_until_whole()
            leader = cluster.view(topic).leader
            cluster.kill(leader)
            cluster.wait_until_led_by_another(topic, leader)
            produce(cluster.bootstrap, topic, rows(RECORDS))
            up_to_date = [number for number in cluster.brokers if number != leader]
            cluster.kill()
            with stopped(servers, cluster) as data:
                shutil.rmtree(data)
                shutil.copytree(folder / "older", data)
            # By the backup the one that was away leads; the others have what was acknowledged.
            cluster.start(*up_to_date)
            cluster.start(leader)
            cluster.wait_until_whole()
            assert_holds(cluster, topic, 2 * RECORDS)


Tree = Sequence[tuple[str, bytes]]


def read_tree(client: KazooClient, path: str) -> Tree:
    """A node and all below it, parents first."""
    found = [(path, client.get(path)[0])]
    for name in client.get_children(path):
        found += read_tree(client, f"{path}/{name}")
    return found


def remove_tree(client: KazooClient, path: str) -> bool:
    """In one step: brokers whose registrations went first would be back before the rest is gone."""
    transaction = client.transaction()
    for one, _ in reversed(read_tree(client, path)):
        transaction.delete(one)
    return not any(isinstance(outcome, Exception) for outcome in transaction.commit())


def test_everything_is_removed_by_hand_under_living_sessions(
    folder: Path, zookeeper: Zookeeper
) -> None:
    path = zookeeper.fresh_path()
    with (
        cluster_processes(folder, f"{zookeeper.connect}{path}") as cluster,
        connected(zookeeper.connect) as client,
    ):
        topic = cluster.create_topic()
        produce(cluster.bootstrap, topic, rows(0))
        sizes = log_sizes(cluster, topic)
        tree = [
            (one, data)
            for one, data in read_tree(client, path)
            if "/brokers/ids/" not in one and not one.endswith("/controller")
        ]
        eventually(lambda: remove_tree(client, path), "nothing is left")
        told = "If it lost its data, restore it from a backup"
        eventually(
            lambda: all(told in broker.output for broker in cluster.brokers.values()),
            "everybody says what is missing",
        )
        first = cluster.brokers[1]
        first.stop()
        first.launch()
        assert first.wait() == 1
        assert "restore it from a backup and start again" in first.output
        assert client.exists(f"{path}/cluster/id") is None  # nobody begins anew
        assert log_sizes(cluster, topic) == sizes

        for one, data in sorted(tree, key=lambda node: node[0].endswith("/cluster/id")):
            client.ensure_path(one)  # the cluster's id comes last: brokers wait for it
            client.set(one, data)
        cluster.start(1)
        eventually(lambda: cluster.registered() == {1, 2, 3}, "everybody is back")
        cluster.wait_until_whole()
        assert_holds(cluster, topic, RECORDS)
        produce(cluster.bootstrap, topic, rows(RECORDS))
        assert_holds(cluster, topic, 2 * RECORDS)


def test_nodes_are_removed_and_damaged_by_hand(folder: Path, zookeeper: Zookeeper) -> None:
    settings: Mapping[str, str] = {
        "log.retention.ms": "1000",
        "log.retention.check.interval.ms": "200",
        "log.segment.delete.delay.ms": "1",
    }
    connect = zookeeper.fresh_connect()
    with (
        cluster_processes(folder, connect, settings=settings) as cluster,
        connected(connect) as client,
    ):
        topic = cluster.create_topic(config={"retention.ms": "-1"})
        produce(cluster.bootstrap, topic, rows(0))

        # The settings of a topic become unreadable, and everybody is started anew.
        config = f"/config/topics/{topic}"
        sound = client.get(config)[0]
        client.set(config, b"{ damaged")
        for number in cluster.brokers:
            cluster.stop(number)
            cluster.start(number)
        cluster.wait_until_whole()
        marker = cluster.create_topic()  # is emptied by retention: so retention has been at work
        produce(cluster.bootstrap, marker, rows(0), partition=0)
        eventually(lambda: sum(log_sizes(cluster, marker)) == 0, "retention")
        assert_holds(cluster, topic, RECORDS)
        client.set(config, sound)

        # The topic itself is removed, and put back.
        tree = read_tree(client, f"/brokers/topics/{topic}")
        sizes = log_sizes(cluster, topic)
        client.delete(f"/brokers/topics/{topic}", recursive=True)
        told = f"{topic}-0 (topic id "
        eventually(
            lambda: all(told in broker.output for broker in cluster.brokers.values()),
            "everybody says what is kept",
        )
        assert log_sizes(cluster, topic) == sizes
        transaction = client.transaction()
        for path, data in tree:
            transaction.create(path, data)
        transaction.commit()
        cluster.wait_until_whole()
        assert_holds(cluster, topic, RECORDS)
        produce(cluster.bootstrap, topic, rows(RECORDS))
        assert_holds(cluster, topic, 2 * RECORDS)
