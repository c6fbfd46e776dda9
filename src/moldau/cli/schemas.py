"""`moldau schemas`: what a schema registry holds."""

from __future__ import annotations

from typing import Annotated

import typer

from moldau.cli.options import AsJson, Yes, argument, flag, option
from moldau.cli.output import confirm, note, print_document, print_table
from moldau.cli.schema_options import (
    References,
    SchemaFile,
    SchemaRegistryUrl,
    SchemaTypeName,
    read_schema,
    registry_of_command,
    require_type,
)
from moldau.errors import SchemaNotFoundError
from moldau.schemas.model import Compatibility, RegisteredSchema


def list_schemas(
    prefix: Annotated[
        str, argument("[PREFIX]", "Only subjects that begin with this.", default=True)
    ] = "",
    deleted: Annotated[bool, flag("--deleted", "Also those that are marked as deleted.")] = False,
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """List subjects, with their versions and the type and number of the latest."""
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
        columns = ("subject", "type", ">id")
        rows = [
            (
                str(one["subject"]),
                str(one["type"] or "deleted"),
                str("" if one["id"] is None else one["id"]),
                ", ".join(map(str, one["versions"])),  # type: ignore[call-overload]
            )
            for one in found
        ]
        print_table((*columns, "versions"), rows)


def show(
    subject: Annotated[str | None, argument("[SUBJECT]", "The subject.")] = None,
    version: Annotated[str, option("N|latest", "Which version of the subject.")] = "latest",
    schema_id: Annotated[
        int | None, option("N", "The schema of this number.", "--id", default="none")
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


def register(
    subject: Annotated[str, argument("SUBJECT", "Such as clicks-value, for a topic.")],
    file: SchemaFile,
    schema_type: SchemaTypeName = None,
    reference: References = None,
    normalize: Annotated[
        bool, flag("--normalize", "Have the registry put it into its normal form.")
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
    registry = registry_of_command(schema_registry)
    schema = read_schema(file, require_type(schema_type), reference or ())
    found = registry.register(subject, schema, normalize=normalize)
    kept = registry.look_up(subject, schema, normalize=normalize)
    if as_json:
        print_document(describe(kept))
    else:
        typer.echo(f"{subject} version {kept.version} has id {found.id}")


def check(
    subject: Annotated[str, argument("SUBJECT", "The subject.")],
    file: SchemaFile,
    schema_type: SchemaTypeName = None,
    reference: References = None,
    version: Annotated[str, option("N|latest|all", "Beside which versions it is held.")] = "latest",
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a subject would take a schema; fails if it would not. Registers nothing."""
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


def delete(
    subject: Annotated[str, argument("SUBJECT", "The subject.")],
    version: Annotated[
        str | None, option("N|latest", "Only this version.", default="all of them")
    ] = None,
    permanent: Annotated[
        bool,
        flag(
            "--permanent",
            "Remove what is marked as deleted; records written with it cannot be read then.",
        ),
    ] = False,
    yes: Yes = False,
    schema_registry: SchemaRegistryUrl = None,
    as_json: AsJson = False,
) -> None:
    """Mark a subject or a version as deleted; records that were written with it stay readable.

    With --permanent it asks first at a terminal.
    """
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


def describe(found: RegisteredSchema) -> dict[str, object]:
    return {
        "subject": found.subject,
        "version": found.version,
        "id": found.id,
        "guid": None if found.guid is None else str(found.guid),
        "type": found.schema.type,
        "schema": found.schema.text,
        "references": [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in found.schema.references
        ],
    }
