"""What a registry keeps: schemas, what they refer to, and under which names. Values only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, TypeAlias
from uuid import UUID

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
SCHEMA_TYPES: Final[tuple[SchemaType, ...]] = ("AVRO", "JSON", "PROTOBUF")

SchemaKey: TypeAlias = int | UUID
"""How a record names its schema: by the registry's number, or by a GUID that holds everywhere."""

MOST_ID: Final = (1 << 31) - 1
"""Registries count schemas in 31 bits."""

Field = Literal["key", "value"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Another schema that one uses; `name` is how it says so: a type, a `$ref`, an import."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A schema as it is registered."""

    text: str
    type: SchemaType = "AVRO"
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredSchema:
    """A schema and what the registry calls it, as far as it was asked."""

    schema: Schema
    id: int | None = None
    guid: UUID | None = None
    subject: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSchema:
    """A schema with all that it refers to, which is resolved as well; never in a circle."""

    schema: Schema
    referred: Mapping[str, ResolvedSchema] = field(default_factory=dict)

    def all_referred(self) -> Iterator[tuple[str, ResolvedSchema]]:
        """Each with its name, those that others need before these; a name may come again."""
        for name, one in self.referred.items():
            yield from one.all_referred()
            yield name, one


class Compatibility(NamedTuple):
    """Whether a registry would take a schema, and why not."""

    is_compatible: bool
    messages: tuple[str, ...] = ()
