"""`moldau users set`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap


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
    from moldau.cli.output import note
    from moldau.cli.session import with_admin

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
    from moldau.cli.output import can_ask

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
