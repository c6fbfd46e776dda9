"""A registered schema for machines."""

from __future__ import annotations

from moldau.schemas.model import RegisteredSchema


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
