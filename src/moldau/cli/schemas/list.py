"""`moldau schemas list`."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson
from moldau.cli.schema_options import SchemaRegistryUrl


def list_schemas(
    prefix: Annotated[
        str, typer.Argument(metavar="[PREFIX]", help="Only subjects that begin with this.")
    ] = "",
    deleted: Annotated[
        bool, typer.Option("--deleted", help="Also those that are marked as deleted.")
    ] = False,
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """List subjects, with their versions and the type and number of the latest."""
    from moldau.cli.output import Column, note, print_document, print_table
    from moldau.cli.schema_options import registry_of_command
    from moldau.errors import SchemaNotFoundError

    registry = registry_of_command(schema_registry)
    found: list[dict[str, object]] = []
    for subject in registry.subjects(prefix, deleted=deleted):
        try:
            latest = registry.version(subject)
            versions = registry.versions(subject)
        except SchemaNotFoundError:  # deleted, by now or before
            found.append({"subject": subject, "versions": [], "type": None, "id": None})
            continue
        found.append(
            {
                "subject": subject,
                "versions": versions,
                "type": latest.schema.type,
                "id": latest.id,
            }
        )
    if as_json:
        print_document(found)
    elif not found:
        note(f"there are no such subjects in {registry.address}")
    else:
        columns = (Column("subject"), Column("type"), Column("id", is_number=True))
        rows = [
            (
                str(one["subject"]),
                str(one["type"] or "deleted"),
                str("" if one["id"] is None else one["id"]),
                ", ".join(map(str, one["versions"])),  # type: ignore[call-overload]
            )
            for one in found
        ]
        print_table((*columns, Column("versions")), rows)
