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
    from moldau.cli.output import print_document
    from moldau.cli.session import end_with, with_admin
    from moldau.errors import UnknownTopicError

    answers = with_admin(bootstrap, lambda admin: admin.delete_topics(names))
    deleted = [name for name in names if answers[name] is None]
    if as_json:
        print_document({"deleted": deleted})
    elif deleted:
        typer.echo(f"deleted {', '.join(deleted)}")
    end_with(
        error
        for error in answers.values()
        if not (if_exists and isinstance(error, UnknownTopicError))
    )
