"""From nothing to a secured cluster of three: certificates, users, the command line, a death."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.config.properties import parse_properties
from moldau.security.certificates import read_names
from moldau.testing.free_ports import take_port
from support.broker_process import moldau_command
from support.command_line import run_process
from support.waiting import eventually

COUNT = 200


def run(*arguments: str, given: str = "") -> str:
    done = run_process(*arguments, input=given)
    assert done.returncode == 0, done.stderr
    return done.stdout


class SecuredCluster:
    def __init__(self, folder: Path, port: int, process: subprocess.Popen[str]) -> None:
        self.folder = folder
        self.port = port
        self.process = process

    def run(self, *arguments: str, given: str = "", settings: Path | None = None) -> str:
        return run(*arguments, *self.access(settings), given=given)

    def access(self, settings: Path | None = None) -> tuple[str, ...]:
        """The options of commands that lead here, as the administrator or as somebody else."""
        file = settings or self.folder / "client.properties"
        return ("--bootstrap", f"127.0.0.1:{self.port}", "--command-config", str(file))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    base = tmp_path_factory.mktemp("secure")
    port = take_port(1, 2)  # the brokers count on from the first one's port
    run("secure", "init", "--out", str(base / "made"), "--listen", f"127.0.0.1:{port}")
    command = moldau_command("start", "--brokers", "3")
    command += ["--config", str(base / "made" / "server.properties")]
    command += ["--set", "delegation.token.secret.key=${env:TOKEN_KEY}"]
    command += ["--data-dir", str(base / "data")]
    environment = {**os.environ, "TOKEN_KEY": "the brokers' common key"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on")
            yield SecuredCluster(base / "made", port, process)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_only_the_owner_can_read_what_is_secret(cluster: SecuredCluster) -> None:
    made = [cluster.folder, *cluster.folder.rglob("*")]
    modes = {one: stat.S_IMODE(one.stat().st_mode) for one in made}
    public = {one for one in made if one.name == "ca.pem"}
    assert {modes[one] for one in public} == {0o644}
    assert {mode for one, mode in modes.items() if one.is_dir()} == {0o700}
    assert {mode for one, mode in modes.items() if one.is_file() and one not in public} == {0o600}
    data = cluster.folder.parent / "data"
    assert stat.S_IMODE(data.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in data.glob("coordination.*")} == {0o600}


def test_nothing_that_is_in_use_is_overwritten(cluster: SecuredCluster) -> None:
    again = run_process("secure", "init", "--out", str(cluster.folder))
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


def test_a_password_that_stays_without_effect_is_told(cluster: SecuredCluster) -> None:
    """The first user stands in the brokers' own settings."""
    done = run_process("users", "set", "admin", *cluster.access(), input="another\n")
    assert done.returncode == 0
    assert "admin stands in sasl.jaas.config of the listener SASL_SSL" in done.stderr
    cluster.run("topics", "list")  # with the former password


def test_who_does_not_say_who_he_is_gets_nothing(cluster: SecuredCluster) -> None:
    with pytest.raises(AssertionError, match=r"127\.0\.0\.1"):
        run("topics", "list", "--bootstrap", f"127.0.0.1:{cluster.port}")


def test_an_open_listener_needs_the_word_insecure(tmp_path: Path) -> None:
    refused = run_process("start", "--listen", "0.0.0.0:0", cwd=tmp_path)
    assert refused.returncode == 1
    assert "--insecure" in refused.stderr


def test_an_old_folder_is_renewed_all_of_it_or_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    run("secure", "init", "--out", str(folder))
    former = {one: one.read_bytes() for one in folder.rglob("*.pem")}
    (folder / "zookeeper" / "ca.key").rename(tmp_path / "kept.key")
    with pytest.raises(AssertionError, match="put it back"):
        run("secure", "renew", "--out", str(folder))
    assert {one: one.read_bytes() for one in former} == former
    shutil.rmtree(folder / "zookeeper")  # as before there was TLS to ZooKeeper
    (folder / "client.pem").unlink()
    told = run("secure", "renew", "--out", str(folder), "--host", "kafka1.example.com")
    assert told == f"renewed {folder / 'broker.pem'}\n"
    name, hosts = read_names((folder / "broker.pem").read_text())
    assert name == "moldau-broker"
    assert hosts == ["localhost", "127.0.0.1", "::1", "kafka1.example.com"]


def test_tokens_come_and_go(cluster: SecuredCluster, tmp_path: Path) -> None:
    """A job logs in with the settings that `tokens create` writes, until its token ends."""
    settings = tmp_path / "job.properties"
    wanted = ("--renewer", "User:scheduler", "--max-lifetime", "2d", "--out", str(settings))
    told = cluster.run("tokens", "create", *wanted)
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    (token_id,) = re.findall(r"^id: +(\S+)$", told, re.MULTILINE)
    secret = re.findall(r'password="([^"]+)"', settings.read_text())[0]
    assert secret not in told
    cluster.run("topics", "list", settings=settings)
    (row,) = json.loads(cluster.run("tokens", "describe", "--json"))
    assert (row["id"], row["owner"], row["renewers"]) == (
        token_id,
        "User:admin",
        ["User:scheduler"],
    )
    assert secret not in json.dumps(row)
    assert "is good until" in cluster.run("tokens", "renew", token_id, "--period", "36h")
    (renewed,) = json.loads(cluster.run("tokens", "describe", "--owner", "User:admin", "--json"))
    assert row["expiry_ms"] < renewed["expiry_ms"] <= renewed["max_ms"]
    assert cluster.run("tokens", "expire", token_id) == f"{token_id} has ended\n"
    with pytest.raises(AssertionError, match="invalid credentials"):
        cluster.run("topics", "list", settings=settings)
    assert json.loads(cluster.run("tokens", "describe", "--json")) == []
    with pytest.raises(AssertionError, match="there is no delegation token"):
        cluster.run("tokens", "expire", token_id)


def test_the_list_of_users_says_whom_it_leaves_out(cluster: SecuredCluster) -> None:
    done = run_process("users", "list", *cluster.access())
    assert done.returncode == 0
    assert "(sasl.jaas.config) are not listed" in done.stderr
