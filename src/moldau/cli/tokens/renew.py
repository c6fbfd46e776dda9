"""`moldau tokens renew`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from moldau.cli.tokens.rows import Period, TokenId, find_secret, parse_period, show_time

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin


def renew(
    token_id: TokenId, period: Period = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """Let a token be good for longer: as the brokers' settings say, or for a period from now on."""
    from moldau.cli.session import with_admin

    period_ms = parse_period(period)

    async def work(admin: AsyncAdmin) -> int:
        return await admin.renew_delegation_token(await find_secret(admin, token_id), period_ms)

    typer.echo(f"{token_id} is good until {show_time(with_admin(bootstrap, work))}")
