"""`moldau tokens expire`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap
from moldau.cli.tokens.rows import Period, TokenId, find_secret, parse_period, show_time

if TYPE_CHECKING:
    from moldau.client.admin import AsyncAdmin


def expire(
    token_id: TokenId, period: Period = None, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
) -> None:
    """End a token: at once, or after a period. Who is connected by it stays until the end that the
    token had when he logged in."""
    from moldau.cli.session import with_admin

    period_ms = parse_period(period)

    async def work(admin: AsyncAdmin) -> int:
        return await admin.expire_delegation_token(await find_secret(admin, token_id), period_ms)

    ends_ms = with_admin(bootstrap, work)
    typer.echo(
        f"{token_id} has ended" if period is None else f"{token_id} ends at {show_time(ends_ms)}"
    )
