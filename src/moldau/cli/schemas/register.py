"""`moldau schemas register`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.schema_options import References, SchemaFile, SchemaRegistryUrl, SchemaTypeName


def register(
    subject: Annotated[
        str,
        typer.Argument(
            metavar="SUBJECT", help="Such as clicks-value, for a topic.", show_default=False
        ),
    ],
    file: SchemaFile,
    schema_type: SchemaTypeName = None,
    reference: References = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Have the registry put it into its normal form.")
    ] = False,
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """Register a schema; one that the subject has already keeps its number.

    \b
    For example:
    moldau schemas register clicks-value click.avsc
    moldau schemas register a-value a.proto --reference b.proto=b:1
    """
    from moldau.cli.output import print_document
    from moldau.cli.schema_options import read_schema, registry_of_command, require_type
    from moldau.cli.schemas.description import describe

    registry = registry_of_command(schema_registry)
    schema = read_schema(file, require_type(schema_type), reference or ())
    found = registry.register(subject, schema, normalize=normalize)
    kept = registry.look_up(subject, schema, normalize=normalize)
    if as_json:
        print_document(describe(kept))
    else:
        typer.echo(f"{subject} version {kept.version} has id {found.id}")
