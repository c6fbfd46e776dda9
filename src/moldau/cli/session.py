"""Runs asynchronous work of one command against a cluster, from first connection to last."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TypeVar

import typer

from moldau import __version__
from moldau.cli.failures import report_error
from moldau.cli.options import security_of_command
from moldau.cli.output import print_document
from moldau.cli.reporting import warnings_shown
from moldau.client.admin.client import AsyncAdmin
from moldau.client.cluster import ClientSettings, ClusterClient
from moldau.client.connections import ConnectionSettings
from moldau.errors import MoldauError

T = TypeVar("T")

CLIENT_ID = "moldau-cli"

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""The names of glibc's malloc.h."""
_KEPT_BYTES = 32 << 20


def command_settings() -> ClientSettings:
    return ClientSettings(
        connection=ConnectionSettings(
            client_id=CLIENT_ID, client_version=__version__, security=security_of_command()
        )
    )


def with_admin(bootstrap: str, work: Callable[[AsyncAdmin], Awaitable[T]]) -> T:
    """Run work that administers."""

    async def session() -> T:
        async with AsyncAdmin(bootstrap, command_settings()) as admin:
            return await work(admin)

    with warnings_shown():
        return asyncio.run(session())


def with_client(bootstrap: str, work: Callable[[ClusterClient], Awaitable[T]]) -> T:
    """Run work that reads or writes records."""

    async def session() -> T:
        client = ClusterClient(bootstrap, command_settings())
        try:
            return await work(client)
        finally:
            await client.close()

    with warnings_shown():
        return asyncio.run(session())


@contextlib.contextmanager
def made_for_millions() -> Iterator[None]:
    """For commands through which records go by the million.

    None of them is part of a cycle: looking for cycles after every few hundred costs a seventh of
    the time of `produce` and `consume`. What was imported stays, and is not looked at any more.
    """
    former = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(500_000, 20, 100)
    _keep_freed_memory()
    try:
        yield
    finally:
        gc.set_threshold(*former)
        gc.unfreeze()


def _keep_freed_memory() -> None:
    """glibc gives large buffers back to the kernel when they are freed and gets new pages for the
    next ones, which is half of what `produce` costs in the kernel. Other libraries do without."""

    with contextlib.suppress(AttributeError, OSError):
        set_option = ctypes.CDLL(None).mallopt
        set_option(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        set_option(_M_MMAP_THRESHOLD, _KEPT_BYTES // 2)


def report_deleted(
    names: Iterable[str],
    answers: Mapping[str, MoldauError | None],
    *,
    forgiven: type[MoldauError] | None,
    as_json: bool,
) -> None:
    """Say what was deleted, and fail with the rest, but for errors that are `forgiven`."""

    deleted = [name for name in names if answers[name] is None]
    if as_json:
        print_document({"deleted": deleted})
    elif deleted:
        typer.echo(f"deleted {', '.join(deleted)}")
    end_with(
        error for error in answers.values() if forgiven is None or not isinstance(error, forgiven)
    )


def end_with(errors: Iterable[MoldauError | None]) -> None:
    """Report what failed of several things, and fail if anything did."""
    failed = [error for error in errors if error is not None]
    for error in failed:
        report_error(error)
    if failed:
        raise typer.Exit(1)
