"""`moldau cluster start`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.cluster.plan import DEFAULT_FOLDER, MAX_BROKERS

if TYPE_CHECKING:
    from moldau.cli.cluster.plan import ClusterPlan


def start(
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_BROKERS,
            metavar="N",
            help="How many brokers.",
            show_default="3, or as before",
        ),
    ] = None,
    data_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="Where everything is kept."),
    ] = DEFAULT_FOLDER,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=60_000,
            metavar="P",
            help="Of the first broker; the others count on.",
            show_default="9092, or as before",
        ),
    ] = None,
    zookeeper: Annotated[
        bool,
        typer.Option(
            "--zookeeper",
            help="Join the brokers by a real ZooKeeper, 100 ports above; it needs Java.",
        ),
    ] = False,
    zookeeper_nodes: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=9,
            metavar="N",
            help="With --zookeeper: 1, or 3 to survive the loss of one.",
            show_default="1, or as before",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics (Prometheus), /healthz and /readyz of the first broker there; "
            "the others count on.",
            show_default="none",
        ),
    ] = None,
    secure: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Secure brokers, and ZooKeeper, with what `moldau secure init` made there.",
            show_default="none, or as before",
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            file_okay=False,
            help="Folder for the log of the brokers. On another disk than the data, the log can be "
            "written when the data disk is full.",
            show_default="that of --data-dir, or as before",
        ),
    ] = None,
    to_set: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any option of the brokers; repeat for more."
        ),
    ] = None,
) -> None:
    """Start several brokers on this machine, in the background.

    Returns when every broker serves. Topics get three replicas, of which two must have a record
    before it is acknowledged (acks=all), as far as there are brokers; --set says otherwise. Brokers
    that die are started again (they run under `moldau start --brokers`). In a folder where a
    cluster was stopped, it goes on; with more --brokers than before, it grows.

    With --zookeeper it is built as one of several machines is: a real ZooKeeper, and brokers that
    nobody looks after; what is missing is started again. ZooKeeper needs Java 17 and moldau[spark].

    \b
    For example:
    moldau cluster start --brokers 3
    moldau cluster start --brokers 3 --zookeeper
    moldau cluster start --secure moldau-secure
    moldau cluster start --set log.retention.hours=24 --data-dir /srv/moldau
    """
    from moldau.cli.cluster.local_cluster import open_cluster
    from moldau.cli.cluster.plan import ClusterPlan
    from moldau.cli.connection_options import CONFIG_VARIABLE
    from moldau.cli.log_lines import warnings_shown
    from moldau.cli.options import parse_pairs
    from moldau.cli.output import note

    parse_pairs(to_set or (), "--set")
    plan = ClusterPlan.choose(
        data_dir,
        brokers=brokers,
        base_port=base_port,
        zookeeper_nodes=zookeeper_nodes,
        with_zookeeper=zookeeper,
        secure=secure,
        log_dir=log_dir,
    )
    if plan.secure_folder is not None:
        plan.secure_folder.require()
    cluster = open_cluster(data_dir, plan)
    settings = [*_replication_settings(plan), *(to_set or ())]
    if metrics is not None:
        settings.append(f"metrics.listener={metrics}")
    with warnings_shown():
        cluster.start(settings, note)
    typer.echo(f"listening on {cluster.bootstrap}")
    if cluster.zookeeper_connect:
        typer.echo(f"zookeeper    {cluster.zookeeper_connect}")
    # The commands ask 127.0.0.1:9092 by default: one broker, and it may be the one that is killed.
    typer.echo(f"export MOLDAU_BOOTSTRAP={cluster.bootstrap}")
    if plan.secure_folder is not None:
        typer.echo(f"export {CONFIG_VARIABLE}={plan.secure_folder.client_properties}")


def _replication_settings(plan: ClusterPlan) -> list[str]:
    replicas = min(3, plan.brokers)
    in_sync = min(2, plan.brokers) if plan.brokers > 2 else 1  # of two, one may be away
    return [
        f"default.replication.factor={replicas}",
        f"min.insync.replicas={in_sync}",
        f"offsets.topic.replication.factor={replicas}",
        f"transaction.state.log.replication.factor={replicas}",
        f"transaction.state.log.min.isr={in_sync}",
        "zookeeper.session.timeout.ms=6000",
    ]
