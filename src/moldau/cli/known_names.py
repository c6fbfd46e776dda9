"""Names of topics and groups that a cluster has: for a shell that completes a word, and for people
who misspelt one.

The cluster is asked for a second at most: whoever presses Tab, or has just read an error, does not
want to wait for another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

_SECONDS = 1.0


def ask_for_topics(bootstrap: str) -> Iterable[str]:
    return _ask(bootstrap, lambda admin: admin.list_topics())


def ask_for_groups(bootstrap: str) -> Iterable[str]:
    return _ask(bootstrap, lambda admin: admin.list_groups())


def _ask(bootstrap: str, work: Callable[..., Awaitable[Iterable[str]]]) -> Iterable[str]:
    from moldau.cli.session import command_settings
    from moldau.client.admin import AsyncAdmin

    async def ask() -> Iterable[str]:
        async with asyncio.timeout(_SECONDS), AsyncAdmin(bootstrap, command_settings()) as admin:
            return list(await work(admin))

    return asyncio.run(ask())
