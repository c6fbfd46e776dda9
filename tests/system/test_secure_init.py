"""From nothing to a secured cluster of three: certificates, users, the command line, a death."""

from __future__ import annotations

import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.config.properties import parse_properties
from support.broker_process import free_port
from support.waiting import eventually

COUNT = 200


def run(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "moldau", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class SecuredCluster:
    def __init__(self, folder: Path, port: int, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.port = port
        self.process = process

    def run(self, *arguments: str, given: str = "", settings: Path | None = None) -> str:
        file = settings or self.folder / "client.properties"
        address = f"127.0.0.1:{self.port}"
        return run(*arguments, "--bootstrap", address, "--command-config", str(file), given=given)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    base = tmp_path_factory.mktemp("secure")
    port = next(port for port in iter(free_port, None) if all_free(port))
    run("secure", "init", "--out", str(base / "made"), "--listen", f"127.0.0.1:{port}")
    command = [sys.executable, "-m", "moldau", "start", "--brokers", "3"]
    command += ["--config", str(base / "made" / "server.properties")]
    command += ["--data-dir", str(base / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on")
            yield SecuredCluster(base / "made", port, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def all_free(port: int) -> bool:
    """The brokers count on from the first one's port."""
    for number in range(3):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port + number))
            except OSError:
                return False
    return True


def test_only_the_owner_can_read_what_is_secret(cluster: SecuredCluster) -> None:
    modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in cluster.folder.iterdir()}
    assert modes.pop("ca.pem") == 0o644
    assert set(modes.values()) == {0o600}
    assert stat.S_IMODE(cluster.folder.stat().st_mode) == 0o700


def test_nothing_that_is_in_use_is_overwritten(cluster: SecuredCluster) -> None:
    again = subprocess.run(
        [sys.executable, "-m", "moldau", "secure", "init", "--out", str(cluster.folder)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert again.returncode == 1
    assert "is not empty" in again.stderr


def test_the_cluster_goes_on_when_a_broker_dies(cluster: SecuredCluster) -> None:
    cluster.run("topics", "create", "demo", "--partitions", "3", "--replication-factor", "3")
    lines = "\n".join(map(str, range(COUNT)))
    cluster.run("produce", "demo", given=lines)
    assert cluster.process.stdout is not None
    pids = [
        int(found[1])
        for _ in range(3)
        if (found := re.search(r"process (\d+)", cluster.process.stdout.readline()))
    ]
    subprocess.run(["kill", "-KILL", str(pids[1])], check=True)
    cluster.run("produce", "demo", given=lines)

    def all_in_sync() -> bool:
        told = cluster.run("topics", "describe", "demo", "--json")
        return told.count('"in_sync"') == 0 or "under" not in told

    eventually(all_in_sync, "the broker is back")
    read = cluster.run("consume", "demo", "--from-beginning", "--max-messages", str(2 * COUNT))
    assert sorted(map(int, read.split())) == sorted([*range(COUNT), *range(COUNT)])


def test_users_come_and_go(cluster: SecuredCluster, tmp_path: Path) -> None:
    cluster.run("users", "set", "alice", given="her secret\n")
    assert "alice" in cluster.run("users", "list")
    properties = (cluster.folder / "client.properties").read_text()
    own = {line.name: line.value for line in parse_properties(properties)}
    own["sasl.jaas.config"] = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="alice" password="${{file:{tmp_path / "word"}}}";'
    )
    (tmp_path / "word").write_text("her secret\n")
    settings = tmp_path / "alice.properties"
    settings.write_text("\n".join(f"{name}={value}" for name, value in own.items()))
    cluster.run("topics", "list", settings=settings)
    cluster.run("users", "delete", "alice")
    with pytest.raises(AssertionError, match="invalid credentials"):
        cluster.run("topics", "list", settings=settings)


def test_who_does_not_say_who_he_is_gets_nothing(cluster: SecuredCluster) -> None:
    with pytest.raises(AssertionError, match=r"127\.0\.0\.1"):
        run("topics", "list", "--bootstrap", f"127.0.0.1:{cluster.port}")


def test_an_open_listener_needs_the_word_insecure(tmp_path: Path) -> None:
    refused = subprocess.run(
        [sys.executable, "-m", "moldau", "start", "--listen", "0.0.0.0:0"],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
    )
    assert refused.returncode == 1
    assert "--insecure" in refused.stderr
