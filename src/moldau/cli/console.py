"""`moldau console`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap

if TYPE_CHECKING:
    from moldau.console.settings import PipelineStatuses


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
    command_config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            readable=True,
            help="A properties file with options of clients, as Kafka's own tools take it.",
            show_default="none",
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
) -> None:
    """Serve a web page that shows a cluster: topics, records, groups, brokers.

    Works with any Kafka-compatible cluster. Whoever can open the page can do what the console can:
    it listens on this machine alone unless told otherwise. Needs moldau[console].

    \b
    For example:
    moldau console
    moldau console --bootstrap kafka.example:9092 --read-only
    """
    import asyncio
    import logging

    from moldau.cli.console_extra import is_installed, missing_text
    from moldau.cli.options import read_client_options
    from moldau.cli.output import note
    from moldau.console.settings import ConsoleSettings, parse_listen

    if not is_installed():
        raise typer.BadParameter(missing_text())
    from moldau.console.server import serve

    host, port = parse_listen(listen or "")
    statuses: PipelineStatuses | None = None
    if pipeline:
        from moldau.cli.console_pipelines import pipeline_statuses

        statuses = pipeline_statuses(pipeline, bootstrap)
    settings = ConsoleSettings(
        bootstrap=bootstrap,
        host=host,
        port=port,
        is_read_only=read_only,
        client_options={} if command_config is None else read_client_options(command_config),
        pipelines=statuses,
    )
    if not settings.is_local:
        note(
            f"moldau: warning: the console listens on {host} without a login: whoever reaches it "
            "can read every record" + ("" if read_only else ", and change and delete topics")
        )
    # The pages say what is wrong with the cluster; the log is for what is wrong with the console.
    logging.basicConfig(level=logging.ERROR, format="moldau console: %(message)s")
    asyncio.run(
        serve(settings, lambda url: typer.echo(f"console at {url}"), with_parent=with_parent)
    )
