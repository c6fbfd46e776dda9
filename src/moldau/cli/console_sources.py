"""What a console shows that brokers do not tell by the protocol: metrics ports and pipelines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from weakref import WeakKeyDictionary

from moldau.cli.options import DEFAULT_BOOTSTRAP
from moldau.cli.pipeline import load_with_security
from moldau.cli.pipeline_display import format_set_aside
from moldau.client.admin import AsyncAdmin
from moldau.console.settings import MetricsPages, PipelineQueryView, PipelineStatuses, PipelineView
from moldau.errors import MoldauError
from moldau.ops.metrics_ports import find_ports, http_get
from moldau.spark.pipeline.status import PipelineStatus, read_status

# What the metrics ports of brokers say, for the console's charts.
#
# `ops` knows where metrics ports are.


_LOOK_AGAIN_SECONDS = 60.0


def metrics_pages(urls: Sequence[str]) -> MetricsPages:
    """Of these ports; without any, of those that the brokers' settings name to whoever asks."""
    found: WeakKeyDictionary[AsyncAdmin, tuple[float, Sequence[str]]] = WeakKeyDictionary()

    async def find(admin: AsyncAdmin) -> Sequence[str]:
        if urls:
            return urls
        asked_at, ports = found.get(admin, (0.0, ()))
        if time.monotonic() - asked_at > _LOOK_AGAIN_SECONDS or asked_at == 0.0:
            ports = (await find_ports(admin)).urls
            found[admin] = (time.monotonic(), ports)
        return ports

    async def read(admin: AsyncAdmin) -> Mapping[str, str]:
        ports = [url.rstrip("/").removesuffix("/metrics") for url in await find(admin)]
        texts = await asyncio.gather(*[_get(url) for url in ports])
        return {url: text for url, text in zip(ports, texts, strict=True) if text is not None}

    return read


async def _get(url: str) -> str | None:
    try:
        return await http_get(f"{url}/metrics")
    except OSError:
        return None


# The pipelines that a console shows.
#
# The console does not know pipelines, and pipelines do not know the console; this introduces them.


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
