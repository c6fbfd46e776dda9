"""docs/deploying.md: three machines with the files of `deploy/`, in network namespaces."""

from __future__ import annotations

import json
import shlex
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from moldau.cli.secure import SecureFolder
from support.broker_process import BrokerProcess, broker_process, moldau_command
from support.network_namespaces import network_namespaces
from support.pages import ROOT
from support.waiting import eventually
from support.zookeeper import require_zookeeper, running_ensemble

DEPLOY = ROOT / "deploy"
PORT = 9092


def run(*arguments: str, given: str = "") -> str:
    done = subprocess.run(
        moldau_command(*arguments), input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def options_of_machine(number: int, host: str) -> list[str]:
    """`broker.env`, as somebody edits it for a machine."""
    line = (DEPLOY / "broker.env").read_text(encoding="utf-8").splitlines()[-1]
    text = line.partition("=")[2].replace("broker1.example.com", host)
    words = shlex.split(text.replace("--broker-id 1", f"--broker-id {number}"))
    return [word.replace("rack=one", f"rack=rack-{number}") for word in words]


def make_keys(folder: Path, hosts: list[str]) -> Path:
    keys = folder / "etc-moldau"
    named = [word for host in hosts for word in ("--host", host)]
    run("secure", "init", "--out", str(keys), "--listen", f"0.0.0.0:{PORT}", *named)
    return keys


def append_cluster_settings(keys: Path, connect: str) -> None:
    """`cluster.properties`, behind what `secure init` made."""
    lines = (DEPLOY / "cluster.properties").read_text(encoding="utf-8").splitlines()
    changed = {"log.dirs": None, "zookeeper.connect": connect}
    with (keys / "server.properties").open("a", encoding="utf-8") as file:
        for line in lines:
            name = line.partition("=")[0]
            value = changed.get(name, line.partition("=")[2])
            if value is not None:
                file.write(f"{name}={value}\n")


def are_in_sync(described: Any) -> bool:
    (topic,) = described
    return all(len(one["in_sync_replicas"]) == 3 for one in topic["partitions"])


def test_three_machines_with_the_files_of_the_page(folder: Path) -> None:
    require_zookeeper()
    with network_namespaces(3) as network, ExitStack() as stack:
        hosts = [str(network.place(number)["host"]) for number in (1, 2, 3)]
        keys = make_keys(folder, [*hosts, network.here])
        security = SecureFolder(keys).server_security()
        servers = stack.enter_context(running_ensemble(1, security=security))
        append_cluster_settings(keys, network.reach(servers.fresh_connect()))
        brokers: list[BrokerProcess] = []
        for number, host in enumerate(hosts, 1):
            settings = ("--config", str(keys / "server.properties"), "--no-console")
            broker = broker_process(
                folder / f"machine-{number}",
                **network.place(number),
                settings={
                    "listeners": f"SASL_SSL://0.0.0.0:{PORT}",
                    "zookeeper.session.timeout.ms": "3000",  # quicker than the 18 s of a cluster
                },
                arguments=(*settings, *options_of_machine(number, host)),
                port=PORT,
            )
            brokers.append(stack.enter_context(broker))
            brokers[-1].launch()
        for broker in brokers:
            broker.wait_until_listening()

        client = ("--command-config", str(keys / "client.properties"))
        bootstrap = ("--bootstrap", ",".join(f"{host}:{PORT}" for host in hosts[:2]))
        run("topics", "create", "orders", "--partitions", "6", *bootstrap, *client)
        described = ("topics", "describe", "orders", "--json", *bootstrap, *client)
        eventually(lambda: are_in_sync(json.loads(run(*described))), "three replicas in sync")
        run("produce", "orders", *bootstrap, *client, given="before\n")
        brokers[2].kill()
        run("produce", "orders", *bootstrap, *client, given="after\n")
        read = run("consume", "orders", "--from-beginning", "--until-end", *bootstrap, *client)
        assert sorted(read.split()) == ["after", "before"]
