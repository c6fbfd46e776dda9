"""`moldau doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.output import note, print_document

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.ops.rules.checks import ClusterSurvey, Finding

_COLORS = {"critical": "red", "warning": "yellow", "info": "blue"}


def doctor(
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Where brokers serve their metrics; repeat for more.",
            show_default="what the brokers' settings say",
        ),
    ] = None,
    watch: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long groups are watched for progress."),
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
    from moldau.cli.session import with_admin
    from moldau.ops.cluster_survey import find_all
    from moldau.ops.rules.checks import Severity

    if not as_json:
        note(f"looking at the cluster of {bootstrap} …")
    survey = with_admin(bootstrap, lambda admin: _look(admin, metrics or (), watch))
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
        _print(findings, survey)
    if any(one.severity is Severity.CRITICAL for one in findings):
        raise typer.Exit(1)


async def _look(admin: AsyncAdmin, urls: Sequence[str], seconds: float) -> ClusterSurvey:
    from moldau.clock import SystemClock
    from moldau.ops.cluster_survey import SurveyReader

    look = SurveyReader(admin, clock=SystemClock(), metrics_urls=urls, group_seconds=seconds)
    return await look.take()


def print_findings(findings: Sequence[Finding], unchecked: Sequence[str]) -> None:
    for one in findings:
        mark = typer.style(one.severity.label.upper(), fg=_COLORS[one.severity.label], bold=True)
        typer.echo(f"{mark}  {one.subject}")
        typer.echo(f"  {one.message}")
        typer.echo(f"  do: {one.advice}\n")
    for text in unchecked:
        typer.echo(f"not checked: {text}")


def count_of(survey: ClusterSurvey) -> str:
    from moldau.ops.formatting import plural

    partitions = sum(len(topic.partitions) for topic in survey.topics.values())
    counted = ((len(survey.brokers), "broker"), (len(survey.topics), "topic"))
    return ", ".join(plural(*one) for one in (*counted, (partitions, "partition")))


def _print(findings: Sequence[Finding], survey: ClusterSurvey) -> None:
    print_findings(findings, survey.unchecked)
    from moldau.ops.formatting import plural

    seen = f"{count_of(survey)}, {plural(len(survey.groups), 'group')}"
    found = plural(len(findings), "finding")
    well = "what could be checked is well" if survey.unchecked else "all is well"
    typer.echo(f"{found} in {seen}" if findings else f"{well}: {seen}")
