"""`moldau users`: who may log in with SCRAM."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap
from moldau.cli.output import Column, can_ask, note, print_document, print_table
from moldau.cli.session import with_admin


def list_users(bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, as_json: AsJson = False) -> None:
    """List the users that the cluster keeps, and how they may log in.

    Those who stand in the brokers' settings (sasl.jaas.config), as the first user of `moldau secure
    init`, are not among them: no broker tells who they are.
    """
    found = with_admin(bootstrap, lambda admin: admin.describe_scram_credentials())
    rows = [
        (user, one.mechanism, str(one.iterations))
        for user, credentials in found.items()
        for one in credentials
    ]
    if as_json:
        names = ("user", "mechanism", "iterations")
        print_document([dict(zip(names, row, strict=True)) for row in rows])
    elif rows:
        print_table((Column("user"), Column("mechanism"), Column("iterations", True)), rows)
        note("users in the brokers' settings (sasl.jaas.config) are not listed")
    else:
        note(
            "the cluster keeps no users; make one with `moldau users set NAME`. Users in the "
            "brokers' settings (sasl.jaas.config) are not listed"
        )


def set_user(
    name: Annotated[str, typer.Argument(metavar="USER", help="Who it is.")],
    password_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A file with the password; without it, it is asked for, or read from a pipe.",
            show_default="none",
        ),
    ] = None,
    mechanism: Annotated[
        str, typer.Option(metavar="NAME", help="SCRAM-SHA-256, SCRAM-SHA-512 or both.")
    ] = "both",
    iterations: Annotated[
        int,
        typer.Option(metavar="N", min=4096, max=16384, help="How often the password is hashed."),
    ] = 8192,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Give a user a password, or another one.

    The password is no argument, as others on this machine can see those. What the broker gets and
    keeps of it is salted and stretched.
    """
    names = ("SCRAM-SHA-256", "SCRAM-SHA-512") if mechanism == "both" else (mechanism,)
    if any(one not in ("SCRAM-SHA-256", "SCRAM-SHA-512") for one in names):
        raise typer.BadParameter(
            f"{mechanism!r} is not SCRAM-SHA-256, SCRAM-SHA-512 or both", param_hint="--mechanism"
        )
    password = _read_password(password_file)
    warning = with_admin(
        bootstrap,
        lambda admin: admin.set_scram_password(
            name, password, mechanisms=names, iterations=iterations
        ),
    )
    if warning is not None:  # of a success: it has no effect yet
        note(f"moldau: warning: {warning}")
    typer.echo(f"set the password of {name} for {' and '.join(names)}")


def _read_password(file: Path | None) -> str:
    if file is not None:
        text = file.read_text().rstrip("\n")
    elif can_ask():
        text = typer.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
    elif sys.stdin.isatty():
        raise typer.BadParameter(
            "nobody would see that it is asked for, since stderr is no terminal",
            param_hint="--password-file",
        )
    else:
        text = sys.stdin.readline().rstrip("\n")
    if not text:
        raise typer.BadParameter("the password is empty")
    return text


def delete_user(
    name: Annotated[str, typer.Argument(metavar="USER", help="Who it is.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take a user's password away. Who is connected stays so until the connection ends."""
    with_admin(bootstrap, lambda admin: admin.delete_scram_credentials(name))
    typer.echo(f"deleted the password of {name}")
