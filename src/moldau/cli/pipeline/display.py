"""Shows a running pipeline on a terminal: a line for each query; nothing where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from moldau.spark.pipeline.model import Pipeline
    from moldau.spark.pipeline.progress_files import RunReport
    from moldau.spark.pipeline.run import RunOptions

Show = Callable[["RunReport"], None]


@contextmanager
def watching(pipeline: Pipeline, options: RunOptions) -> Iterator[Show]:
    """What to call with every report while the pipeline runs."""
    if not sys.stderr.isatty():
        yield _show_nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    totals = _count_waiting(pipeline, options) if options.once else {}
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        names = [sink.name for sink in pipeline.sinks]
        starting = "Spark is starting"
        lines = {
            name: bars.add_task(name, total=totals.get(name), figures=starting) for name in names
        }

        def show(report: RunReport) -> None:
            for query in report.queries:
                if query.name not in lines:
                    lines[query.name] = bars.add_task(query.name, total=None, figures="")
                figures = f"{query.input_rows:,} records, {query.rows_per_second:,.0f}/s"
                bars.update(lines[query.name], completed=query.input_rows, figures=figures)

        yield show


def _show_nothing(report: RunReport) -> None:
    """Nobody looks."""


def _count_waiting(pipeline: Pipeline, options: RunOptions) -> dict[str, int]:
    """How many records each query has before it."""
    from moldau.spark.pipeline.status import read_status

    return {query.name: query.lag for query in read_status(pipeline, options.bootstrap).queries}
