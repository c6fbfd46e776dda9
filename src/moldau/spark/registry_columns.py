"""Columns out of records that name their schema by a registry: Avro, JSON Schema and Protobuf.

The driver asks the registry once for the schema that all rows are to have, which decides the type
of the column. Workers ask it for those that records were written with, each once in a process, and
turn every record into what the reader's schema says. So records of several versions are rows of one
type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from decimal import Decimal
from operator import getitem
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, cast

from pyspark.sql import Column, types
from pyspark.sql import functions as F

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaNotFoundError
from moldau.schemas.model import ResolvedSchema, SchemaType
from moldau.schemas.registry import BoundedCache, SchemaCodec, SchemaRegistry, make_codec
from moldau.schemas.rules.avro import full_name, named_types, qualify
from moldau.schemas.rules.documents import to_document
from moldau.schemas.rules.framing import split_frame
from moldau.schemas.settings import URL
from moldau.spark.decode import column_decoder, spark_type_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from moldau.schemas.avro import AvroCodec
    from moldau.schemas.protobuf import ProtobufCodec


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


def _map_reader(reader: _Reader) -> tuple[types.DataType, _ReadRecord]:
    match reader.resolved.schema.type:
        case "AVRO":
            return _map_avro(reader)
        case "JSON":
            return _map_json(reader)
        case "PROTOBUF":
            return _map_protobuf(reader)


def _compiled(reader: _Reader) -> SchemaCodec:
    return _readers.get(repr(reader), lambda: make_codec(reader.resolved, message=reader.message))


def _map_avro(reader: _Reader) -> tuple[types.DataType, _ReadRecord]:
    wanted = cast("AvroCodec", _compiled(reader))
    mapped = map_avro(wanted.schema)

    def read(codec: SchemaCodec, body: bytes) -> object:
        return _convert(mapped, cast("AvroCodec", codec).read(body, reader=wanted))

    return mapped.kind, read


def _map_json(reader: _Reader) -> tuple[types.DataType, _ReadRecord]:
    mapped = map_json(json.loads(reader.resolved.schema.text))

    def read(codec: SchemaCodec, body: bytes) -> object:
        return _convert(mapped, codec.read(body))

    return mapped.kind, read


def _convert(mapped: ColumnMapping, value: object) -> object:
    try:
        return mapped.convert(value)
    except Exception as error:  # times and numbers that no column has, JSON of another form, ...
        raise SchemaDecodingError(
            f"it is not as its reader wants it: {str(error) or type(error).__name__}"
        ) from error


def _map_protobuf(reader: _Reader) -> tuple[types.DataType, _ReadRecord]:
    kind = cast("ProtobufCodec", _compiled(reader)).message_class()
    mapped = map_protobuf(kind.DESCRIPTOR)

    def read(codec: SchemaCodec, body: bytes) -> object:
        return _convert(mapped, cast("ProtobufCodec", codec).read(body, into=kind))

    return mapped.kind, read


# Spark's types for schemas of a registry, and values of these types. What has no column of its own
# (a union of several types, `google.protobuf.Any`) is JSON text.


Convert = Callable[[Any], object]
"""From what a codec reads to what Arrow takes for the column; Any: of another language's types."""


_LONG: Final = range(-(1 << 63), 1 << 63)


class ColumnMapping(NamedTuple):
    """A column's type, and how values get there."""

    kind: types.DataType
    convert: Convert


def _same(value: object) -> object:
    return value


def _to_json(value: object) -> object:
    return None if value is None else json.dumps(value, ensure_ascii=False)


def _to_long(value: Any) -> object:
    found = int(value)
    if found not in _LONG:
        raise ValueError("a number is beyond 64 bits")
    return found


def _or_null(mapping: ColumnMapping) -> ColumnMapping:
    kind, convert = mapping
    return ColumnMapping(kind, lambda value: None if value is None else convert(value))


def _make_array(item: ColumnMapping) -> ColumnMapping:
    return ColumnMapping(
        types.ArrayType(item.kind), lambda value: [item.convert(one) for one in value]
    )


def _make_map(inner: ColumnMapping) -> ColumnMapping:
    return ColumnMapping(
        types.MapType(types.StringType(), inner.kind),
        lambda value: {key: inner.convert(one) for key, one in value.items()},
    )


