"""Avro, by fastavro. A shell around a library."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Final

from fastavro import parse_schema, schemaless_reader, schemaless_writer

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.schemas.model import ResolvedSchema, SchemaType
from moldau.schemas.rules.avro import AvroBounds, AvroDocuments, AvroType, full_name, resolve_avro
from moldau.schemas.rules.documents import to_document


class AvroCodec:
    """One schema of Avro, compiled. Implements `codecs.SchemaCodec`."""

    schema_type: Final[SchemaType] = "AVRO"

    def __init__(self, schema: ResolvedSchema) -> None:
        self.schema: Final[AvroType] = resolve_avro(schema)
        try:
            self._parsed = parse_schema(self.schema)  # type: ignore[arg-type]  # it says what is none
        except Exception as error:  # the parser stumbles in many ways
            raise ConfigurationError(f"this is no schema of Avro: {error!r}") from error
        self._documents = AvroDocuments(self.schema)
        self._bounds = AvroBounds(self.schema)

    @property
    def name(self) -> str | None:
        if isinstance(self.schema, Mapping) and "name" in self.schema:
            return full_name(self.schema, "")
        return None

    def read(
        self,
        body: bytes,
        indexes_apart: bytes | None = None,
        *,
        reader: AvroCodec | None = None,
    ) -> object:
        """With a reader's schema, as that one has it: fields are renamed, dropped and filled in."""
        self._bounds.check(body)
        stream = io.BytesIO(body)
        try:
            found: object = schemaless_reader(
                stream, self._parsed, None if reader is None else reader._parsed
            )
        except Exception as error:  # the decoder stumbles over foreign bytes in many ways
            raise SchemaDecodingError(
                f"the bytes are not {self.name or 'what the Avro schema says'}: {_problem(error)}"
            ) from error
        if stream.tell() != len(body):
            raise SchemaDecodingError(
                f"{len(body) - stream.tell()} bytes are left behind "
                f"{self.name or 'what the Avro schema says'}: it was written with another schema"
            )
        return found

    def write(self, value: object) -> bytes:
        stream = io.BytesIO()
        self._bounds.check_value(value)
        try:
            schemaless_writer(stream, self._parsed, value)
            self._bounds.check(stream.getvalue())  # what nobody could read
        except Exception as error:  # the encoder stumbles over other values in many ways
            raise SchemaEncodingError(
                f"the value is not {self.name or 'what the Avro schema says'}: "
                f"{str(error) or type(error).__name__}"
            ) from error
        return stream.getvalue()

    def to_document(self, value: object) -> object:
        return to_document(value)

    def from_document(self, document: object) -> object:
        return self._documents.read(document)


def _problem(error: Exception) -> str:
    if isinstance(error, EOFError | IndexError):
        return "they end too early"
    return str(error) or type(error).__name__
