"""The pipelines that a console shows.

The console does not know pipelines, and pipelines do not know the console; this introduces them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from moldau.cli.options import DEFAULT_BOOTSTRAP
from moldau.cli.pipeline.display import format_set_aside
from moldau.cli.pipeline.options import load_with_security
from moldau.console.rules.pipeline_rows import PipelineQueryView, PipelineView
from moldau.console.settings import PipelineStatuses
from moldau.errors import MoldauError
from moldau.spark.pipeline.status import PipelineStatus, read_status


def pipeline_statuses(files: Sequence[Path], bootstrap: str) -> PipelineStatuses:
    """The files are read now, so that a wrong one is told at once; their pipelines each time."""
    pipelines = [(file, load_with_security(file)) for file in files]

    def look() -> Sequence[PipelineView]:
        views = []
        for file, pipeline in pipelines:
            try:
                asked = bootstrap if bootstrap != DEFAULT_BOOTSTRAP else pipeline.bootstrap
                views.append(_to_view(file, read_status(pipeline, asked or bootstrap)))
            except (MoldauError, OSError) as error:
                views.append(
                    PipelineView(
                        name=pipeline.name, file=str(file), state="unknown", failure=str(error)
                    )
                )
        return views

    return look


def _to_view(file: Path, status: PipelineStatus) -> PipelineView:
    is_running = status.runner is not None
    return PipelineView(
        name=status.pipeline,
        file=str(file),
        state=f"running in process {status.runner}" if is_running else "not running",
        is_running=is_running,
        last_run=_last_run(status),
        queries=tuple(
            PipelineQueryView(
                name=query.name,
                lag=query.lag,
                set_aside=format_set_aside(query.set_aside) if query.set_aside else "",
            )
            for query in status.queries
        ),
    )


def _last_run(status: PipelineStatus) -> str:
    report = status.report
    if report is None:
        return ""
    at = datetime.fromtimestamp(report.updated_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    # A run that was killed could not say so: whoever holds the lock tells the truth.
    state = "killed" if report.state == "running" and status.runner is None else report.state
    return f"{state}, {at}" + (f": {report.error}" if report.error else "")
