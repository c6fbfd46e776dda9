"""`moldau doctor` and `moldau explain`: what is wrong, and why things are as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, argument, option
from moldau.cli.output import note, print_document
from moldau.cli.reporting import warnings_shown
from moldau.cli.session import command_settings, with_admin
from moldau.client.admin.client import AsyncAdmin
from moldau.client.cluster import ClusterClient
from moldau.clock import SystemClock
from moldau.model import TopicPartition
from moldau.ops.cluster_survey import SurveyReader
from moldau.ops.explanations import FactReader
from moldau.ops.formatting import plural
from moldau.ops.metrics_ports import MetricsPorts, find_ports
from moldau.ops.rules.checks import ClusterSurvey, Finding, Severity, find_all
from moldau.ops.rules.explanations import Explanation, explain_group, explain_topic
from moldau.ops.rules.partition_explanations import explain_partition, explain_record

_COLORS = {"critical": "red", "warning": "yellow", "info": "blue"}


def doctor(
    metrics: Annotated[
        list[str] | None,
        option(
            "URL",
            "Where brokers serve their metrics; repeat for more.",
            default="what the brokers' settings say",
        ),
    ] = None,
    watch: Annotated[
        float, option("SECONDS", "How long groups are watched for progress.", min=0)
    ] = 5.0,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Look at a cluster as an experienced operator would, and say what to do.

    Partitions and replicas, leaders, disks, clocks, addresses that clients cannot reach, groups
    that do not move, transactions that hang, settings that lose records. Works with Apache Kafka,
    too. Exits with 1 when something is critical.

    \b
    For example:
    moldau doctor
    moldau doctor --bootstrap kafka:9092 --json
    """
    if not as_json:
        note(f"looking at the cluster of {bootstrap} …")
    survey = with_admin(bootstrap, lambda admin: _read_survey(admin, metrics or (), watch))
    findings = find_all(survey)
    if as_json:
        print_document(
            {
                "findings": [one.document() for one in findings],
                "unchecked": list(survey.unchecked),
                "brokers": len(survey.brokers),
                "topics": len(survey.topics),
                "groups": len(survey.groups),
            }
        )
    else:
        _print_survey(findings, survey)
    if any(one.severity is Severity.CRITICAL for one in findings):
        raise typer.Exit(1)


async def _read_survey(admin: AsyncAdmin, urls: Sequence[str], seconds: float) -> ClusterSurvey:
    reader = SurveyReader(admin, clock=SystemClock(), metrics_urls=urls, group_seconds=seconds)
    return await reader.read_survey()


def print_findings(findings: Sequence[Finding], unchecked: Sequence[str]) -> None:
    for one in findings:
        mark = typer.style(one.severity.label.upper(), fg=_COLORS[one.severity.label], bold=True)
        typer.echo(f"{mark}  {one.subject}")
        typer.echo(f"  {one.message}")
        typer.echo(f"  do: {one.advice}\n")
    for text in unchecked:
        typer.echo(f"not checked: {text}")


def count_of(survey: ClusterSurvey) -> str:
    partitions = sum(len(topic.partitions) for topic in survey.topics.values())
    counted = ((len(survey.brokers), "broker"), (len(survey.topics), "topic"))
    return ", ".join(plural(*one) for one in (*counted, (partitions, "partition")))


def _print_survey(findings: Sequence[Finding], survey: ClusterSurvey) -> None:
    print_findings(findings, survey.unchecked)

    seen = f"{count_of(survey)}, {plural(len(survey.groups), 'group')}"
    found = plural(len(findings), "finding")
    well = "what could be checked is well" if survey.unchecked else "all is well"
    typer.echo(f"{found} in {seen}" if findings else f"{well}: {seen}")


# `moldau explain`


T = TypeVar("T")

Metrics = Annotated[
    list[str] | None,
    option(
        "URL",
        "Where brokers serve their metrics, for what they remember; repeat for more.",
        "--metrics",
        default="what the brokers' settings say",
    ),
]


def find_facts(
    bootstrap: str, urls: Sequence[str] | None, ask: Callable[[FactReader], Awaitable[T]]
) -> T:
    """Ask a cluster, with the metrics ports that are given or that it names."""

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


def show_explanation(explanation: Explanation, *, as_json: bool) -> None:
    if as_json:
        print_document(explanation.document())
        return
    typer.echo(typer.style(explanation.verdict, bold=True))
    for line in explanation.lines:
        typer.echo(line)


def explain_record_at(
    topic: Annotated[str, argument("TOPIC", "The topic.")],
    partition: Annotated[int, argument("PARTITION", "The partition.", min=0)],
    offset: Annotated[int, argument("OFFSET", "The offset.")],
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
    show_explanation(explain_record(facts), as_json=as_json)


def explain_one_partition(
    topic: Annotated[str, argument("TOPIC", "The topic.")],
    number: Annotated[int, argument("PARTITION", "The partition.", min=0)],
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """What holds the high watermark, readers of committed records, retention or cleaning back."""
    wanted = TopicPartition(topic, number)
    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_partition(wanted))
    show_explanation(explain_partition(facts), as_json=as_json)


def explain_one_group(
    name: Annotated[str, argument("GROUP", "The group.")],
    watch: Annotated[float, option("SECONDS", "How long it is watched for progress.", min=0)] = 3.0,
    metrics: Metrics = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """The last rebalances of a group with their causes, who holds what, and why lag grows."""
    facts = find_facts(bootstrap, metrics, lambda ask: ask.about_group(name, watch))
    show_explanation(explain_group(facts), as_json=as_json)


def explain_one_topic(
    name: Annotated[str, argument("TOPIC", "The topic.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """The options of a topic, where each comes from, and what they do together."""
    facts = find_facts(bootstrap, ("none",), lambda ask: ask.about_topic(name))
    show_explanation(explain_topic(facts), as_json=as_json)
