"""`moldau pipeline check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.pipeline.interruption import run_beside
from moldau.cli.pipeline.options import (
    DEFAULT_MASTER,
    PipelineBootstrap,
    PipelineFile,
    choose_bootstrap,
    load_with_security,
)

if TYPE_CHECKING:
    from moldau.spark.pipeline.model import Pipeline


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
    from moldau.cli.output import print_document

    pipeline = load_with_security(file)
    if plan:
        _plan(pipeline, choose_bootstrap(bootstrap, pipeline.bootstrap))
    if as_json:
        print_document(_to_document(pipeline, is_planned=plan))
    else:
        _print(pipeline, is_planned=plan)


def _print(pipeline: Pipeline, *, is_planned: bool) -> None:
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
