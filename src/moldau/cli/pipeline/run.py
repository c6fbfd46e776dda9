"""`moldau pipeline run`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.pipeline.interruption import run_beside, stopping
from moldau.cli.pipeline.options import (
    DEFAULT_MASTER,
    Master,
    PipelineBootstrap,
    PipelineFile,
    choose_bootstrap,
    load_with_security,
)

if TYPE_CHECKING:
    from moldau.spark.pipeline.progress_files import RunReport


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
    from moldau.cli.output import print_document
    from moldau.cli.pipeline.display import watching
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
        _print(report)


def _print(report: RunReport) -> None:
    from moldau.cli.pipeline.display import format_name, format_query

    typer.echo(f"{report.pipeline}: {report.state}")
    names = [format_name(query.name) for query in report.queries]
    width = max(map(len, names), default=0)
    for name, query in zip(names, report.queries, strict=True):
        typer.echo(f"  {name:<{width}}  {format_query(query)}")
