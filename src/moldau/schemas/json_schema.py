"""JSON Schema, by jsonschema. A shell around a library.

References are those that are registered; nothing is ever fetched from where a `$ref` points.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import Draft7Validator, validator_for
from referencing import Registry, Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT7

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.schemas.json_keywords import OverTimeError, bounded, checked_within
from moldau.schemas.model import ResolvedSchema, SchemaType
from moldau.schemas.rules.documents import to_document

_CHECK_SECONDS: Final = 5.0
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


class JsonCodec:
    """One JSON Schema, compiled. Implements `codecs.SchemaCodec`.

    What is read is checked against the schema, and so is what is written.
    """

    schema_type: Final[SchemaType] = "JSON"

    def __init__(self, schema: ResolvedSchema) -> None:
        self.schema: Final[Any] = _parse(schema.schema.text)
        kind = validator_for(self.schema, default=Draft7Validator)
        try:
            kind.check_schema(self.schema)
        except SchemaError as error:
            raise ConfigurationError(f"this is no JSON Schema: {error.message}") from error
        resources = [
            (name, Resource.from_contents(_parse(one.schema.text), DRAFT7))
            for name, one in schema.all_referred()
        ]
        registry = Registry().with_resources(resources)
        self._validator = bounded(kind)(self.schema, registry=registry)

    @property
    def name(self) -> str | None:
        title = self.schema.get("title") if isinstance(self.schema, Mapping) else None
        return title if isinstance(title, str) else None

    def read(self, body: bytes, indexes_apart: bytes | None = None) -> object:
        try:
            found: object = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise SchemaDecodingError(f"the bytes are no JSON: {error}") from error
        problem = self._find_problem(found)
        if problem is not None:
            raise SchemaDecodingError(f"the JSON is not {self.name or 'of its schema'}: {problem}")
        return found

    def write(self, value: object) -> bytes:
        problem = self._find_problem(value)
        if problem is not None:
            raise SchemaEncodingError(f"the value is not {self.name or 'of its schema'}: {problem}")
        try:
            return _encode(value).encode()
        except (ValueError, TypeError, RecursionError) as error:
            raise SchemaEncodingError(f"the value is no JSON: {error}") from error

    def to_document(self, value: object) -> object:
        return to_document(value)

    def from_document(self, document: object) -> object:
        return document

    def _find_problem(self, value: object) -> str | None:
        try:
            with checked_within(_CHECK_SECONDS):
                self._validator.validate(value)
        except OverTimeError:
            return f"it takes longer than {_CHECK_SECONDS:g} seconds to check"
        except ValidationError as error:
            where = error.json_path
            return error.message if where == "$" else f"at {where[2:]}: {error.message}"
        except Unresolvable as error:
            raise ConfigurationError(
                f"the schema refers to {error.ref!r}, which is not among its registered references"
            ) from error
        except RecursionError:
            return "it is nested too deeply"
        except (ArithmeticError, ValueError, TypeError, AttributeError) as error:
            return f"it cannot be checked: {error}"  # numbers beyond all measure, for one
        return None


def _parse(text: str) -> Any:  # Any: it is a schema of another language, walked by its library
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"a JSON Schema is JSON, and this is none: {error}") from None
