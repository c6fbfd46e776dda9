"""`moldau cluster status`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.cluster.plan import DEFAULT_FOLDER
from moldau.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Sequence

    from moldau.cli.cluster.view import ClusterView
    from moldau.client.rules.cluster_metadata import TopicMetadata


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
    from moldau.cli.cluster.local_cluster import open_cluster
    from moldau.cli.cluster.plan import ClusterPlan
    from moldau.cli.cluster.view import look_at
    from moldau.cli.output import print_document

    view = look_at(open_cluster(data_dir, ClusterPlan.require(data_dir)))
    if as_json:
        print_document(view.to_document(internal=internal))
    else:
        _print(view, view.shown_topics(internal=internal))
    if not view.is_whole:
        raise typer.Exit(1)


def _print(view: ClusterView, topics: Sequence[TopicMetadata]) -> None:
    from moldau.cli.output import Column, print_table

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
    from moldau.cli.output import Column, print_table
    from moldau.model.protocol_numbers import NO_BROKER

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