def _make_struct(
    fields: Mapping[str, ColumnMapping], read: Callable[[Any, str], object]
) -> ColumnMapping:
    """`read` gives the value of a field."""
    converts = [(name, one.convert) for name, one in fields.items()]
    return ColumnMapping(
        _struct_type(fields), lambda value: {name: one(read(value, name)) for name, one in converts}
    )


def _struct_type(fields: Mapping[str, ColumnMapping]) -> types.StructType:
    return types.StructType([types.StructField(name, one.kind) for name, one in fields.items()])


# Avro

_WIDER: Final[Mapping[frozenset[object], types.DataType]] = {
    frozenset({"int", "long"}): types.LongType(),
    frozenset({"float", "double"}): types.DoubleType(),
}
_AVRO_LOGICAL: Final[Mapping[object, ColumnMapping]] = {
    "uuid": ColumnMapping(types.StringType(), str),
    "time-millis": ColumnMapping(types.StringType(), str),
    "time-micros": ColumnMapping(types.StringType(), str),
    "local-timestamp-millis": ColumnMapping(types.TimestampNTZType(), _same),
    "local-timestamp-micros": ColumnMapping(types.TimestampNTZType(), _same),
}


def map_avro(schema: object) -> ColumnMapping:
    """Of a schema in which every name is defined; raises ConfigurationError for a type that
    contains itself."""
    return _AvroMapping(named_types(schema)).map(schema, "", ())


class _AvroMapping:
    def __init__(self, names: Mapping[str, Mapping[str, object]]) -> None:
        self._names = names

    def map(self, node: object, namespace: str, above: tuple[str, ...]) -> ColumnMapping:
        if isinstance(node, list):
            return self._map_union(node, namespace, above)
        if isinstance(node, str):
            named = self._names.get(qualify(node, namespace)) or self._names.get(node)
            if named is not None:
                return self.map(named, namespace, above)
            return ColumnMapping(spark_type_of(node), _same)
        if not isinstance(node, Mapping):
            raise ConfigurationError(f"{node!r} is no type of Avro")
        return self._map_object(node, namespace, above)

    def _map_object(
        self, node: Mapping[str, object], namespace: str, above: tuple[str, ...]
    ) -> ColumnMapping:
        kind = node.get("type")
        if kind in ("record", "error"):
            return self._map_record(node, namespace, above)
        if kind == "array":
            return _make_array(self.map(node["items"], namespace, above))
        if kind == "map":
            return _make_map(self.map(node["values"], namespace, above))
        logical = _AVRO_LOGICAL.get(node.get("logicalType"))
        if logical is not None:
            return logical
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind in self._names):
            return self.map(kind, namespace, above)
        return ColumnMapping(spark_type_of(dict(node)), _same)

    def _map_record(
        self, node: Mapping[str, object], namespace: str, above: tuple[str, ...]
    ) -> ColumnMapping:
        name = full_name(node, namespace)
        if name in above:
            raise ConfigurationError(f"the record {name} contains itself, which no column can")
        inner, within = name.rpartition(".")[0], (*above, name)
        declared = node.get("fields")
        fields = {
            str(one["name"]): self.map(one["type"], inner, within)
            for one in (declared if isinstance(declared, list) else ())
        }
        return _make_struct(fields, getitem)

    def _map_union(
        self, node: list[object], namespace: str, above: tuple[str, ...]
    ) -> ColumnMapping:
        others = [one for one in node if one != "null"]
        if len(others) == 1:
            return _or_null(self.map(others[0], namespace, above))
        if all(isinstance(one, str) for one in others) and frozenset(others) in _WIDER:
            return ColumnMapping(_WIDER[frozenset(others)], _same)
        return ColumnMapping(types.StringType(), lambda value: _to_json(to_document(value)))


# JSON Schema

_JSON_PLAIN: Final[Mapping[object, ColumnMapping]] = {
    "string": ColumnMapping(types.StringType(), _same),
    "integer": ColumnMapping(types.LongType(), _to_long),
    "number": ColumnMapping(types.DoubleType(), float),
    "boolean": ColumnMapping(types.BooleanType(), _same),
}


