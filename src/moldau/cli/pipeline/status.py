"""`moldau pipeline status`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from moldau.cli.options import AsJson
from moldau.cli.pipeline.options import (
    PipelineBootstrap,
    PipelineFile,
    choose_bootstrap,
    load_with_security,
)

if TYPE_CHECKING:
    from moldau.spark.pipeline.status import PipelineStatus, QueryStatus


def status(
    file: PipelineFile, bootstrap: PipelineBootstrap = None, as_json: AsJson = False
) -> None:
    """Show whether a pipeline runs, and how far it is behind.

    Reads its checkpoint and asks the brokers; needs no Spark.
    """
    from moldau.cli.output import print_document
    from moldau.spark.pipeline.status import read_status

    pipeline = load_with_security(file)
    found = read_status(pipeline, choose_bootstrap(bootstrap, pipeline.bootstrap))
    if as_json:
        print_document(found.to_document())
    else:
        _print(found)


def _print(found: PipelineStatus) -> None:
    typer.secho(found.pipeline, bold=True)
    running = f"running in process {found.runner}" if found.runner is not None else "not running"
    typer.echo(f"  {'state':<11}{running}")
    if found.report is not None:
        typer.echo(f"  {'last run':<11}{_format_report(found)}")
    for query in found.queries:
        typer.echo()
        _print_query(query, _find_delivery(found, query.name))


def _format_report(found: PipelineStatus) -> str:
    from datetime import UTC, datetime

    report = found.report
    if report is None:
        return "none"
    at = datetime.fromtimestamp(report.updated_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    # A run that was killed could not say so: whoever holds the lock tells the truth.
    is_gone = report.state == "running" and found.runner is None
    state = "killed" if is_gone else report.state
    return f"{state}, {at}" + (f": {report.error}" if report.error else "")


def _find_delivery(found: PipelineStatus, name: str) -> str:
    """How the last run wrote the rows of a query."""
    queries = () if found.report is None else found.report.queries
    delivery = next((one.delivery for one in queries if one.name == name), None)
    return "" if delivery is None else f", written {delivery}"


def _print_query(query: QueryStatus, delivery: str) -> None:
    from moldau.cli.output import Column, print_table
    from moldau.cli.pipeline.display import format_set_aside

    typer.echo(f"  {query.name}, {query.lag:,} records behind{delivery}")
    if query.set_aside:
        typer.echo(f"    {format_set_aside(query.set_aside)}")
    columns = (
        Column("topic"),
        Column("partition", True),
        Column("position", True),
        Column("end", True),
        Column("lag", True),
    )
    rows = [
        (
            one.topic,
            str(one.partition),
            "-" if one.position is None else str(one.position),
            str(one.end_offset),
            str(one.lag),
        )
        for one in query.partitions
    ]
    print_table(columns, rows, indent=4)
