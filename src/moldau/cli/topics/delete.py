"""`moldau topics delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, Yes


def delete(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The topics.", show_default=False)
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed when a topic is not there.")
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records. Asks first at a terminal."""
    from moldau.cli.output import confirm
    from moldau.cli.session import report_deleted, with_admin
    from moldau.errors import UnknownTopicError

    question = f"Delete {', '.join(names)} with all records?"
    confirm(question, yes=yes, as_json=as_json)
    answers = with_admin(bootstrap, lambda admin: admin.delete_topics(names))
    forgiven = UnknownTopicError if if_exists else None
    report_deleted(names, answers, forgiven=forgiven, as_json=as_json)
