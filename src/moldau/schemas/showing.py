"""A record's key or value for people: whatever its schema's type is. A shell."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from moldau.records.record import Headers
from moldau.schemas.model import Field, SchemaType
from moldau.schemas.registry import SchemaRegistry
from moldau.schemas.rules.framing import split_frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """What a key or value says, for `json.dumps`, and by which schema."""

    value: object
    type: SchemaType
    name: str | None
    """Of the record or message; None where the schema has no name."""
    id: int | None
    guid: UUID | None = None
    """The record names its schema by one of both."""


def decode_any(
    registry: SchemaRegistry,
    data: bytes,
    headers: Headers = (),
    field: Field = "value",
) -> Decoded:
    """What the bytes of a key or value say, by the schema that they name themselves.

    Raises SchemaDecodingError for bytes that name no schema or do not fit it, SchemaNotFoundError
    for a schema that the registry does not have, and other errors of the registry. Blocks while a
    schema is looked up, once for each: call it in a thread where a loop must not wait.
    """
    framed = split_frame(data, headers, field)
    codec = registry.codec(framed.key)
    value = codec.read(framed.rest, framed.indexes_apart)
    is_guid = isinstance(framed.key, UUID)
    return Decoded(
        value=codec.to_document(value),
        type=codec.schema_type,
        name=name_of_value(value) or codec.name,
        id=None if is_guid else framed.key,  # type: ignore[arg-type]
        guid=framed.key if is_guid else None,  # type: ignore[arg-type]
    )


def name_of_value(value: object) -> str | None:
    """Of a message of Protobuf, which may be another one of its file than the first."""
    found = getattr(getattr(value, "DESCRIPTOR", None), "full_name", None)
    return found if isinstance(found, str) else None
