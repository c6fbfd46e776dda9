"""What a registry's answers say, and what its refusals mean. A rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from uuid import UUID

from moldau.errors import (
    ConfigurationError,
    IncompatibleSchemaError,
    RegistryAuthorizationError,
    RegistryError,
    SchemaNotFoundError,
)
from moldau.schemas.model import (
    MOST_ID,
    SCHEMA_TYPES,
    Reference,
    RegisteredSchema,
    Schema,
    SchemaType,
)

T = TypeVar("T")


def schema_to_document(schema: Schema) -> dict[str, object]:
    """As it is sent to be registered, looked up or checked."""
    document: dict[str, object] = {"schema": schema.text}
    if schema.type != "AVRO":
        document["schemaType"] = schema.type
    if schema.references:
        document["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    return document


def read_registered(
    answer: object, address: str, references: tuple[Reference, ...] | None = None
) -> RegisteredSchema:
    """Raises RegistryError for what is none, and ConfigurationError for a type that is not known;
    the references given are those that were sent."""
    document = as_object(answer, address)
    text = document.get("schema")
    if not isinstance(text, str):
        raise _strange(address, "an answer without a schema")
    schema = Schema(
        text=text,
        type=_read_type(document.get("schemaType"), address),
        references=_read_references(document.get("references")) or references or (),
    )
    subject = document.get("subject")
    return RegisteredSchema(
        schema=schema,
        id=_read_id(document.get("id")),
        guid=_read_guid(document.get("guid")),
        subject=subject if isinstance(subject, str) else None,
        version=_read_int(document.get("version")),
    )


def read_places(answer: object, address: str) -> list[tuple[str, int]]:
    """Subjects and versions."""
    found = as_list(answer, dict, address)
    return sorted((str(one.get("subject")), _read_int(one.get("version")) or 0) for one in found)


def as_object(answer: object, address: str) -> Mapping[str, object]:
    if not isinstance(answer, dict):
        raise _strange(address, "no JSON object")
    return answer


def as_list(answer: object, kind: type[T], address: str) -> list[T]:
    if not isinstance(answer, list) or not all(isinstance(one, kind) for one in answer):
        raise _strange(address, "not the list that was asked for")
    return answer


def find_failure(status: int, document: object, address: str) -> RegistryError | None:
    """The error for an answer that is a refusal."""
    if 200 <= status < 300:
        return None
    said: object = None
    code: int | None = None
    if isinstance(document, dict):
        said = document.get("message") or document.get("title") or document.get("detail")
        code = _read_int(document.get("error_code"))
    message = said if isinstance(said, str) else f"HTTP status {status}"
    if 300 <= status < 400:
        return RegistryError(
            f"{address} sends elsewhere (HTTP status {status}); give the address itself",
            status,
            code,
        )
    if status in (401, 403):
        return RegistryAuthorizationError(
            f"the schema registry at {address} refuses: {message}; who asks is said by "
            "basic.auth.user.info or bearer.auth.token",
            status,
            code,
        )
    if status == 404:
        hint = "" if code not in (None, 404) else "; is this the address of a schema registry?"
        return SchemaNotFoundError(
            f"the schema registry at {address} does not have it: {message}{hint}", status, code
        )
    if status == 409:
        return IncompatibleSchemaError(
            f"the schema registry at {address} does not take the schema: {message}", status, code
        )
    return RegistryError(f"the schema registry at {address} refuses: {message}", status, code)


def _read_type(found: object, address: str) -> SchemaType:
    if found is None:
        return "AVRO"
    for one in SCHEMA_TYPES:
        if found == one:
            return one
    # Of this schema, not of the registry: whoever reads other records goes on.
    raise ConfigurationError(
        f"{address} has a schema of the type {found!r:.60}, which is not known here"
    )


def _read_references(found: object) -> tuple[Reference, ...]:
    if not isinstance(found, list):
        return ()
    return tuple(
        Reference(
            name=str(one.get("name")),
            subject=str(one.get("subject")),
            version=_read_int(one.get("version")) or 0,
        )
        for one in found
        if isinstance(one, dict)
    )


def _read_int(found: object) -> int | None:
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def _read_id(found: object) -> int | None:
    """None for what records could not name."""
    number = _read_int(found)
    return number if number is not None and 0 <= number <= MOST_ID else None


def _read_guid(found: object) -> UUID | None:
    try:
        return UUID(found) if isinstance(found, str) else None
    except ValueError:
        return None


def _strange(address: str, what: str) -> RegistryError:
    return RegistryError(
        f"{address} answers with {what}; is this the address of a schema registry? Apicurio's "
        "ends with /apis/ccompat/v7"
    )
