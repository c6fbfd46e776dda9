"""`moldau tokens describe`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.tokens.rows import parse_principals, show_time, to_document


def describe(
    owners: Annotated[
        list[str] | None,
        typer.Option(
            "--owner",
            metavar="User:NAME",
            help="Whose tokens; repeat for more.",
            show_default="all that one may see",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """List tokens: whose they are, who may renew them, and until when they are good."""
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin

    wanted = parse_principals(owners) if owners else None
    tokens = with_admin(bootstrap, lambda admin: admin.describe_delegation_tokens(wanted))
    if as_json:
        print_document([to_document(one) for one in tokens])
    elif tokens:
        titles = ("id", "owner", "requester", "renewers", "expires", "at the latest")
        print_table(
            [Column(title) for title in titles],
            [
                (
                    one.token_id,
                    str(one.owner),
                    str(one.requester),
                    ", ".join(map(str, one.renewers)),
                    show_time(one.expiry_ms),
                    show_time(one.max_ms),
                )
                for one in tokens
            ],
        )
    else:
        note("there are no tokens that you may see; make one with `moldau tokens create`")
