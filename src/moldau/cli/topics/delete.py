"""`moldau topics delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap


def delete(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="The topics.", show_default=False)
    ],
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed when a topic is not there.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records."""
    from moldau.cli.session import report_deleted, with_admin
    from moldau.errors import UnknownTopicError

    answers = with_admin(bootstrap, lambda admin: admin.delete_topics(names))
    forgiven = UnknownTopicError if if_exists else None
    report_deleted(names, answers, forgiven=forgiven, as_json=as_json)
