"""`moldau pipeline`: runs pipelines from topics to topics and lakes, on Spark."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.connection_options import security_options
from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson
from moldau.cli.output import Column, print_document, print_table
from moldau.cli.pipeline_display import (
    format_name,
    format_query,
    format_set_aside,
    run_beside,
    stopping,
    watching,
)

if TYPE_CHECKING:
    from moldau.spark.pipeline.model import Pipeline
    from moldau.spark.pipeline.progress_files import RunReport
    from moldau.spark.pipeline.status import PipelineStatus, QueryStatus


PipelineFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The pipeline file, TOML or YAML.")
]

PipelineBootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        envvar="MOLDAU_BOOTSTRAP",
        metavar="HOST:PORT,...",
        help="Brokers to ask first; goes before what the file says.",
        show_default=f"the file's, or {DEFAULT_BOOTSTRAP}",
    ),
]

Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where Spark runs: local[*], local-cluster[2,1,1024], spark://..., yarn, k8s://...",
    ),
]

DEFAULT_MASTER = "local[*]"


def load_with_security(file: Path) -> Pipeline:
    """What the file declares, with the security of --command-config or the profile."""
    from dataclasses import replace

    from moldau.spark.pipeline.file import load_pipeline

    return replace(load_pipeline(file), security=security_options())


def choose_bootstrap(given: str | None, of_file: str | None) -> str:
    return given or of_file or DEFAULT_BOOTSTRAP


def run(
    file: PipelineFile,
    master: Master = DEFAULT_MASTER,
    once: Annotated[bool, typer.Option("--once", help="Read what is there now, then end.")] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Show what Spark says, rather than keep it in the checkpoint."
        ),
    ] = False,
    bootstrap: PipelineBootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Run a pipeline, until Ctrl-C or until all is read (--once).

    Needs moldau[spark] and Java 17. Started again, it goes on where it was.
    """
    from moldau.spark.pipeline.checkpoint import Checkpoint
    from moldau.spark.pipeline.needs import require_spark

    pipeline = load_with_security(file)
    with stopping() as stop:
        require_spark()
        from moldau.spark.pipeline.run import RunOptions, report_given_up, run_pipeline

        options = RunOptions(
            bootstrap=choose_bootstrap(bootstrap, pipeline.bootstrap),
            master=master,
            once=once or pipeline.mode == "once",
            log_file=None if verbose else Checkpoint(Path(pipeline.checkpoint)).log_file,
        )
        started_ms = time.time_ns() // 1_000_000
        with watching(pipeline, options, stop) as display:
            ended = run_beside(
                lambda: run_pipeline(pipeline, options, stop=stop, watcher=display), stop
            )
        report = ended or report_given_up(pipeline, options, started_ms)
    if as_json:
        print_document(report.to_document())
    else:
        _print_run(report)


def _print_run(report: RunReport) -> None:
    typer.echo(f"{report.pipeline}: {report.state}")
    names = [format_name(query.name) for query in report.queries]
    width = max(map(len, names), default=0)
    for name, query in zip(names, report.queries, strict=True):
        typer.echo(f"  {name:<{width}}  {format_query(query)}")


def check(
    file: PipelineFile,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Also have Spark plan it: SQL, functions and columns. Reads no record."
        ),
    ] = False,
    bootstrap: PipelineBootstrap = None,
    as_json: AsJson = False,
) -> None:
    """Say what a pipeline file does, or what is wrong with it. Runs nothing."""
    pipeline = load_with_security(file)
    if plan:
        _plan(pipeline, choose_bootstrap(bootstrap, pipeline.bootstrap))
    if as_json:
        print_document(_to_document(pipeline, is_planned=plan))
    else:
        _print_check(pipeline, is_planned=plan)


def _print_check(pipeline: Pipeline, *, is_planned: bool) -> None:
    from moldau.spark.pipeline.rules.flow import describe_delivery, describe_flow

    rows: list[tuple[str, str]] = []
    for sink in pipeline.sinks:
        rows += [
            (sink.name, describe_flow(pipeline, sink)),
            ("", describe_delivery(pipeline, sink)),
        ]
    for source in pipeline.sources:
        if source.dead_letter is not None and source.may_be_faulty:
            rows.append(("dead letters", f"{source.name} -> {source.dead_letter}"))
        if source.watermark is not None:
            goes = f"-> {source.dead_letter}" if source.late == "dead_letter" else "are dropped"
            rows.append(("late records", f"{source.name} {goes}, and counted"))
    rows.append(("checkpoint", pipeline.checkpoint))
    typer.secho(pipeline.name, bold=True)
    for name, what in rows:
        typer.echo(f"  {name:<16}{what}")
    if not is_planned:
        typer.echo("SQL, functions and columns were not checked: --plan has Spark check them.")


def _plan(pipeline: Pipeline, bootstrap: str) -> None:
    from moldau.spark.pipeline.needs import require_spark

    require_spark()
    import shutil
    import tempfile
    import threading

    from moldau.spark.pipeline.run import RunOptions, open_session, plan
    from moldau.spark.session_factory import stop_quietly

    log_folder = Path(tempfile.mkdtemp(prefix="moldau-check-"))
    options = RunOptions(
        bootstrap=bootstrap,
        master=DEFAULT_MASTER,
        once=True,
        log_file=log_folder / "spark.log",
    )

    def plan_it() -> None:
        spark = open_session(pipeline, options)
        try:
            plan(spark, pipeline, options)
        finally:
            stop_quietly(spark)
            shutil.rmtree(log_folder)  # where Spark did not start, it is kept: it says why

    try:
        run_beside(plan_it, threading.Event())
    except KeyboardInterrupt:
        shutil.rmtree(log_folder, ignore_errors=True)
        raise


def _to_document(pipeline: Pipeline, *, is_planned: bool) -> dict[str, object]:
    from dataclasses import asdict

    from moldau.spark.pipeline.rules.flow import describe_delivery, describe_flow

    flows = {sink.name: describe_flow(pipeline, sink) for sink in pipeline.sinks}
    delivery = {sink.name: describe_delivery(pipeline, sink) for sink in pipeline.sinks}
    document = asdict(pipeline)
    del document["security"]  # it is not the file's, and has passwords
    return {**document, "flows": flows, "delivery": delivery, "planned": is_planned}


def status(
    file: PipelineFile, bootstrap: PipelineBootstrap = None, as_json: AsJson = False
) -> None:
    """Show whether a pipeline runs, and how far it is behind.

    Reads its checkpoint and asks the brokers; needs no Spark.
    """
    from moldau.spark.pipeline.status import read_status

    pipeline = load_with_security(file)
    found = read_status(pipeline, choose_bootstrap(bootstrap, pipeline.bootstrap))
    if as_json:
        print_document(found.to_document())
    else:
        _print_status(found)


def _print_status(found: PipelineStatus) -> None:
    typer.secho(found.pipeline, bold=True)
    running = f"running in process {found.runner}" if found.runner is not None else "not running"
    typer.echo(f"  {'state':<11}{running}")
    if found.report is not None:
        typer.echo(f"  {'last run':<11}{_format_report(found)}")
    for query in found.queries:
        typer.echo()
        _print_query(query, _find_delivery(found, query.name))


def _format_report(found: PipelineStatus) -> str:
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
