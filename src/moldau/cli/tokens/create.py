"""`moldau tokens create`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.tokens.rows import parse_period, parse_principals, show_time, to_document

if TYPE_CHECKING:
    from moldau.client.admin_tokens import DelegationTokenDescription

_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_REPLACED = ("sasl.jaas.config", "sasl.username", "sasl.password")


def create(
    owner: Annotated[
        str | None,
        typer.Option(metavar="User:NAME", help="Whose token it is.", show_default="one's own"),
    ] = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option(
            "--renewer",
            metavar="User:NAME",
            help="Who may renew it, beside its owner; repeat for more.",
            show_default="none",
        ),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="After which it cannot be renewed: 12h or 7d.",
            show_default="what the brokers' settings say",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="Write client settings with the token there, for --command-config and Java's "
            "clients; the secret is not printed then.",
            show_default="none",
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Make a token, with which a job logs in without a password.

    \b
    For example:
    moldau tokens create --max-lifetime 7d --out job.properties
    moldau topics list --command-config job.properties
    """
    from moldau.cli.output import print_document
    from moldau.cli.session import with_admin

    owners = parse_principals([owner] if owner else [])
    allowed, lifetime_ms = parse_principals(renewers or []), parse_period(max_lifetime)
    if out is not None:
        _require_free(out)
    token = with_admin(
        bootstrap,
        lambda admin: admin.create_delegation_token(
            owner=owners[0] if owners else None, renewers=allowed, max_lifetime_ms=lifetime_ms
        ),
    )
    if out is not None:
        _write(out, token)
    if as_json:
        secret = {} if out is not None else {"hmac": token.password}
        print_document({**to_document(token), **secret})
        return
    typer.echo(f"made a token of {token.owner}, good until {show_time(token.expiry_ms)}")
    typer.echo(f"id:       {token.token_id}")
    if out is None:
        typer.echo(f"hmac:     {token.password}")
    else:
        typer.echo(f"settings: {out}")


def _require_free(path: Path) -> None:
    """Before the token is made: nobody is told its secret again."""
    if path.exists():
        raise typer.BadParameter(f"{path} is there already", param_hint="--out")
    if not os.access(path.absolute().parent, os.W_OK):
        raise typer.BadParameter(f"nothing can be written beside {path}", param_hint="--out")


def _write(path: Path, token: DelegationTokenDescription) -> None:
    from moldau.cli.connection_options import client_options
    from moldau.cli.secure.folder import write_file
    from moldau.security.rules.jaas import format_jaas

    kept = {name: text for name, text in client_options().items() if name not in _REPLACED}
    mechanism = kept.get("sasl.mechanism", "")
    named = {"username": token.token_id, "password": token.password, "tokenauth": "true"}
    settings: Mapping[str, str] = {
        **kept,
        "sasl.mechanism": mechanism if mechanism.startswith("SCRAM-") else "SCRAM-SHA-512",
        "sasl.jaas.config": format_jaas(_SCRAM, named),
    }
    lines = (f"{name}={text.replace(chr(92), chr(92) * 2)}" for name, text in settings.items())
    write_file(path, "\n".join(lines) + "\n")
