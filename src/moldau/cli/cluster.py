"""`moldau cluster`: how any cluster is, and several brokers on this machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.doctor import count_of, print_findings
from moldau.cli.local_cluster import (
    DEFAULT_FOLDER,
    MAX_BROKERS,
    ClusterPlan,
    LocalCluster,
    open_cluster,
)
from moldau.cli.options import (
    CONFIG_VARIABLE,
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    flag,
    option,
    parse_pairs,
    use_command_config,
)
from moldau.cli.output import note, print_document, print_table
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.client.admin.values import ClusterDescription, EligibleLeaders
from moldau.client.rules.cluster_metadata import PartitionMetadata, TopicMetadata
from moldau.clock import SystemClock
from moldau.errors import MoldauError
from moldau.model import NO_BROKER, TopicPartition
from moldau.ops.cluster_survey import SurveyReader
from moldau.ops.cluster_view import ClusterInfo, cluster_health, describe_info, is_offline
from moldau.ops.rules.checks import ClusterSurvey, find_what_is_wrong


def info(
    show_apis: Annotated[bool, flag("--apis", "Show the versions of every API, too.")] = False,
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
        ">broker",
        "address",
        *(("rack",) if found.has_racks else ()),
        ">leads",
        ">replicas",
        "speaks",
    )
    print_table(columns, found.broker_rows())
    if show_apis:
        typer.echo()
        titles = "API", *(f"broker {broker_id}" for broker_id in found.answering)
        print_table(titles, found.api_rows())


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
    survey = with_admin(bootstrap, _read_vital_signs)
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


async def _read_vital_signs(admin: AsyncAdmin) -> ClusterSurvey:
    return await SurveyReader(admin, clock=SystemClock()).read_vital_signs()


def start(
    brokers: Annotated[
        int | None,
        option("N", "How many brokers.", default="3, or as before", min=1, max=MAX_BROKERS),
    ] = None,
    data_dir: Annotated[
        Path, option("DIR", "Where everything is kept.", file_okay=False)
    ] = DEFAULT_FOLDER,
    base_port: Annotated[
        int | None,
        option(
            "P",
            "Of the first broker; the others count on.",
            default="9092, or as before",
            min=1,
            max=60_000,
        ),
    ] = None,
    zookeeper: Annotated[
        bool,
        flag(
            "--zookeeper", "Join the brokers by a real ZooKeeper, 100 ports above; it needs Java."
        ),
    ] = False,
    zookeeper_nodes: Annotated[
        int | None,
        option(
            "N",
            "With --zookeeper: 1, or 3 to survive the loss of one.",
            default="1, or as before",
            min=1,
            max=9,
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        option(
            "HOST:PORT",
            "Serve /metrics (Prometheus), /healthz and /readyz of the first broker there; "
            "the others count on.",
            default="none",
        ),
    ] = None,
    secure: Annotated[
        Path | None,
        option(
            "DIR",
            "Secure brokers, and ZooKeeper, with what `moldau secure init` made there.",
            default="none, or as before",
            file_okay=False,
        ),
    ] = None,
    log_dir: Annotated[
        Path | None,
        option(
            "DIR",
            "Folder for the log of the brokers. On another disk than the data, the log can be "
            "written when the data disk is full.",
            default="that of --data-dir, or as before",
            file_okay=False,
        ),
    ] = None,
    to_set: Annotated[
        list[str] | None,
        option("KEY=VALUE", "Any option of the brokers; repeat for more.", "--set"),
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
        Path, option("DIR", "Where it was started.", file_okay=False)
    ] = DEFAULT_FOLDER,
    internal: Annotated[bool, flag("--internal", "Show internal topics, too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the brokers, the controller and every partition of a cluster.

    Of each partition: its leader, its replicas, who is in sync and, where there are any, who is
    eligible to lead without being in sync and who had everything last. Fails unless all processes
    run and all brokers are in the cluster.
    """
    view = read_local_cluster(open_cluster(data_dir, ClusterPlan.require(data_dir)))
    if as_json:
        print_document(view.to_document(internal=internal))
    else:
        _print_status(view, view.shown_topics(internal=internal))
    if not view.is_whole:
        raise typer.Exit(1)


