"""`moldau groups delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes


def delete(
    names: Annotated[
        list[str], typer.Argument(metavar="GROUP...", help="The groups.", show_default=False)
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed when a group is not there.")
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Forget groups and how far they have read. Refused while they have members.

    Asks first at a terminal.
    """
    from moldau.cli.output import confirm
    from moldau.cli.session import report_deleted, with_admin
    from moldau.errors import GroupNotFoundError

    question = f"Forget {', '.join(names)} and all committed offsets?"
    confirm(question, yes=yes, as_json=as_json)
    answers = with_admin(bootstrap, lambda admin: admin.delete_groups(names))
    forgiven = GroupNotFoundError if if_exists else None
    report_deleted(names, answers, forgiven=forgiven, as_json=as_json)
