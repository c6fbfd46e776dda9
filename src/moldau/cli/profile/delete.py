"""`moldau profile delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson


def delete(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The profiles.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Delete profiles. The clusters do not hear of it."""
    from moldau.cli.output import print_document
    from moldau.cli.profiles import delete_profile, require_profile

    for name in names:
        require_profile(name)
    for name in names:
        delete_profile(name)
    if as_json:
        print_document({"deleted": names})
    else:
        typer.echo(f"deleted {', '.join(names)}")
