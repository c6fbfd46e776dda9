"""`moldau zookeeper status`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.zookeeper.options import DEFAULT_FOLDER, DEFAULT_PORT, MAX_NODES

_FACTS = {
    "Mode": "mode",
    "Zookeeper version": "version",
    "Connections": "connections",
    "Node count": "znodes",
    "Zxid": "zxid",
}


def status(
    data_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="Where it was started."),
    ] = DEFAULT_FOLDER,
    port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65_535,
            metavar="P",
            help="Ask here, wherever its data is.",
            show_default="what the folder says, else 2181",
        ),
    ] = None,
    nodes: Annotated[
        int, typer.Option(min=1, max=MAX_NODES, metavar="N", help="How many ports to ask.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Show the nodes of a ZooKeeper on this machine.

    Fails unless all of them serve. Knows those that `moldau zookeeper start` and `moldau cluster
    start` have started in a folder (for a cluster: --data-dir moldau-cluster/zookeeper); others are
    asked by their --port.
    """
    from moldau.cli.output import Column, print_document, print_table
    from moldau.coordination.zookeeper_server import ZookeeperEnsemble, ask_server

    found = () if port is not None else ZookeeperEnsemble.find(data_dir).nodes
    first = DEFAULT_PORT if port is None else port
    if found:
        documents = [_describe(node.port, node.find_pid(), node.ask("srvr")) for node in found]
    else:
        ports = range(first, first + nodes)
        documents = [_describe(one, None, ask_server(one, "srvr")) for one in ports]
    if as_json:
        print_document(documents)
    else:
        columns = (
            Column("address"),
            Column("mode"),
            Column("pid", True),
            Column("connections", True),
            Column("znodes", True),
            Column("zxid", True),
        )
        names = ("address", "mode", "pid", "connections", "znodes", "zxid")
        rows = [tuple(_to_cell(row[name]) for name in names) for row in documents]
        print_table(columns, rows)
    if any(row["mode"] is None for row in documents):
        raise typer.Exit(1)


def _describe(port: int, pid: int | None, answer: str | None) -> dict[str, str | int | None]:
    from moldau.coordination.zookeeper_server import HOST

    facts: dict[str, str | int | None] = dict.fromkeys(_FACTS.values())
    for line in (answer or "").splitlines():
        name, _, value = line.partition(": ")
        if name in _FACTS:
            facts[_FACTS[name]] = int(value) if value.isdecimal() else value
    return {"address": f"{HOST}:{port}", "pid": pid, **facts}


def _to_cell(value: str | int | None) -> str:
    return "-" if value is None else str(value)
