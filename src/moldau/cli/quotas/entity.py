"""Whom the `moldau quotas` commands are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from moldau.quotas.rules.entities import Default, QuotaEntity

User = Annotated[
    str | None,
    typer.Option(
        "--user", metavar="NAME", help="A user; `default` for all others.", show_default=False
    ),
]
ClientId = Annotated[
    str | None,
    typer.Option(
        "--client-id",
        metavar="ID",
        help="A client id; `default` for all others. With --user: of that user.",
        show_default=False,
    ),
]
Ip = Annotated[
    str | None,
    typer.Option(
        "--ip", metavar="ADDRESS", help="An address; `default` for all others.", show_default=False
    ),
]

_DEFAULT_WORD = "default"
LIMITS = (
    "producer_byte_rate, consumer_byte_rate (bytes per second), request_percentage (of the "
    "broker's time), controller_mutation_rate (partitions per second); for --ip "
    "connection_creation_rate (per second)"
)


def name_of(text: str | None) -> str | Default | None:
    from moldau.quotas.rules.entities import DEFAULT

    return DEFAULT if text == _DEFAULT_WORD else text


def require_entity(user: str | None, client_id: str | None, ip: str | None) -> QuotaEntity:
    from moldau.quotas.rules.entities import QuotaEntity

    if user is None and client_id is None and ip is None:
        raise typer.BadParameter(
            "say whose quota: --user, --client-id or --ip", param_hint="--user"
        )
    if ip is not None and (user is not None or client_id is not None):
        raise typer.BadParameter("stands alone, without --user and --client-id", param_hint="--ip")
    return QuotaEntity(name_of(user), name_of(client_id), name_of(ip))


def to_document(entity: QuotaEntity) -> dict[str, str]:
    from moldau.quotas.rules.entities import Default

    return {
        kind: name.value if isinstance(name, Default) else name
        for kind, name in entity.parts.items()
    }