def _print_status(view: LocalClusterView, topics: Sequence[TopicMetadata]) -> None:
    if view.nodes:
        print_table(
            ("zookeeper", ">pid", "mode"),
            [(node.address, _or_dash(node.pid), node.mode or "stopped") for node in view.nodes],
        )
        typer.echo()
    print_table(
        (">broker", "address", ">pid", "state"),
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
    health = cluster_health(view.topics)
    typer.echo(
        f"under-replicated partitions: {health.under_replicated}, "
        f"without a leader: {health.offline}"
    )


def _print_partitions(view: LocalClusterView, topics: Sequence[TopicMetadata]) -> None:
    has_eligible = any(key.topic == topic.name for key in view.leaders for topic in topics)
    columns = (
        "topic",
        ">partition",
        ">leader",
        "replicas",
        "in sync",
        *(("eligible", "last known") if has_eligible else ()),
    )

    def eligible(topic: str, partition: int) -> tuple[str, ...]:
        leaders = view.leaders_of(topic, partition)
        return (_numbers(leaders.eligible), _numbers(leaders.last_known)) if has_eligible else ()

    rows = [
        (
            topic.name,
            str(partition.index),
            _or_dash(None if is_offline(partition) else partition.leader_id),
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


# What `status` shows: processes, and what the brokers answer


_NOBODY_ELSE = EligibleLeaders()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    address: str
    pid: int | None
    mode: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerView:
    id: int
    address: str
    pid: int | None
    is_registered: bool
    is_controller: bool

    @property
    def state(self) -> str:
        if self.pid is None:
            return "stopped"
        return "in the cluster" if self.is_registered else "not in the cluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterView:
    """What `moldau cluster status` shows."""

    nodes: Sequence[NodeView]
    brokers: Sequence[BrokerView]
    topics: Sequence[TopicMetadata]
    leaders: Mapping[TopicPartition, EligibleLeaders] = field(default_factory=dict)
    """Who may lead beside those in sync, of the partitions that have such replicas."""

    @property
    def controller_id(self) -> int | None:
        return next((broker.id for broker in self.brokers if broker.is_controller), None)

    @property
    def is_whole(self) -> bool:
        serving = all(node.mode is not None for node in self.nodes)
        return serving and all(broker.pid and broker.is_registered for broker in self.brokers)

    def to_document(self, *, internal: bool) -> dict[str, object]:
        health = cluster_health(self.topics)
        return {
            "zookeeper": [
                {"address": node.address, "pid": node.pid, "mode": node.mode} for node in self.nodes
            ],
            "brokers": [
                {
                    "id": broker.id,
                    "address": broker.address,
                    "pid": broker.pid,
                    "registered": broker.is_registered,
                    "controller": broker.is_controller,
                }
                for broker in self.brokers
            ],
            "controller": self.controller_id,
            "topics": [
                {
                    "topic": topic.name,
                    "partitions": [
                        _to_document(partition, self.leaders_of(topic.name, partition.index))
                        for partition in topic.partitions
                    ],
                }
                for topic in self.shown_topics(internal=internal)
            ],
            "under_replicated": health.under_replicated,
            "leaderless": health.offline,
        }

    def leaders_of(self, topic: str, partition: int) -> EligibleLeaders:
        return self.leaders.get(TopicPartition(topic, partition), _NOBODY_ELSE)

    def shown_topics(self, *, internal: bool) -> list[TopicMetadata]:
        return [topic for topic in self.topics if internal or not topic.is_internal]


def read_local_cluster(cluster: LocalCluster) -> LocalClusterView:
    secured = cluster.plan.secure_folder
    if secured is not None:
        use_command_config(secured.client_properties)
    description, topics, leaders = _ask_brokers(cluster)
    registered = {broker.id for broker in description.brokers} if description else set()
    controller_id = description.controller_id if description else NO_BROKER
    return LocalClusterView(
        nodes=[
            NodeView(address=node.address, pid=node.find_pid(), mode=node.mode())
            for node in cluster.zookeeper.nodes
        ],
        brokers=[
            BrokerView(
                id=broker.id,
                address=broker.address,
                pid=broker.process.find_pid(),
                is_registered=broker.id in registered,
                is_controller=broker.id == controller_id,
            )
            for broker in cluster.brokers
        ],
        topics=topics,
        leaders=leaders,
    )


_Answers = tuple[
    ClusterDescription | None, Sequence[TopicMetadata], Mapping[TopicPartition, EligibleLeaders]
]


def _ask_brokers(cluster: LocalCluster) -> _Answers:
    """Nothing when nobody answers: the processes are shown all the same."""
    running = ",".join(broker.address for broker in cluster.brokers if broker.process.is_running)
    if not running:
        return None, (), {}

    async def ask(admin: AsyncAdmin) -> _Answers:
        description = await admin.describe_cluster()
        topics = await admin.list_topics()
        leaders = await admin.describe_eligible_leaders(topics) if topics else {}
        some = {key: each for key, each in leaders.items() if each != _NOBODY_ELSE}
        return description, [topics[name] for name in sorted(topics)], some

    try:
        return with_admin(running, ask)
    except MoldauError:
        return None, (), {}


def _to_document(partition: PartitionMetadata, leaders: EligibleLeaders) -> dict[str, object]:
    return {
        "partition": partition.index,
        "leader": None if is_offline(partition) else partition.leader_id,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.in_sync_replicas),
        "eligible_leader_replicas": list(leaders.eligible),
        "last_known_eligible_replicas": list(leaders.last_known),
    }


def stop(
    data_dir: Annotated[
        Path, option("DIR", "Where it was started.", file_okay=False)
    ] = DEFAULT_FOLDER,
) -> None:
    """Stop the brokers, one after the other, then ZooKeeper if there is one. The data stays."""
    cluster = open_cluster(data_dir, ClusterPlan.require(data_dir))
    if not cluster.stop(note):
        note(f"nothing was running in {data_dir}")
