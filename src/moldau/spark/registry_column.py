"""Columns out of records that name their schema by a registry: Avro, JSON Schema and Protobuf.

The driver asks the registry once for the schema that all rows are to have, which decides the type
of the column. Workers ask it for those that records were written with, each once in a process, and
turn every record into what the reader's schema says. So records of several versions are rows of one
type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaNotFoundError
from moldau.schemas.bounded_cache import BoundedCache
from moldau.schemas.codecs import SchemaCodec, make_codec
from moldau.schemas.model import ResolvedSchema, SchemaType
from moldau.schemas.registry import SchemaRegistry
from moldau.schemas.rules.framing import split_frame
from moldau.schemas.settings import URL
from moldau.spark.decode import column_decoder

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

    from moldau.spark.registry_types import Mapped

DecodeMode = Literal["permissive", "failfast"]
_MODES: Final = ("permissive", "failfast")

_Settings: TypeAlias = tuple[tuple[str, str], ...]
_ReadRecord: TypeAlias = Callable[[SchemaCodec, bytes], object]


class _Reader(NamedTuple):
    """The schema that all rows are to have, as it is sent to workers."""

    resolved: ResolvedSchema
    message: str | None


_registries: BoundedCache[_Settings, SchemaRegistry] = BoundedCache(16)
"""Of this process: a worker of Spark serves many tasks."""
_readers: BoundedCache[str, SchemaCodec] = BoundedCache(64)
"""Compiled readers' schemas of this process: a batch has a thousand records or ten."""


def from_registry(
    column: str | Column,
    registry: str | Mapping[str, str],
    *,
    subject: str,
    version: int | str = "latest",
    message: str | None = None,
    mode: DecodeMode = "permissive",
    expected_type: SchemaType | None = None,
) -> Column:
    """What the keys or values in a column say, by the schemas that they name.

        values = from_registry("value", "http://127.0.0.1:8081", subject="clicks-value")
        frame.select(values.alias("data")).select("data.*")

    `registry` is its address, or settings with Confluent's names (`schema.registry.url`,
    `basic.auth.user.info`, …). All rows are as one version of the `subject` has them, whichever
    version they were written with; of Protobuf, `message` says which message that is. What cannot
    be decoded is null with `mode="permissive"`, and fails the query with `"failfast"`. A registry
    that does not answer fails the task, which Spark repeats.
    """
    from pyspark.sql import functions as F

    if mode not in _MODES:
        raise ConfigurationError(f"mode: {mode!r} is neither permissive nor failfast")
    given = {URL: registry} if isinstance(registry, str) else dict(registry)
    settings = tuple(sorted(given.items()))
    found = _registry_of(settings)
    registered = found.version(subject, version)
    if expected_type not in (None, registered.schema.type):
        raise ConfigurationError(f"{subject} is {registered.schema.type}, not {expected_type}")
    reader = _Reader(found.resolve(registered.schema), message)
    kind, _ = _map_reader(reader)
    is_strict = mode == "failfast"
    decode = column_decoder(lambda: _make_read(settings, reader, mode), kind, is_strict=is_strict)
    return decode(F.col(column) if isinstance(column, str) else column)


def _registry_of(settings: _Settings) -> SchemaRegistry:
    return _registries.get(settings, lambda: SchemaRegistry.from_settings(dict(settings)))


def _make_read(
    settings: _Settings, reader: _Reader, mode: DecodeMode
) -> Callable[[bytes | None], object]:
    """Called in a worker, once for a batch; gives a function from bytes to a row."""
    registry = _registry_of(settings)
    wanted_type = reader.resolved.schema.type
    _, read_record = _map_reader(reader)

    def read(data: bytes | None) -> object:
        if data is None:
            return None
        try:
            framed = split_frame(data)
            codec = registry.codec(framed.key)
            if codec.schema_type != wanted_type:
                raise SchemaDecodingError(f"it is {codec.schema_type}, not {wanted_type}")
            return read_record(codec, framed.rest)
        except (SchemaDecodingError, SchemaNotFoundError, ConfigurationError) as error:
            if mode == "failfast":
                raise SchemaDecodingError(
                    f"a record cannot be decoded: {error}; mode='permissive' makes it null"
                ) from error
            return None

    return read


def _map_reader(reader: _Reader) -> tuple[DataType, _ReadRecord]:
    match reader.resolved.schema.type:
        case "AVRO":
            return _map_avro(reader)
        case "JSON":
            return _map_json(reader)
        case "PROTOBUF":
            return _map_protobuf(reader)


def _compiled(reader: _Reader) -> SchemaCodec:
    return _readers.get(repr(reader), lambda: make_codec(reader.resolved, message=reader.message))


def _map_avro(reader: _Reader) -> tuple[DataType, _ReadRecord]:
    from moldau.schemas.avro import AvroCodec
    from moldau.spark.registry_types import map_avro

    wanted = _compiled(reader)
    assert isinstance(wanted, AvroCodec)  # noqa: S101 by its type
    mapped = map_avro(wanted.schema)

    def read(codec: SchemaCodec, body: bytes) -> object:
        assert isinstance(codec, AvroCodec)  # noqa: S101 of the same type
        return _convert(mapped, codec.read(body, reader=wanted))

    return mapped.kind, read


def _map_json(reader: _Reader) -> tuple[DataType, _ReadRecord]:
    from moldau.spark.registry_types import map_json

    mapped = map_json(json.loads(reader.resolved.schema.text))

    def read(codec: SchemaCodec, body: bytes) -> object:
        return _convert(mapped, codec.read(body))

    return mapped.kind, read


def _convert(mapped: Mapped, value: object) -> object:
    try:
        return mapped.convert(value)
    except Exception as error:  # times and numbers that no column has, JSON of another form, ...
        raise SchemaDecodingError(
            f"it is not as its reader wants it: {str(error) or type(error).__name__}"
        ) from error


def _map_protobuf(reader: _Reader) -> tuple[DataType, _ReadRecord]:
    from moldau.schemas.protobuf import ProtobufCodec
    from moldau.spark.registry_types import map_protobuf

    wanted = _compiled(reader)
    assert isinstance(wanted, ProtobufCodec)  # noqa: S101 by its type
    kind = wanted.message_class()
    mapped = map_protobuf(kind.DESCRIPTOR)

    def read(codec: SchemaCodec, body: bytes) -> object:
        assert isinstance(codec, ProtobufCodec)  # noqa: S101 of the same type
        return _convert(mapped, codec.read(body, into=kind))

    return mapped.kind, read