def map_json(schema: object) -> ColumnMapping:
    """Of a JSON Schema; what it does not pin down is JSON text."""
    text = ColumnMapping(types.StringType(), _to_json)
    if not isinstance(schema, Mapping):
        return text
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind in _JSON_PLAIN:
        return _or_null(_JSON_PLAIN[kind])
    if kind == "array":
        return _or_null(_make_array(map_json(schema.get("items"))))
    return (_map_json_object(schema) or text) if kind == "object" else text


def _map_json_object(schema: Mapping[str, object]) -> ColumnMapping | None:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        fields = {str(name): map_json(one) for name, one in properties.items()}
        return _or_null(_make_struct(fields, lambda value, name: value.get(name)))
    more = schema.get("additionalProperties")
    return _or_null(_make_map(map_json(more))) if isinstance(more, Mapping) else None


# Protobuf

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON: Final = frozenset(
    f"google.protobuf.{name}"
    for name in ("Any", "Struct", "Value", "ListValue", "FieldMask", "Duration")
)


def map_protobuf(described: Descriptor) -> ColumnMapping:
    """Of a message; raises ConfigurationError for one that contains itself."""
    return _map_message(described, ())


def _map_message(described: Descriptor, above: tuple[str, ...]) -> ColumnMapping:
    name = described.full_name
    if name == "google.protobuf.Timestamp":
        return ColumnMapping(types.TimestampType(), lambda value: value.ToDatetime(UTC))
    if name in _WRAPPERS:
        inner = _map_single(described.fields_by_name["value"], above)
        return ColumnMapping(inner.kind, lambda value: inner.convert(value.value))
    if name in above:
        raise ConfigurationError(f"the message {name} contains itself, which no column can")
    if name in _AS_JSON or not described.fields:
        return ColumnMapping(types.StringType(), _message_to_json)
    fields = {one.name: _map_field(one, (*above, name)) for one in described.fields}
    converts = [(one.name, fields[one.name].convert, one.has_presence) for one in described.fields]

    def convert(message: Any) -> object:
        return {
            key: None if presence and not message.HasField(key) else make(getattr(message, key))
            for key, make, presence in converts
        }

    return ColumnMapping(_struct_type(fields), convert)


def _map_field(field: FieldDescriptor, above: tuple[str, ...]) -> ColumnMapping:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key = _map_single(message.fields_by_name["key"], above)
        inner = _map_single(message.fields_by_name["value"], above)
        return ColumnMapping(
            types.MapType(key.kind, inner.kind),
            lambda value: {key.convert(one): inner.convert(value[one]) for one in value},
        )
    single = _map_single(field, above)
    if not _is_repeated(field):
        return single
    return _make_array(single)


def _is_repeated(field: FieldDescriptor) -> bool:
    found = getattr(field, "is_repeated", None)  # since protobuf 6.31; before it was a number
    return bool(field.label == field.LABEL_REPEATED) if found is None else bool(found)


def _map_single(field: FieldDescriptor, above: tuple[str, ...]) -> ColumnMapping:
    if field.message_type is not None:
        return _map_message(field.message_type, above)
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return ColumnMapping(types.StringType(), lambda value: names.get(value, str(value)))
    if field.type == field.TYPE_BYTES:
        return ColumnMapping(types.BinaryType(), _same)
    return _BY_CPP_TYPE[field.cpp_type]


_BY_CPP_TYPE: Final[Mapping[int, ColumnMapping]] = {
    1: ColumnMapping(types.IntegerType(), _same),  # CPPTYPE_INT32, and so on in its order
    2: ColumnMapping(types.LongType(), _same),
    3: ColumnMapping(types.LongType(), _same),  # unsigned, 32 bits
    4: ColumnMapping(types.DecimalType(20, 0), Decimal),  # unsigned, 64 bits
    5: ColumnMapping(types.DoubleType(), _same),
    6: ColumnMapping(types.FloatType(), _same),
    7: ColumnMapping(types.BooleanType(), _same),
    9: ColumnMapping(types.StringType(), _same),
}


def _message_to_json(message: Any) -> object:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(message, preserving_proto_field_name=True, indent=None)
