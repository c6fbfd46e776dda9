"""`moldau console`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.connection_options import client_options
from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from moldau.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Mapping

    from moldau.console.settings import PipelineStatuses
    from moldau.schemas.registry import SchemaRegistry


def console(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where browsers find it.",
            show_default="127.0.0.1:8092, or any free port",
        ),
    ] = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="Show everything and change nothing.")
    ] = False,
    no_login: Annotated[
        bool,
        typer.Option(
            "--no-login",
            help="Where the cluster has users with passwords: nobody logs in, everybody is who "
            "--command-config says.",
        ),
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="Serve https: a PEM file with a certificate chain and its key.",
            show_default="none: http",
        ),
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="How browsers call it, where a proxy stands before it.",
            show_default="none",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", help="Let other machines open it without https, or without a login."
        ),
    ] = False,
    schema_registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Show Avro, JSON Schema and Protobuf by the schemas there (moldau[schemas]); "
            "one that wants a login stands in --command-config.",
            show_default="none",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Where brokers serve their metrics, for charts of bytes; repeat for more.",
            show_default="what the brokers' settings say",
        ),
    ] = None,
    pipeline: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="A pipeline to show; repeat for more.",
            show_default="none",
        ),
    ] = None,
    with_parent: Annotated[
        bool,
        typer.Option(
            "--with-parent", hidden=True, help="End when standard input does: its owner has ended."
        ),
    ] = False,
    options_from_parent: Annotated[
        bool,
        typer.Option(
            "--options-from-parent",
            hidden=True,
            help="The first line of standard input is a JSON object of client options.",
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
    import asyncio
    import logging

    from moldau.cli.console_process import is_installed, missing_text
    from moldau.cli.console_sources import metrics_pages
    from moldau.client.rules.addresses import parse_bootstrap
    from moldau.console.rules.logins import asks_for_password
    from moldau.console.settings import ConsoleSettings, find_exposure, parse_listen
    from moldau.errors import MissingExtraError

    if not is_installed():
        raise MissingExtraError(missing_text())
    from moldau.console.server import serve

    host, port = parse_listen(listen or "")
    parse_bootstrap(bootstrap)  # what is no address is told at once; a cluster may come later
    statuses: PipelineStatuses | None = None
    if pipeline:
        from moldau.cli.console_sources import pipeline_statuses

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
    import json
    import sys

    line = sys.stdin.buffer.readline()
    return dict(json.loads(line)) if line else {}


def _find_registry(url: str | None, options: Mapping[str, str]) -> SchemaRegistry | None:
    from moldau.cli.schema_options import settings_at

    settings = settings_at(url or None, options)
    if not settings.get("schema.registry.url"):
        return None
    from moldau.schemas.registry import SchemaRegistry

    return SchemaRegistry.from_settings(settings)
