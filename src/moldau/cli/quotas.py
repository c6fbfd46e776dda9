"""`moldau quotas`: quotas of users, client ids and addresses."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    argument,
    flag,
    option,
    parse_settings,
)
from moldau.cli.output import note, print_document, print_table
from moldau.cli.session import with_admin
from moldau.quotas import DEFAULT, Default, QuotaEntity, kinds_of

User = Annotated[str | None, option("NAME", "A user; `default` for all others.", "--user")]
ClientId = Annotated[
    str | None,
    option(
        "ID", "A client id; `default` for all others. With --user: of that user.", "--client-id"
    ),
]
Ip = Annotated[str | None, option("ADDRESS", "An address; `default` for all others.", "--ip")]

_DEFAULT_WORD = "default"
LIMITS = (
    "producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of the "
    "broker's time), controller_mutation_rate (partitions per second); for --ip "
    "connection_creation_rate (per second)"
)


def name_of(text: str | None) -> str | Default | None:
    return DEFAULT if text == _DEFAULT_WORD else text


def require_entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    if user is None and client_id is None and ip is None:
        raise typer.BadParameter(
            "say whose quota: --user, --client-id or --ip", param_hint="--user"
        )
    if ip is not None and (user is not None or client_id is not None):
        raise typer.BadParameter("stands alone, without --user and --client-id", param_hint="--ip")
    return QuotaEntity(name_of(user), name_of(client_id), name_of(ip))


def to_document(entity: QuotaEntity) -> dict[str, str]:
    return {
        kind: name.value if isinstance(name, Default) else name
        for kind, name in entity.parts.items()
    }


def describe(
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    strict: Annotated[
        bool, flag("--strict", "Leave out entities that have other names besides.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Show the quotas of a user, client id or address, or all there are."""
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
        print_table(("entity", "quota", ">limit"), rows)
    else:
        note("there are no such quotas")


def set_quotas(
    limits: Annotated[list[str], argument("NAME=LIMIT...", f"Of {LIMITS}.")],
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Set quotas of a user, client id or address. What is not named stays."""
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


def remove(
    names: Annotated[
        list[str] | None, argument("[NAME...]", "Quotas to remove; without any, all of them.")
    ] = None,
    user: User = None,
    client_id: ClientId = None,
    ip: Ip = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Remove quotas of a user, client id or address."""
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
