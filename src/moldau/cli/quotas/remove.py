"""`moldau quotas remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.quotas.entity import ClientId, Ip, User, require_entity, to_document


def remove(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME...]", help="Quotas to remove; without any, all of them."),
    ] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove quotas of a user, client id or address."""
    from moldau.cli.output import note, print_document
    from moldau.cli.session import with_admin
    from moldau.quotas.rules.entities import kinds_of

    entity = require_entity(user, client_id, ip)
    wanted = names or [kind.value for kind in kinds_of(entity)]
    answers = with_admin(
        bootstrap, lambda admin: admin.alter_client_quotas({entity: dict.fromkeys(wanted)})
    )
    error = answers[entity]
    if error is not None:
        raise error
    if as_json:
        print_document({"entity": to_document(entity), "removed": wanted})
    else:
        note(f"{entity}: removed {', '.join(wanted)}")
