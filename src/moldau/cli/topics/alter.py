"""`moldau topics alter`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def alter(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The topic.", show_default=False)],
    partitions: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="The new number of partitions; it can only grow."),
    ],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic. Its settings are changed by `moldau configs alter`.

    Keys may move: which partition a key goes to depends on the number of partitions. What is in
    the topic stays where it is.
    """
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin

    answer = with_admin(bootstrap, lambda admin: admin.create_partitions({name: partitions}))[name]
    if answer is not None:
        raise answer
    if as_json:
        print_document({"topic": name, "partitions": partitions})
    else:
        typer.echo(f"topic {name} has {partitions} partitions now")
