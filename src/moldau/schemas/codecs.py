"""What turns values into bytes and back by one schema, of whichever type. A shell: libraries load.

fastavro, jsonschema and protobuf do the work, each loaded with the first schema of its type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from moldau.errors import ConfigurationError, MissingExtraError, MoldauError
from moldau.schemas.model import ResolvedSchema, SchemaType

T = TypeVar("T")


class SchemaCodec(Protocol):
    """One schema at work. Safe for threads.

    A value is what programs have: dictionaries for Avro and JSON, a message for Protobuf, times and
    decimals as Python has them. A document is the same as JSON has it.
    """

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def name(self) -> str | None:
        """The name of the record or message, or the title; None where there is none."""

    def read(self, body: bytes, indexes_apart: bytes | None = None) -> object:
        """The value; raises SchemaDecodingError."""

    def write(self, value: object) -> bytes:
        """All that stands behind the number of the schema; raises SchemaEncodingError."""

    def to_document(self, value: object) -> object:
        """The same for JSON."""

    def from_document(self, document: object) -> object:
        """A value that `write` takes; raises SchemaEncodingError, with the place that is wrong."""


def make_codec(schema: ResolvedSchema, *, message: str | None = None) -> SchemaCodec:
    """Raises ConfigurationError for a schema that is none, and MissingExtraError.

    `message` is the full name of the Protobuf message that is written; without it, the first one.
    """
    match schema.schema.type:
        case "AVRO":
            return _load("fastavro", lambda: _make_avro(schema))
        case "JSON":
            return _load("jsonschema", lambda: _make_json(schema))
        case "PROTOBUF":
            return _load("protobuf and grpcio-tools", lambda: _make_protobuf(schema, message))


def _make_avro(schema: ResolvedSchema) -> SchemaCodec:
    from moldau.schemas.avro import AvroCodec

    return AvroCodec(schema)


def _make_json(schema: ResolvedSchema) -> SchemaCodec:
    from moldau.schemas.json_schema import JsonCodec

    return JsonCodec(schema)


def _make_protobuf(schema: ResolvedSchema, message: str | None) -> SchemaCodec:
    from moldau.schemas.protobuf import ProtobufCodec

    return ProtobufCodec(schema, message)


def _load(what: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ImportError as error:
        raise MissingExtraError(
            f"schemas of this type need {what}, which is not installed ({error}): "
            "pip install 'moldau[schemas]'"
        ) from error
    except RecursionError as error:
        raise ConfigurationError("the schema is nested too deeply to be used") from error
    except MoldauError:
        raise
    except Exception as error:  # libraries stumble over what is no schema in many ways
        raise ConfigurationError(f"the schema cannot be used: {error!r:.200}") from error
