"""The options of `moldau start`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import flag, option


def start(
    config: Annotated[
        Path | None,
        option(
            "FILE",
            "A server.properties with Kafka's names.",
            default="none",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        option("DIR", "Where the logs are kept.", default="./moldau-data", file_okay=False),
    ] = None,
    listen: Annotated[
        str | None, option("HOST:PORT", "Where to serve.", default="127.0.0.1:9092")
    ] = None,
    brokers: Annotated[
        str | None,
        option(
            "N|auto",
            "How many brokers, on ports that count on; auto: one for each core, up to 8.",
            default="1",
        ),
    ] = None,
    broker_id: Annotated[
        int | None, option("N", "The broker's number.", default="1", min=0)
    ] = None,
    zookeeper: Annotated[
        str | None,
        option(
            "HOST:PORT,...",
            "The ZooKeeper of the cluster to join; a /path at the end names one of several.",
            default="none: a broker alone",
        ),
    ] = None,
    adopt_topics: Annotated[
        bool,
        flag(
            "--adopt-topics",
            "With an empty ZooKeeper: make topics of the logs that are in the data folder.",
        ),
    ] = False,
    metrics: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "Serve /metrics (Prometheus), /healthz and /readyz there; a port alone means "
            "this machine only. With --brokers the ports count on.",
            default="none",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        flag(
            "--insecure", "Let other machines connect without TLS and without saying who they are."
        ),
    ] = False,
    to_set: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Any option of server.properties; repeat for more.", "--set"),
    ] = None,
    console: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "Serve the web console there, in a process of its own.",
            default="127.0.0.1:8092, on a terminal",
        ),
    ] = None,
    no_console: Annotated[bool, flag("--no-console", "Do not start the web console.")] = False,
) -> None:
    """Run a broker until it is told to stop (Ctrl-C or SIGTERM).

    Flags come before --set, --set before the file. Prints a line, `listening on HOST:PORT`, when
    requests are answered, and with --metrics a second one. Warnings go to standard error;
    -v shows more, --log-format json is for those who collect them.

    With --brokers, several processes share the work of one machine, without ZooKeeper: a cluster
    with one store, in the data folder of the first. A broker that dies is started again. A topic
    needs several partitions, or several topics are needed, for all of them to have work.

    On a terminal the web console is started beside, if moldau[console] is installed; elsewhere
    when --console asks for it.

    \b
    For example:
    moldau start
    moldau start --brokers auto --data-dir /srv/moldau
    """
    if console is not None and no_console:
        raise typer.BadParameter("choose one of --console and --no-console")
    from moldau.cli.start_run import run_start

    run_start(
        config=config,
        data_dir=data_dir,
        listen=listen,
        brokers=brokers,
        broker_id=broker_id,
        zookeeper=zookeeper,
        adopt_topics=adopt_topics,
        metrics=metrics,
        insecure=insecure,
        to_set=to_set,
        console=console,
        no_console=no_console,
    )
