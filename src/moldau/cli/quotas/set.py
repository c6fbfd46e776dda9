"""`moldau quotas set`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, parse_settings
from moldau.cli.quotas.entity import LIMITS, ClientId, Ip, User, require_entity, to_document


def set_quotas(
    limits: Annotated[list[str], typer.Argument(metavar="NAME=LIMIT...", help=f"Of {LIMITS}.")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set quotas of a user, client id or address. What is not named stays."""
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin

    entity = require_entity(user, client_id, ip)
    wanted = {name: _number(name, text) for name, text in parse_settings(limits, "LIMIT").items()}
    answers = with_admin(bootstrap, lambda admin: admin.alter_client_quotas({entity: wanted}))
    error = answers[entity]
    if error is not None:
        raise error
    if as_json:
        print_document({"entity": to_document(entity), "set": wanted})
    else:
        done = ", ".join(f"{name}={limit:,.15g}" for name, limit in wanted.items())
        typer.echo(f"{entity}: set {done}")


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{name}={text} is no number", param_hint="LIMIT") from None
