"""`moldau users set`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0 import AlterUserScramCredentialsResponse

    from moldau.client.cluster_client import ClusterClient


def set_user(
    name: Annotated[str, typer.Argument(metavar="USER")],
    password_file: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A file with the password; without it, it is asked for, or read from a pipe.",
            show_default="none",
        ),
    ] = None,
    mechanism: Annotated[str, typer.Option(help="SCRAM-SHA-256, SCRAM-SHA-512 or both.")] = "both",
    iterations: Annotated[int, typer.Option(min=4096, max=16384)] = 8192,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Give a user a password, or another one.

    The password is no argument, as others on this machine can see those. What the broker gets and
    keeps of it is salted and stretched.
    """
    from moldau.cli.session import with_client

    names = ("SCRAM-SHA-256", "SCRAM-SHA-512") if mechanism == "both" else (mechanism,)
    if any(one not in ("SCRAM-SHA-256", "SCRAM-SHA-512") for one in names):
        raise typer.BadParameter(
            f"{mechanism!r} is not SCRAM-SHA-256, SCRAM-SHA-512 or both", param_hint="--mechanism"
        )
    password = _read_password(password_file)
    with_client(bootstrap, lambda client: _set(client, name, password, names, iterations))
    typer.echo(f"set the password of {name} for {' and '.join(names)}")


def _read_password(file: Path | None) -> str:
    if file is not None:
        text = file.read_text().rstrip("\n")
    elif sys.stdin.isatty():
        text = typer.prompt("password", hide_input=True, confirmation_prompt=True)
    else:
        text = sys.stdin.readline().rstrip("\n")
    if not text:
        raise typer.BadParameter("the password is empty")
    return text


async def _set(
    client: ClusterClient, name: str, password: str, mechanisms: tuple[str, ...], iterations: int
) -> None:
    from moldau.client.broker_errors import error_for
    from moldau.errors import ErrorCode
    from moldau.security.rules.scram import SALT_BYTES, salt_password
    from moldau.wire.apis import ALTER_USER_SCRAM_CREDENTIALS

    rows = []
    for mechanism in mechanisms:
        salt = os.urandom(SALT_BYTES)
        rows.append(
            {
                "name": name,
                "mechanism": 1 if mechanism == "SCRAM-SHA-256" else 2,
                "iterations": iterations,
                "salt": salt,
                "salted_password": salt_password(mechanism, password, salt, iterations),
            }
        )
    answer = cast(
        "AlterUserScramCredentialsResponse",
        await client.call_controller(
            ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [], "upsertions": rows}
        ),
    )
    for row in answer.results:
        if row.error_code is not ErrorCode.none:
            raise error_for(row.error_code, row.error_message, f"user {row.user}")
