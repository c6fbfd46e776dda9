"""`moldau console`, and what a console shows that brokers do not tell by the protocol."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated
from weakref import WeakKeyDictionary

import typer

from moldau.cli.console_process import is_installed, missing_text
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, client_options, flag, option
from moldau.cli.output import note
from moldau.cli.pipeline import format_set_aside, load_with_security
from moldau.cli.schema_options import settings_at
from moldau.client.admin.client import AsyncAdmin
from moldau.client.rules.cluster_metadata import parse_bootstrap
from moldau.console.server import serve
from moldau.console.sessions import asks_for_password
from moldau.console.settings import (
    ConsoleSettings,
    MetricsPages,
    PipelineQueryView,
    PipelineStatuses,
    PipelineView,
    find_exposure,
    parse_listen,
)
from moldau.errors import MissingExtraError, MoldauError
from moldau.ops.metrics_ports import find_ports, http_get
from moldau.schemas.registry import SchemaRegistry
from moldau.spark.pipeline.status import PipelineStatus, read_status


def console(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    listen: Annotated[
        str | None,
        option("HOST:PORT", "Where browsers find it.", default="127.0.0.1:8092, or any free port"),
    ] = None,
    read_only: Annotated[bool, flag("--read-only", "Show everything and change nothing.")] = False,
    no_login: Annotated[
        bool,
        flag(
            "--no-login",
            "Where the cluster has users with passwords: nobody logs in, everybody is who "
            "--command-config says.",
        ),
    ] = False,
    certificate: Annotated[
        Path | None,
        option(
            "FILE",
            "Serve https: a PEM file with a certificate chain and its key.",
            default="none: http",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        option("URL", "How browsers call it, where a proxy stands before it.", default="none"),
    ] = None,
    insecure: Annotated[
        bool, flag("--insecure", "Let other machines open it without https, or without a login.")
    ] = False,
    schema_registry: Annotated[
        str | None,
        option(
            "URL",
            "Show Avro, JSON Schema and Protobuf by the schemas there (moldau[schemas]); "
            "one that wants a login stands in --command-config.",
            default="none",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        option(
            "URL",
            "Where brokers serve their metrics, for charts of bytes; repeat for more.",
            default="what the brokers' settings say",
        ),
    ] = None,
    pipeline: Annotated[
        list[Path] | None,
        option(
            "FILE",
            "A pipeline to show; repeat for more.",
            default="none",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    with_parent: Annotated[
        bool,
        flag("--with-parent", "End when standard input does: its owner has ended.", hidden=True),
    ] = False,
    options_from_parent: Annotated[
        bool,
        flag(
            "--options-from-parent",
            "The first line of standard input is a JSON object of client options.",
            hidden=True,
        ),
    ] = False,
) -> None:
    """Serve a web page that shows a cluster: topics, records, groups, brokers.

    Works with any Kafka-compatible cluster. Where that has users with passwords (SASL), people log
    in as one of them, and may do what that user may. Elsewhere whoever can open the page can do
    what the console can: it listens on this machine alone unless told otherwise. Needs
    moldau[console].

    \b
    For example:
    moldau console
    moldau console --bootstrap kafka.example:9092 --read-only
    moldau console --command-config client.properties --certificate me.pem
    """

    if not is_installed():
        raise MissingExtraError(missing_text())

    host, port = parse_listen(listen or "")
    parse_bootstrap(bootstrap)  # what is no address is told at once; a cluster may come later
    statuses: PipelineStatuses | None = None
    if pipeline:
        statuses = pipeline_statuses(pipeline, bootstrap)
    options = _read_options() if options_from_parent else client_options()
    settings = ConsoleSettings(
        bootstrap=bootstrap,
        host=host,
        port=port,
        is_read_only=read_only,
        client_options=options,
        with_login=asks_for_password(options) and not no_login,
        certificate=certificate,
        public_url=public_url,
        pipelines=statuses,
        metrics_pages=metrics_pages(metrics or ()),
        registry=_find_registry(schema_registry, options),
    )
    for text in find_exposure(settings, is_allowed=insecure):
        note(f"moldau: warning: {text}")
    # The pages say what is wrong with the cluster; the log is for what is wrong with the console.
    logging.basicConfig(level=logging.ERROR, format="moldau console: %(message)s")
    asyncio.run(
        serve(settings, lambda url: typer.echo(f"console at {url}"), with_parent=with_parent)
    )


def _read_options() -> dict[str, str]:
    """What `moldau start` writes: nothing, if it has ended meanwhile."""

    line = sys.stdin.buffer.readline()
    return dict(json.loads(line)) if line else {}


def _find_registry(url: str | None, options: Mapping[str, str]) -> SchemaRegistry | None:
    settings = settings_at(url or None, options)
    if not settings.get("schema.registry.url"):
        return None

    return SchemaRegistry.from_settings(settings)


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
