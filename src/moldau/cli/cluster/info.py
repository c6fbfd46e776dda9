"""`moldau cluster info`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap

if TYPE_CHECKING:
    from moldau.cli.cluster.description import ClusterInfo


def info(
    show_apis: Annotated[
        bool, typer.Option("--apis", help="Show the versions of every API, too.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show a cluster: its id, its brokers, what they speak, and how much is in it.

    Works with any cluster that speaks Kafka's protocol. Whether all is well says
    `moldau cluster health`.

    \b
    For example:
    moldau cluster info
    moldau cluster info --bootstrap kafka:9092 --json
    """
    from moldau.cli.cluster.description import describe_info
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin

    found = with_admin(bootstrap, describe_info)
    if as_json:
        print_document(found.to_document())
    else:
        _print(found, show_apis=show_apis)


def _print(found: ClusterInfo, *, show_apis: bool) -> None:
    from moldau.cli.output import Column, print_table

    typer.secho(f"cluster {found.cluster.cluster_id or '(it tells no id)'}", bold=True)
    for name, text in found.summary():
        typer.echo(f"  {name:<12}{text}")
    typer.echo()
    columns = (
        Column("broker", True),
        Column("address"),
        *((Column("rack"),) if found.has_racks else ()),
        Column("leads", True),
        Column("replicas", True),
        Column("speaks"),
    )
    print_table(columns, found.broker_rows())
    if show_apis:
        typer.echo()
        titles = "API", *(f"broker {broker_id}" for broker_id in found.answering)
        print_table([Column(title) for title in titles], found.api_rows())
