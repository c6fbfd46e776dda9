"""What a shell may complete a word to: names of topics, groups, profiles and subjects.

Loaded for completion only. Where the cluster does not answer there is nothing to choose from: a
person who presses Tab does not want to read errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable, Iterable

import typer
import typer.core

Names = Callable[[str], Iterable[str]]
"""Of the brokers to ask, or of the schema registry."""

_REGISTRY_SECONDS = 1.0


def attach(command: typer.core.TyperCommand | typer.core.TyperGroup, path: str) -> None:
    """Let the names that a command takes be completed; `path` is where its function stands."""
    for parameter in command.params:
        find = _names_for(parameter.name or "", str(parameter.metavar), path)
        if find is not None:
            parameter._custom_shell_complete = _completer(find)  # type: ignore[assignment]  # of our context


def _names_for(name: str, metavar: str, path: str) -> Names | None:
    if name == "profile" or (".cli.profile:" in path and metavar.startswith("NAME")):
        return _profile_names
    if metavar.strip("[").startswith("SUBJECT"):
        return _subject_names
    if path.endswith((".topics:create", ".profile:create")):
        return None
    if (
        metavar.startswith("TOPIC")
        or name == "topic"
        or (".cli.topics:" in path and name == "names")
    ):
        return ask_for_topics
    if metavar.startswith("GROUP") or name in ("group", "queue"):
        return ask_for_groups
    return None


def _completer(find: Names) -> Callable[[typer.Context, object, str], list[str]]:
    def complete(context: typer.Context, parameter: object, incomplete: str) -> list[str]:
        address = context.params.get("bootstrap") or context.params.get("schema_registry") or ""
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                names = sorted(find(address))
        except Exception:  # noqa: BLE001 - whatever it is, it is not for someone who pressed Tab
            return []
        return [name for name in names if name.startswith(incomplete)]

    return complete


def _subject_names(registry: str) -> Iterable[str]:
    from moldau.cli.schema_options import registry_of_command

    return registry_of_command(registry or None, _REGISTRY_SECONDS).subjects()


def _profile_names(bootstrap: str) -> Iterable[str]:
    from moldau.cli.profiles import list_profiles

    return [one.name for one in list_profiles()]


# Names of topics and groups that a cluster has: for a shell that completes a word, and for people
# who misspelt one.
#
# The cluster is asked for a second at most: whoever presses Tab, or has just read an error, does
# not want to wait for another.


_SECONDS = 1.0


def ask_for_topics(bootstrap: str) -> Iterable[str]:
    return _ask(bootstrap, lambda admin: admin.list_topics())


def ask_for_groups(bootstrap: str) -> Iterable[str]:
    return _ask(bootstrap, lambda admin: admin.list_groups())


def _ask(bootstrap: str, work: Callable[..., Awaitable[Iterable[str]]]) -> Iterable[str]:
    from moldau.cli.session import command_settings
    from moldau.client.admin.client import AsyncAdmin

    async def ask() -> Iterable[str]:
        async with asyncio.timeout(_SECONDS), AsyncAdmin(bootstrap, command_settings()) as admin:
            return list(await work(admin))

    return asyncio.run(ask())
