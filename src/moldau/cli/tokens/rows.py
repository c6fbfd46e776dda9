"""How delegation tokens are named and shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from moldau.errors import ConfigurationError

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin
    from moldau.client.admin_tokens import DelegationTokenDescription
    from moldau.model import Principal

TokenId = Annotated[str, typer.Argument(metavar="ID", help="As `moldau tokens describe` shows it.")]
Period = Annotated[
    str | None, typer.Option(metavar="DURATION", help="From now on: 90m, 12h or 7d.")
]


def parse_principals(texts: Sequence[str]) -> list[Principal]:
    from moldau.model import Principal

    try:
        return [Principal.parse(text) for text in texts]
    except ValueError:
        raise typer.BadParameter(f"{', '.join(texts)}: a principal is written User:NAME") from None


def parse_period(text: str | None) -> int:
    """In milliseconds; -1 without any."""
    from moldau.cli.durations import parse_duration_ms

    return -1 if text is None else parse_duration_ms(text)


def show_time(milliseconds: int) -> str:
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def to_document(token: DelegationTokenDescription) -> dict[str, object]:
    """Without what is secret."""
    return {
        "id": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(one) for one in token.renewers],
        "issue_ms": token.issue_ms,
        "expiry_ms": token.expiry_ms,
        "max_ms": token.max_ms,
    }


async def find_secret(admin: AsyncAdmin, token_id: str) -> bytes:
    """By its id: so nobody has to write the secret on a command line, where others can see it."""
    for token in await admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token.hmac
    raise ConfigurationError(
        f"there is no delegation token {token_id!r} that you may see; `moldau tokens describe` "
        "lists them"
    )
