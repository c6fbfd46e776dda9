"""`moldau profile show`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson


def show(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The profile.", show_default="the one in use"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a profile says. Secrets are not shown."""
    from moldau.cli import profiles
    from moldau.cli.output import print_document

    profile = profiles.find_profile_in_use() if name is None else profiles.require_profile(name)
    if profile is None:
        raise typer.BadParameter("no profile is in use; name one", param_hint="NAME")
    if as_json:
        print_document(
            {"profile": profile.name, "path": str(profile.path), "settings": profile.shown()}
        )
        return
    typer.secho(profile.name, bold=True)
    typer.echo(f"  {profile.path}")
    for key, value in profile.shown().items():
        typer.echo(f"  {key}={value}")
