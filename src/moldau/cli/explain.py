"""`moldau explain`: why things are as they are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.output import print_document
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import command_settings
from moldau.client.admin import AsyncAdmin
from moldau.client.cluster_client import ClusterClient
from moldau.clock import SystemClock
from moldau.model import TopicPartition
from moldau.ops.explanations import FactReader
from moldau.ops.metrics_ports import MetricsPorts, find_ports
from moldau.ops.rules.explanations import explain_group, explain_topic
from moldau.ops.rules.partition_explanations import explain_partition, explain_record

if TYPE_CHECKING:
    from moldau.ops.rules.explanations import Explanation


T = TypeVar("T")

Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="URL",
        help="Where brokers serve their metrics, for what they remember; repeat for more.",
        show_default="what the brokers' settings say",
    ),
]


def find_facts(
    bootstrap: str, urls: Sequence[str] | None, ask: Callable[[FactReader], Awaitable[T]]
) -> T:
    """Ask a cluster, with the metrics ports that are given or that it names."""
    import asyncio

    async def session() -> T:
        async with AsyncAdmin(bootstrap, command_settings()) as admin:
            client = ClusterClient(bootstrap, command_settings())
            try:
                ports = MetricsPorts(urls) if urls else await find_ports(admin)
                return await ask(FactReader(client, admin, SystemClock(), ports))
            finally:
                await client.close()

    with warnings_shown():
        return asyncio.run(session())


def show(explanation: Explanation, *, as_json: bool) -> None:
    if as_json:
        print_document(explanation.document())
        return
    typer.echo(typer.style(explanation.verdict, bold=True))
    for line in explanation.lines:
        typer.echo(line)


def record(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition.")],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", help="The offset.")],
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Is a record here, if not why, and until when.

    Retention, compaction by a later record, DeleteRecords, an aborted transaction, not committed,
    never written. Which of them it was that deleted a record, brokers with --metrics remember.
    """
    wanted = TopicPartition(topic, partition)
    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_record(wanted, offset))
    show(explain_record(facts), as_json=as_json)


def partition(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    number: Annotated[int, typer.Argument(metavar="PARTITION", min=0, help="The partition.")],
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """What holds the high watermark, readers of committed records, retention or cleaning back."""
    wanted = TopicPartition(topic, number)
    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_partition(wanted))
    show(explain_partition(facts), as_json=as_json)


def group(
    name: Annotated[str, typer.Argument(metavar="GROUP", help="The group.")],
    watch: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long it is watched for progress.")
    ] = 3.0,
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """The last rebalances of a group with their causes, who holds what, and why lag grows."""
    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_group(name, watch))
    show(explain_group(facts), as_json=as_json)


def topic(
    name: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """The options of a topic, where each comes from, and what they do together."""
    facts = find_facts(bootstrap, ("none",), lambda ask: ask.about_topic(name))
    show(explain_topic(facts), as_json=as_json)
