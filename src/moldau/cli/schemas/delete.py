"""`moldau schemas delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson, Yes
from moldau.cli.schema_options import SchemaRegistryUrl


def delete(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="The subject.", show_default=False)
    ],
    version: Annotated[
        str | None,
        typer.Option(metavar="N|latest", help="Only this version.", show_default="all of them"),
    ] = None,
    permanent: Annotated[
        bool,
        typer.Option(
            "--permanent",
            help="Remove what is marked as deleted; records written with it cannot be read then.",
        ),
    ] = False,
    yes: Yes = False,
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """Mark a subject or a version as deleted; records that were written with it stay readable.

    With --permanent it asks first at a terminal.
    """
    from moldau.cli.output import confirm, print_document
    from moldau.cli.schema_options import registry_of_command

    if version is not None and version != "latest" and not version.isdecimal():
        raise typer.BadParameter("is a number or latest", param_hint="--version")
    if permanent:
        question = f"Remove {subject}, so that records written with it cannot be read?"
        confirm(question, yes=yes, as_json=as_json)
    gone = registry_of_command(schema_registry).delete(subject, version, permanent=permanent)
    if as_json:
        print_document({"subject": subject, "versions": gone, "permanent": permanent})
    else:
        how = "removed" if permanent else "marked as deleted"
        plural = "version" if len(gone) == 1 else "versions"
        typer.echo(f"{subject}: {plural} {', '.join(map(str, gone))} {how}")
