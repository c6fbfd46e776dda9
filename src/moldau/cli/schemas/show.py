"""`moldau schemas show`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.schema_options import SchemaRegistryUrl


def show(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="The subject.", show_default=False)
    ] = None,
    version: Annotated[
        str, typer.Option(metavar="N|latest", help="Which version of the subject.")
    ] = "latest",
    schema_id: Annotated[
        int | None,
        typer.Option("--id", metavar="N", help="The schema of this number.", show_default="none"),
    ] = None,
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print a schema: of a subject, or by its number.

    \b
    For example:
    moldau schemas show clicks-value --version 1
    moldau schemas show --id 7 --json
    """
    from moldau.cli.output import note, print_document
    from moldau.cli.schema_options import registry_of_command
    from moldau.cli.schemas.description import describe

    if (subject is None) == (schema_id is None):
        raise typer.BadParameter("give a subject or --id, one of them", param_hint="SUBJECT")
    if version != "latest" and not version.isdecimal():
        raise typer.BadParameter("is a number or latest", param_hint="--version")
    registry = registry_of_command(schema_registry)
    if schema_id is not None:
        found = registry.schema(schema_id)
        used_by = registry.used_by(schema_id)
    else:
        found = registry.version(subject or "", version)
        used_by = []
    if as_json:
        document = describe(found)
        if schema_id is not None:
            document["used_by"] = [{"subject": name, "version": one} for name, one in used_by]
        print_document(document)
        return
    if found.subject is not None and found.version is not None:
        where = f"{found.subject} version {found.version}, "
    else:
        where = "".join(f"{name} version {one}, " for name, one in used_by)
    note(f"{where}{found.schema.type}, id {found.id}")
    for one in found.schema.references:
        note(f"refers to {one.name}: {one.subject} version {one.version}")
    typer.echo(found.schema.text.rstrip("\n"))
