"""`moldau zookeeper`: real ZooKeeper servers on this machine."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import AsJson, option
from moldau.cli.output import print_document, print_table, warn
from moldau.cli.reporting import warnings_shown
from moldau.cli.secure import SecureFolder
from moldau.coordination.zookeeper.server import (
    HOST,
    NodePorts,
    ServerOptions,
    ZookeeperEnsemble,
    all_ports,
    require_free_ports,
    send_command,
)
from moldau.errors import StartupError
from moldau.processes import stop_signals

DEFAULT_FOLDER = Path("moldau-zookeeper")
DEFAULT_PORT = 2181
MAX_NODES = 9

_LOOK_EVERY_SECONDS = 0.5


def start(
    data_dir: Annotated[
        Path, option("DIR", "Where its data is kept.", file_okay=False)
    ] = DEFAULT_FOLDER,
    port: Annotated[
        int, option("P", "Of the first node; the others count on.", min=1, max=63_000)
    ] = DEFAULT_PORT,
    nodes: Annotated[
        int, option("N", "How many; three survive the loss of one.", min=1, max=MAX_NODES)
    ] = 1,
    secure: Annotated[
        Path | None,
        option(
            "DIR",
            "Speak TLS, and only with those who have a certificate, with what "
            "`moldau secure init` made there.",
            default="none",
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Run ZooKeeper until it is told to stop (Ctrl-C or SIGTERM).

    The server is the real one, from the jars that PySpark brings along; it needs Java 17 or
    newer (`-v` says which Java is used). Prints one line, `zookeeper listening on HOST:PORT,...`,
    when all nodes serve: what `moldau start --zookeeper` takes. Nodes talk to each other 1,000 and
    2,000 ports higher.
    """
    if any(node.is_running for node in ZookeeperEnsemble.find(data_dir).nodes):
        raise StartupError(
            f"ZooKeeper is already running in {data_dir}; `moldau zookeeper status` shows it"
        )
    ports = [NodePorts.beginning_at(port + number) for number in range(nodes)]
    require_free_ports(all_ports(ports), "choose another port with --port")
    security = None if secure is None else SecureFolder(secure).server_security()
    options = ServerOptions(ends_with_parent=True, security=security)
    ensemble = ZookeeperEnsemble.make(data_dir, ports, options)
    with warnings_shown():
        _serve(ensemble)


def _serve(ensemble: ZookeeperEnsemble) -> None:

    stopping = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stopping.set())
    ensemble.start()
    try:
        typer.echo(f"zookeeper listening on {ensemble.connect}")
        _watch_over(ensemble, stopping.wait)
    finally:
        ensemble.stop()


def _watch_over(ensemble: ZookeeperEnsemble, wait_until_stopped: Callable[[float], bool]) -> None:
    running = set(ensemble.nodes)
    while not wait_until_stopped(_LOOK_EVERY_SECONDS):
        for node in tuple(running):
            if not node.is_running:
                running.discard(node)
                warn(f"the node at {node.address} has ended; see {node.folder}")
        if not running:
            raise StartupError("ZooKeeper has ended by itself")


_FACTS = {
    "Mode": "mode",
    "Zookeeper version": "version",
    "Connections": "connections",
    "Node count": "znodes",
    "Zxid": "zxid",
}


def status(
    data_dir: Annotated[
        Path, option("DIR", "Where it was started.", file_okay=False)
    ] = DEFAULT_FOLDER,
    port: Annotated[
        int | None,
        option(
            "P",
            "Ask here, wherever its data is.",
            default="what the folder says, else 2181",
            min=1,
            max=65_535,
        ),
    ] = None,
    nodes: Annotated[int, option("N", "How many ports to ask.", min=1, max=MAX_NODES)] = 1,
    as_json: AsJson = False,
) -> None:
    """Show the nodes of a ZooKeeper on this machine.

    Fails unless all of them serve. Knows those that `moldau zookeeper start` and `moldau cluster
    start` have started in a folder (for a cluster: --data-dir moldau-cluster/zookeeper); others are
    asked by their --port.
    """
    found = () if port is not None else ZookeeperEnsemble.find(data_dir).nodes
    first = DEFAULT_PORT if port is None else port
    if found:
        documents = [
            _describe(node.port, node.find_pid(), node.send_command("srvr")) for node in found
        ]
    else:
        ports = range(first, first + nodes)
        documents = [_describe(one, None, send_command(one, "srvr")) for one in ports]
    if as_json:
        print_document(documents)
    else:
        columns = ("address", "mode", ">pid", ">connections", ">znodes", ">zxid")
        names = ("address", "mode", "pid", "connections", "znodes", "zxid")
        rows = [tuple(_to_cell(row[name]) for name in names) for row in documents]
        print_table(columns, rows)
    if any(row["mode"] is None for row in documents):
        raise typer.Exit(1)


def _describe(port: int, pid: int | None, answer: str | None) -> dict[str, str | int | None]:
    facts: dict[str, str | int | None] = dict.fromkeys(_FACTS.values())
    for line in (answer or "").splitlines():
        name, _, value = line.partition(": ")
        if name in _FACTS:
            facts[_FACTS[name]] = int(value) if value.isdecimal() else value
    return {"address": f"{HOST}:{port}", "pid": pid, **facts}


def _to_cell(value: str | int | None) -> str:
    return "-" if value is None else str(value)
