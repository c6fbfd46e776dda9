"""`moldau_cluster`: three brokers with real sockets, for real clients, with faults on request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from moldau.errors import NotLeaderError
from moldau.testing import RunningCluster
from moldau.testing import cluster as start_cluster

PATIENCE = 60.0
QUIET = {"log_level": 2}


class Writer:
    """An idempotent producer that remembers what it was promised."""

    def __init__(self, cluster: RunningCluster) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "socket.timeout.ms": 2000,
                "linger.ms": 0,
                **QUIET,
            }
        )

    def write(self, value: bytes) -> None:
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                self.acknowledged[message.offset()] = value  # type: ignore[attr-defined]
            else:
                errors.append(error)

        self._producer.produce("t", value, partition=0, on_delivery=delivered)
        assert self._producer.flush(PATIENCE) == 0
        assert errors == []


@pytest.fixture
def cluster() -> Iterator[RunningCluster]:
    """With a topic of three replicas."""
    with start_cluster() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **QUIET})
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(PATIENCE)
        yield running


@pytest.fixture
def writer(cluster: RunningCluster) -> Iterator[Writer]:
    made = Writer(cluster)
    yield made
    made._producer.flush(0)


def read_all(cluster: RunningCluster, count: int) -> dict[int, bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            **QUIET,
        }
    )
    consumer.subscribe(["t"])
    found: dict[int, bytes] = {}
    try:
        while len(found) < count:
            message = consumer.poll(PATIENCE)
            assert message is not None
            assert message.error() is None
            found[message.offset()] = message.value()
    finally:
        consumer.close()
    return found


def test_a_leader_that_is_killed_is_replaced_and_nothing_is_lost(
    cluster: RunningCluster, writer: Writer
) -> None:
    writer.write(b"before")
    leader = cluster.leader_of("t")
    assert leader is not None
    cluster.kill(leader)
    writer.write(b"after")
    assert cluster.leader_of("t") not in (leader, None)
    cluster.restart(leader)
    cluster.wait_until_whole()
    assert cluster.in_sync("t") == [1, 2, 3]
    assert read_all(cluster, 2) == writer.acknowledged == {0: b"before", 1: b"after"}


def test_a_paused_leader_is_replaced_and_comes_back_as_a_follower(
    cluster: RunningCluster, writer: Writer
) -> None:
    writer.write(b"before")
    leader = cluster.leader_of("t")
    assert leader is not None
    cluster.pause(leader)
    cluster.clock.advance(5)  # past the session's time-out
    cluster.wait_until(lambda: cluster.leader_of("t") not in (leader, None), "a new leader")
    writer.write(b"after")
    cluster.resume(leader)
    cluster.wait_until_whole()
    assert read_all(cluster, 2) == writer.acknowledged


def test_a_follower_that_is_cut_off_leaves_the_in_sync_set_and_comes_back(
    cluster: RunningCluster, writer: Writer
) -> None:
    leader = cluster.leader_of("t")
    assert leader is not None
    follower = next(broker for broker in cluster.broker_ids if broker != leader)
    cluster.cut(leader, follower)
    writer.write(b"1")
    cluster.wait_until(lambda: follower not in cluster.in_sync("t"), "a smaller in-sync set")
    writer.write(b"2")
    cluster.heal()
    cluster.wait_until_whole()
    assert cluster.in_sync("t") == [1, 2, 3]


def test_a_broker_that_stops_hands_over(cluster: RunningCluster, writer: Writer) -> None:
    leader = cluster.leader_of("t")
    assert leader is not None
    cluster.stop(leader)
    assert cluster.leader_of("t") not in (leader, None)
    writer.write(b"1")
    cluster.restart(leader)
    cluster.wait_until_whole()


def test_errors_are_injected_for_an_api_and_clients_go_on(
    cluster: RunningCluster, writer: Writer
) -> None:
    moved = cluster.inject("produce", NotLeaderError, times=2)
    writer.write(b"1")
    assert moved.times_met == 2
    dropped = cluster.inject("produce", ConnectionResetError)
    writer.write(b"2")
    assert dropped.times_met == 1
    assert writer.acknowledged == {0: b"1", 1: b"2"}


def test_a_fetch_is_told_what_the_test_wants(cluster: RunningCluster, writer: Writer) -> None:
    writer.write(b"1")
    faults = [
        cluster.inject(api, "not_leader_or_follower", times=1, broker_id=cluster.leader_of("t"))
        for api in ("list_offsets",)
    ]
    faults.append(cluster.inject("find_coordinator", 15, times=1))
    assert read_all(cluster, 1) == {0: b"1"}
    assert all(fault.times_met == 1 for fault in faults)


def test_an_unknown_api_is_refused(cluster: RunningCluster) -> None:
    with pytest.raises(ValueError, match="no API"):
        cluster.inject("producing", NotLeaderError)


_TEST_OF_A_USER = """
def test_mine(moldau_cluster):
    assert moldau_cluster.bootstrap.count(":") == 3
    moldau_cluster.kill(1)
    moldau_cluster.clock.advance(5)
    moldau_cluster.restart(1)
    moldau_cluster.wait_until_whole()
"""


def test_the_fixture_is_there_for_everybody(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(_TEST_OF_A_USER)
    # By its module, and not by its entry point: the package may not be installed.
    plugin = ("-p", "no:moldau", "-p", "moldau.testing.pytest_plugin", "-p", "no:cacheprovider")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, "-q", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr
