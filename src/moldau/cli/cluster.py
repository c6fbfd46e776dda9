"""`moldau cluster`: how any cluster is, and several brokers on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.cluster_view import ClusterInfo, ClusterView, describe_info, look_at
from moldau.cli.doctor import count_of, print_findings
from moldau.cli.local_cluster import DEFAULT_FOLDER, MAX_BROKERS, ClusterPlan, open_cluster
from moldau.cli.options import CONFIG_VARIABLE, DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_pairs
from moldau.cli.output import Column, note, print_document, print_table
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import with_admin
from moldau.clock import SystemClock
from moldau.model import NO_BROKER
from moldau.ops.cluster_survey import SurveyReader, find_what_is_wrong

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moldau.client.admin.client import AsyncAdmin
    from moldau.client.rules.cluster_metadata import TopicMetadata
    from moldau.ops.rules.checks import ClusterSurvey


def info(
    show_apis: Annotated[
        bool, typer.Option("--apis", help="Show the versions of every API, too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show a cluster: its id, its brokers, what they speak, and how much is in it.

    Works with any cluster that speaks Kafka's protocol. Whether all is well says
    `moldau cluster health`.

    \b
    For example:
    moldau cluster info
    moldau cluster info --bootstrap kafka:9092 --json
    """
    found = with_admin(bootstrap, describe_info)
    if as_json:
        print_document(found.to_document())
    else:
        _print_info(found, show_apis=show_apis)


def _print_info(found: ClusterInfo, *, show_apis: bool) -> None:
    typer.secho(f"cluster {found.cluster.cluster_id or '(it tells no id)'}", bold=True)
    for name, text in found.summary():
        typer.echo(f"  {name:<12}{text}")
    typer.echo()
    columns = (
        Column("broker", True),
        Column("address"),
        *((Column("rack"),) if found.has_racks else ()),
        Column("leads", True),
        Column("replicas", True),
        Column("speaks"),
    )
    print_table(columns, found.broker_rows())
    if show_apis:
        typer.echo()
        titles = "API", *(f"broker {broker_id}" for broker_id in found.answering)
        print_table([Column(title) for title in titles], found.api_rows())


def health(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """Say whether a cluster serves all that it has; exits with 1 when it does not.

    Brokers that do not answer, no controller, partitions without a leader, with too few replicas in
    sync for acks=all, or with fewer copies than they should have, disks that failed or are full.
    Works with Apache Kafka, too. `moldau doctor` looks further, and takes longer.

    \b
    For example:
    moldau cluster health
    moldau cluster health --bootstrap kafka:9092 --json
    """
    survey = with_admin(bootstrap, _look)
    findings = find_what_is_wrong(survey)
    if as_json:
        print_document(
            {
                "healthy": not findings,
                "findings": [one.document() for one in findings],
                "unchecked": list(survey.unchecked),
            }
        )
    else:
        print_findings(findings, survey.unchecked)
        typer.echo(f"{'not ' if findings else ''}healthy: {count_of(survey)}")
    if findings:
        raise typer.Exit(1)


async def _look(admin: AsyncAdmin) -> ClusterSurvey:
    return await SurveyReader(admin, clock=SystemClock()).take_vital_signs()


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


def status(
    data_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="Where it was started."),
    ] = DEFAULT_FOLDER,
    internal: Annotated[
        bool, typer.Option("--internal", help="Show internal topics, too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the brokers, the controller and every partition of a cluster.

    Of each partition: its leader, its replicas, who is in sync and, where there are any, who is
    eligible to lead without being in sync and who had everything last. Fails unless all processes
    run and all brokers are in the cluster.
    """
    view = look_at(open_cluster(data_dir, ClusterPlan.require(data_dir)))
    if as_json:
        print_document(view.to_document(internal=internal))
    else:
        _print_status(view, view.shown_topics(internal=internal))
    if not view.is_whole:
        raise typer.Exit(1)


def _print_status(view: ClusterView, topics: Sequence[TopicMetadata]) -> None:
    if view.nodes:
        print_table(
            (Column("zookeeper"), Column("pid", True), Column("mode")),
            [(node.address, _or_dash(node.pid), node.mode or "stopped") for node in view.nodes],
        )
        typer.echo()
    print_table(
        (Column("broker", True), Column("address"), Column("pid", True), Column("state")),
        [
            (
                str(broker.id),
                broker.address,
                _or_dash(broker.pid),
                f"{broker.state}, controller" if broker.is_controller else broker.state,
            )
            for broker in view.brokers
        ],
    )
    if topics:
        typer.echo()
        _print_partitions(view, topics)
    typer.echo()
    if not any(broker.is_registered for broker in view.brokers):
        typer.echo("no broker answers, so nothing is known of topics")
        return
    typer.echo(
        f"under-replicated partitions: {view.count_under_replicated()}, "
        f"without a leader: {view.count_leaderless()}"
    )


def _print_partitions(view: ClusterView, topics: Sequence[TopicMetadata]) -> None:
    has_eligible = any(key.topic == topic.name for key in view.leaders for topic in topics)
    columns = (
        Column("topic"),
        Column("partition", True),
        Column("leader", True),
        Column("replicas"),
        Column("in sync"),
        *((Column("eligible"), Column("last known")) if has_eligible else ()),
    )

    def eligible(topic: str, partition: int) -> tuple[str, ...]:
        leaders = view.leaders_of(topic, partition)
        return (_numbers(leaders.eligible), _numbers(leaders.last_known)) if has_eligible else ()

    rows = [
        (
            topic.name,
            str(partition.index),
            _or_dash(None if partition.leader_id == NO_BROKER else partition.leader_id),
            _numbers(partition.replicas),
            _numbers(partition.in_sync_replicas),
            *eligible(topic.name, partition.index),
        )
        for topic in topics
        for partition in topic.partitions
    ]
    print_table(columns, rows)


def _numbers(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids)) or "-"


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def stop(
    data_dir: Annotated[
        Path,
        typer.Option(metavar="DIR", file_okay=False, help="Where it was started."),
    ] = DEFAULT_FOLDER,
) -> None:
    """Stop the brokers, one after the other, then ZooKeeper if there is one. The data stays."""
    cluster = open_cluster(data_dir, ClusterPlan.require(data_dir))
    if not cluster.stop(note):
        note(f"nothing was running in {data_dir}")
