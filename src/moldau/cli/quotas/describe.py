"""`moldau quotas describe`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.quotas.entity import ClientId, Ip, User, name_of, to_document


def describe(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Leave out entities that have other names besides."),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the quotas of a user, client id or address, or all there are."""
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.session import with_admin

    found = with_admin(
        bootstrap,
        lambda admin: admin.describe_client_quotas(
            user=name_of(user), client_id=name_of(client_id), ip=name_of(ip), strict=strict
        ),
    )
    ordered = sorted(found.items(), key=lambda pair: str(pair[0]))
    if as_json:
        print_document(
            [{"entity": to_document(entity), "quotas": dict(limits)} for entity, limits in ordered]
        )
    elif ordered:
        rows = [
            (str(entity), name, f"{limit:g}" if limit < 1e6 else f"{limit:,.0f}")
            for entity, limits in ordered
            for name, limit in sorted(limits.items())
        ]
        print_table((Column("entity"), Column("quota"), Column("limit", is_number=True)), rows)
    else:
        note("there are no such quotas")
