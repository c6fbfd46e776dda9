"""`moldau pipeline check`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.pipeline.options import (
    DEFAULT_MASTER,
    PipelineBootstrap,
    PipelineFile,
    choose_bootstrap,
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
    from moldau.spark.pipeline.file import load_pipeline

    pipeline = load_pipeline(file)
    if plan:
        _plan(pipeline, choose_bootstrap(bootstrap, pipeline.bootstrap))
    if as_json:
        print_document(_to_document(pipeline))
        return
    typer.secho(pipeline.name, bold=True)
    for sink in pipeline.sinks:
        typer.echo(f"  {sink.name:<16}{pipeline.describe(sink)}")
    for source in pipeline.sources:
        if source.dead_letter is not None:
            typer.echo(f"  {'dead letters':<16}{source.name} -> {source.dead_letter}")
    typer.echo(f"  {'checkpoint':<16}{pipeline.checkpoint}")


def _plan(pipeline: Pipeline, bootstrap: str) -> None:
    from moldau.spark.pipeline.needs import require_spark

    require_spark()
    import shutil
    import tempfile

    from moldau.spark.pipeline.run import RunOptions, open_session, plan

    log_folder = Path(tempfile.mkdtemp(prefix="moldau-check-"))
    options = RunOptions(
        bootstrap=bootstrap,
        master=DEFAULT_MASTER,
        once=True,
        log_file=log_folder / "spark.log",
    )
    spark = open_session(pipeline, options)
    try:
        plan(spark, pipeline, options)
    finally:
        spark.stop()
        shutil.rmtree(log_folder)  # where Spark did not start, it is kept: it says why


def _to_document(pipeline: Pipeline) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(pipeline)
