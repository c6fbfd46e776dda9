"""`moldau users delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, Bootstrap


def delete_user(
    name: Annotated[str, typer.Argument(metavar="USER", help="Who it is.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Take a user's password away. Who is connected stays so until the connection ends."""
    from moldau.cli.session import with_admin

    with_admin(bootstrap, lambda admin: admin.delete_scram_credentials(name))
    typer.echo(f"deleted the password of {name}")
