"""`moldau cluster` as a user runs it: broker processes in the background, with ZooKeeper or not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from moldau.processes import read_command_line
from moldau.testing.free_ports import take_port
from support.broker_process import moldau_command
from support.waiting import eventually
from support.zookeeper import require_zookeeper

_PATIENCE_SECONDS = 100


class Commands:
    """`moldau cluster ...` in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.err = ""

    def __call__(self, command: str, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            moldau_command("cluster", command, "--data-dir", str(self._folder), *arguments),
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        self.err = done.stderr
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout

    def status(self, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self("status", "--json", "--internal", code=code)))

    def pids(self) -> set[int]:
        found = set()
        for file in self._folder.rglob("*.pid"):
            with contextlib.suppress(FileNotFoundError, ValueError):  # it goes, or is being written
                found.add(int(file.read_text()))
        return found


def is_alive(pid: int) -> bool:
    return any(read_command_line(pid))


@pytest.fixture
def cluster(folder: Path) -> Iterator[Commands]:
    commands = Commands(folder / "cluster")
    yield commands
    for pid in commands.pids():
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.fixture
def zookeeper_cluster(cluster: Commands) -> Commands:
    require_zookeeper()
    return cluster


def call_moldau(*arguments: str, text: str = "") -> str:
    return subprocess.run(
        moldau_command(*arguments),
        input=text,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=True,
    ).stdout


@pytest.mark.parametrize("kind", [(), ("--zookeeper",)], ids=["alone", "zookeeper"])
def test_a_cluster_starts_shows_itself_and_stops_without_a_trace(
    cluster: Commands, kind: tuple[str, ...]
) -> None:
    if kind:
        require_zookeeper()
    port = take_port(1, 2, 100)
    started = cluster("start", "--brokers", "3", "--base-port", str(port), *kind)
    bootstrap = ",".join(f"127.0.0.1:{port + number}" for number in range(3))
    assert started.startswith(f"listening on {bootstrap}\n")
    call_moldau("topics", "create", "clicks", "--partitions", "3", "--bootstrap", bootstrap)
    call_moldau("produce", "clicks", "--bootstrap", bootstrap, text="one\ntwo\n")

    status = cluster.status()
    assert [broker["registered"] for broker in status["brokers"]] == [True] * 3
    assert status["controller"] in (1, 2, 3)
    assert [node["mode"] for node in status["zookeeper"]] == ["standalone"] * len(kind)
    (clicks,) = (topic for topic in status["topics"] if topic["topic"] == "clicks")
    assert [sorted(row["replicas"]) for row in clicks["partitions"]] == [[1, 2, 3]] * 3
    assert {row["leader"] for row in clicks["partitions"]} == {1, 2, 3}
    eventually(lambda: cluster.status()["under_replicated"] == 0, "all replicas in sync")
    table = cluster("status")
    assert "controller" in table
    assert "under-replicated partitions: 0" in table

    cluster("start", code=1)
    assert "already running" in cluster.err
    pids = cluster.pids()
    assert len(pids) == 4
    cluster("stop")
    assert not any(map(is_alive, pids))
    assert cluster.pids() == set()
    cluster("stop")
    assert "nothing was running" in cluster.err


def test_a_cluster_that_was_stopped_or_lost_a_broker_starts_again(
    zookeeper_cluster: Commands,
) -> None:
    cluster = zookeeper_cluster
    port = take_port(1, 2, 100)
    cluster("start", "--brokers", "2", "--base-port", str(port), "--zookeeper")
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    call_moldau("topics", "create", "clicks", "--bootstrap", bootstrap)
    call_moldau("produce", "clicks", "--bootstrap", bootstrap, text="one\ntwo\n")
    (lost,) = (row["pid"] for row in cluster.status()["brokers"] if row["id"] == 2)
    os.kill(lost, signal.SIGKILL)
    assert "stopped" in cluster("status", code=1)
    cluster("start")
    cluster("stop")
    cluster("status", code=1)
    cluster("start")
    arguments = ("--from-beginning", "--max-messages", "2", "--bootstrap", bootstrap)
    assert call_moldau("consume", "clicks", *arguments).split() == ["one", "two"]
    cluster("stop")


def test_without_zookeeper_a_lost_broker_comes_back_by_itself_and_brokers_are_added(
    cluster: Commands,
) -> None:
    port = take_port(1, 2)
    cluster("start", "--brokers", "2", "--base-port", str(port))
    bootstrap = f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    call_moldau("topics", "create", "clicks", "--bootstrap", bootstrap)
    call_moldau("produce", "clicks", "--bootstrap", bootstrap, text="one\ntwo\n")
    (lost,) = (row["pid"] for row in cluster.status()["brokers"] if row["id"] == 2)
    os.kill(lost, signal.SIGKILL)
    eventually(lambda: lost not in cluster.pids() and not is_alive(lost), "it is gone")
    eventually(lambda: len([pid for pid in cluster.pids() if is_alive(pid)]) == 3, "another")
    cluster("start", "--brokers", "3", code=1)
    assert "moldau cluster stop" in cluster.err
    cluster("stop")
    cluster("status", code=1)
    cluster("start", "--brokers", "3")
    assert [row["id"] for row in cluster.status()["brokers"]] == [1, 2, 3]
    arguments = ("--from-beginning", "--max-messages", "2", "--bootstrap", bootstrap)
    assert call_moldau("consume", "clicks", *arguments).split() == ["one", "two"]
    cluster("stop")
    cluster("start", "--zookeeper", code=1)
    assert "no ZooKeeper nodes" in cluster.err


@pytest.mark.parametrize("kind", [(), ("--zookeeper",)], ids=["alone", "zookeeper"])
def test_what_cannot_be_started_is_explained_and_leaves_nothing(
    cluster: Commands, kind: tuple[str, ...]
) -> None:
    if kind:
        require_zookeeper()
    port = take_port(1, 2, 100)
    arguments = ("--brokers", "1", "--base-port", str(port), *kind)
    cluster("start", *arguments, "--set", "num.partitions=many", code=1)
    assert "num.partitions" in cluster.err
    assert not any(map(is_alive, cluster.pids()))
    cluster("start", *arguments)
    other = Commands(cluster._folder.with_name("other"))
    other("start", *arguments, code=1)
    assert f"127.0.0.1:{port}" in other.err
    cluster("start", "--zookeeper-nodes", "3", code=1)
    assert "--data-dir" in cluster.err
    cluster("stop")
