"""`moldau groups delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def delete(
    names: Annotated[
        list[str], typer.Argument(metavar="GROUP...", help="The groups.", show_default=False)
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed when a group is not there.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Forget groups and how far they have read. Refused while they have members."""
    from moldau.cli.session import report_deleted, with_admin
    from moldau.errors import GroupNotFoundError

    answers = with_admin(bootstrap, lambda admin: admin.delete_groups(names))
    forgiven = GroupNotFoundError if if_exists else None
    report_deleted(names, answers, forgiven=forgiven, as_json=as_json)
