"""What the commands of `moldau explain` share: finding the facts, showing the explanation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from moldau.diagnosis.fact_finding import FactFinding
    from moldau.diagnosis.rules.explanation import Explanation

T = TypeVar("T")

Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metrics",
        metavar="URL",
        help="Where brokers serve their metrics, for what they remember; repeat for more.",
        show_default="what the brokers' settings say",
    ),
]


def find_facts(
    bootstrap: str, urls: Sequence[str] | None, ask: Callable[[FactFinding], Awaitable[T]]
) -> T:
    """Ask a cluster, with the metrics ports that are given or that it names."""
    import asyncio

    from moldau.cli.log_lines import warnings_shown
    from moldau.cli.session import command_settings
    from moldau.client.admin import AsyncAdmin
    from moldau.client.cluster_client import ClusterClient
    from moldau.clock import SystemClock
    from moldau.diagnosis.fact_finding import FactFinding
    from moldau.diagnosis.metrics_ports import MetricsPorts, find_ports

    async def session() -> T:
        async with AsyncAdmin(bootstrap, command_settings()) as admin:
            client = ClusterClient(bootstrap, command_settings())
            try:
                ports = MetricsPorts(urls) if urls else await find_ports(admin)
                return await ask(FactFinding(client, admin, SystemClock(), ports))
            finally:
                await client.close()

    with warnings_shown():
        return asyncio.run(session())


def show(explanation: Explanation, *, as_json: bool) -> None:
    from moldau.cli.output import print_document

    if as_json:
        print_document(explanation.document())
        return
    typer.echo(typer.style(explanation.verdict, bold=True))
    for line in explanation.lines:
        typer.echo(line)
