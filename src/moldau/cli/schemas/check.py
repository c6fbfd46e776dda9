"""`moldau schemas check`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.schema_options import References, SchemaFile, SchemaRegistryUrl, SchemaTypeName


def check(
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="The subject.", show_default=False)
    ],
    file: SchemaFile,
    schema_type: SchemaTypeName = None,
    reference: References = None,
    version: Annotated[
        str, typer.Option(metavar="N|latest|all", help="Beside which versions it is held.")
    ] = "latest",
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a subject would take a schema; fails if it would not. Registers nothing."""
    from moldau.cli.output import note, print_document
    from moldau.cli.schema_options import read_schema, registry_of_command, require_type
    from moldau.errors import SchemaNotFoundError
    from moldau.schemas.model import Compatibility

    if version not in ("latest", "all") and not version.isdecimal():
        raise typer.BadParameter("is a number, latest or all", param_hint="--version")
    registry = registry_of_command(schema_registry)
    schema = read_schema(file, require_type(schema_type), reference or ())
    level = registry.compatibility_level(subject)
    is_new = False
    try:
        found = registry.check(subject, schema, None if version == "all" else version)
    except SchemaNotFoundError:
        if version.isdecimal():
            raise
        found, is_new = Compatibility(True), True
    if as_json:
        print_document(
            {
                "subject": subject,
                "compatible": found.is_compatible,
                "level": level,
                "new_subject": is_new,
                "messages": list(found.messages),
            }
        )
    elif is_new:
        typer.echo(f"{subject} has no version yet: it would take any schema")
    elif found.is_compatible:
        typer.echo(f"{subject} would take it (compatibility {level})")
    else:
        typer.echo(f"{subject} would not take it (compatibility {level})")
        for message in found.messages:
            note(message)
    if not found.is_compatible:
        raise typer.Exit(1)
