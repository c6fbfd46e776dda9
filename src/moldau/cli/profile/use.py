"""`moldau profile use`."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def use(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The profile.", show_default=False)
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Use none of them any more.")] = False,
) -> None:
    """Let commands talk to the cluster of a profile unless they are told otherwise.

    --bootstrap and MOLDAU_BOOTSTRAP name another cluster, --profile and MOLDAU_PROFILE another
    profile.
    """
    from moldau.cli.connection_options import PROFILE_VARIABLE
    from moldau.cli.output import note
    from moldau.cli.profiles import use_profile

    if (name is None) is not none:
        raise typer.BadParameter("name a profile, or give --none", param_hint="NAME")
    use_profile(name)
    typer.echo("using no profile" if name is None else f"using profile {name}")
    for variable in (PROFILE_VARIABLE, "MOLDAU_BOOTSTRAP"):
        if os.environ.get(variable):
            note(f"{variable} is set here and goes before it: {os.environ[variable]}")
