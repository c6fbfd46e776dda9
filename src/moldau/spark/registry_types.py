"""Spark's types for schemas of a registry, and values of these types. A rule.

What has no column of its own (a union of several types, `google.protobuf.Any`) is JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import types

from moldau.errors import ConfigurationError
from moldau.schemas.rules.avro_names import full_name, named_types, qualify
from moldau.schemas.rules.documents import to_document
from moldau.spark.decode import spark_type_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

Convert = Callable[[Any], object]
"""From what a codec reads to what Arrow takes for the column; Any: of another language's types."""


_LONG: Final = range(-(1 << 63), 1 << 63)


class Mapped(NamedTuple):
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


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


# Avro

_WIDER: Final[Mapping[frozenset[object], types.DataType]] = {
    frozenset({"int", "long"}): types.LongType(),
    frozenset({"float", "double"}): types.DoubleType(),
}
_AVRO_LOGICAL: Final[Mapping[object, Mapped]] = {
    "uuid": Mapped(types.StringType(), str),
    "time-millis": Mapped(types.StringType(), str),
    "time-micros": Mapped(types.StringType(), str),
    "local-timestamp-millis": Mapped(types.TimestampNTZType(), _same),
    "local-timestamp-micros": Mapped(types.TimestampNTZType(), _same),
}


def map_avro(schema: object) -> Mapped:
    """Of a schema in which every name is defined; raises ConfigurationError for a type that
    contains itself."""
    return _AvroMapping(named_types(schema)).map(schema, "", ())


class _AvroMapping:
    def __init__(self, names: Mapping[str, Mapping[str, object]]) -> None:
        self._names = names

    def map(self, node: object, namespace: str, above: tuple[str, ...]) -> Mapped:
        if isinstance(node, list):
            return self._map_union(node, namespace, above)
        if isinstance(node, str):
            named = self._names.get(qualify(node, namespace)) or self._names.get(node)
            if named is not None:
                return self.map(named, namespace, above)
            return Mapped(spark_type_of(node), _same)
        if not isinstance(node, Mapping):
            raise ConfigurationError(f"{node!r} is no type of Avro")
        return self._map_object(node, namespace, above)

    def _map_object(
        self, node: Mapping[str, object], namespace: str, above: tuple[str, ...]
    ) -> Mapped:
        kind = node.get("type")
        if kind in ("record", "error"):
            return self._map_record(node, namespace, above)
        if kind == "array":
            item = self.map(node["items"], namespace, above)
            return Mapped(
                types.ArrayType(item.kind), lambda value: [item.convert(one) for one in value]
            )
        if kind == "map":
            inner = self.map(node["values"], namespace, above)
            return Mapped(
                types.MapType(types.StringType(), inner.kind),
                lambda value: {key: inner.convert(one) for key, one in value.items()},
            )
        logical = _AVRO_LOGICAL.get(node.get("logicalType"))
        if logical is not None:
            return logical
        if isinstance(kind, dict | list) or (isinstance(kind, str) and kind in self._names):
            return self.map(kind, namespace, above)
        return Mapped(spark_type_of(dict(node)), _same)

    def _map_record(
        self, node: Mapping[str, object], namespace: str, above: tuple[str, ...]
    ) -> Mapped:
        name = full_name(node, namespace)
        if name in above:
            raise ConfigurationError(f"the record {name} contains itself, which no column can")
        inner, within = name.rpartition(".")[0], (*above, name)
        declared = node.get("fields")
        fields = {
            str(one["name"]): self.map(one["type"], inner, within)
            for one in (declared if isinstance(declared, list) else ())
        }
        kind = types.StructType([types.StructField(key, one.kind) for key, one in fields.items()])
        converts = [(key, one.convert) for key, one in fields.items()]
        return Mapped(kind, lambda value: {key: one(value[key]) for key, one in converts})

    def _map_union(self, node: list[object], namespace: str, above: tuple[str, ...]) -> Mapped:
        others = [one for one in node if one != "null"]
        if len(others) == 1:
            found = self.map(others[0], namespace, above)
            return Mapped(found.kind, _nullable(found.convert))
        if all(isinstance(one, str) for one in others) and frozenset(others) in _WIDER:
            return Mapped(_WIDER[frozenset(others)], _same)
        return Mapped(types.StringType(), lambda value: _to_json(to_document(value)))


# JSON Schema

_JSON_PLAIN: Final[Mapping[object, Mapped]] = {
    "string": Mapped(types.StringType(), _same),
    "integer": Mapped(types.LongType(), _to_long),
    "number": Mapped(types.DoubleType(), float),
    "boolean": Mapped(types.BooleanType(), _same),
}


def map_json(schema: object) -> Mapped:
    """Of a JSON Schema; what it does not pin down is JSON text."""
    text = Mapped(types.StringType(), _to_json)
    if not isinstance(schema, Mapping):
        return text
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [one for one in kind if one != "null"]
        kind = others[0] if len(others) == 1 else None
    if kind in _JSON_PLAIN:
        found = _JSON_PLAIN[kind]
        return Mapped(found.kind, _nullable(found.convert))
    if kind == "array":
        item = map_json(schema.get("items"))
        return Mapped(
            types.ArrayType(item.kind),
            _nullable(lambda value: [item.convert(one) for one in value]),
        )
    return (_map_json_object(schema) or text) if kind == "object" else text


def _map_json_object(schema: Mapping[str, object]) -> Mapped | None:
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        fields = {str(name): map_json(one) for name, one in properties.items()}
        kind = types.StructType([types.StructField(name, one.kind) for name, one in fields.items()])
        converts = [(name, one.convert) for name, one in fields.items()]
        return Mapped(
            kind, _nullable(lambda value: {name: one(value.get(name)) for name, one in converts})
        )
    more = schema.get("additionalProperties")
    if isinstance(more, Mapping):
        inner = map_json(more)
        return Mapped(
            types.MapType(types.StringType(), inner.kind),
            _nullable(lambda value: {key: inner.convert(one) for key, one in value.items()}),
        )
    return None


# Protobuf

_WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_AS_JSON: Final = frozenset(
    f"google.protobuf.{name}"
    for name in ("Any", "Struct", "Value", "ListValue", "FieldMask", "Duration")
)


def map_protobuf(described: Descriptor) -> Mapped:
    """Of a message; raises ConfigurationError for one that contains itself."""
    return _map_message(described, ())


def _map_message(described: Descriptor, above: tuple[str, ...]) -> Mapped:
    name = described.full_name
    if name == "google.protobuf.Timestamp":
        return Mapped(types.TimestampType(), lambda value: value.ToDatetime(UTC))
    if name in _WRAPPERS:
        inner = _map_single(described.fields_by_name["value"], above)
        return Mapped(inner.kind, lambda value: inner.convert(value.value))
    if name in above:
        raise ConfigurationError(f"the message {name} contains itself, which no column can")
    if name in _AS_JSON or not described.fields:
        return Mapped(types.StringType(), _message_to_json)
    fields = {one.name: _map_field(one, (*above, name)) for one in described.fields}
    kind = types.StructType([types.StructField(key, one.kind) for key, one in fields.items()])
    converts = [(one.name, fields[one.name].convert, one.has_presence) for one in described.fields]

    def convert(message: Any) -> object:
        return {
            key: None if presence and not message.HasField(key) else make(getattr(message, key))
            for key, make, presence in converts
        }

    return Mapped(kind, convert)


def _map_field(field: FieldDescriptor, above: tuple[str, ...]) -> Mapped:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        key = _map_single(message.fields_by_name["key"], above)
        inner = _map_single(message.fields_by_name["value"], above)
        return Mapped(
            types.MapType(key.kind, inner.kind),
            lambda value: {key.convert(one): inner.convert(value[one]) for one in value},
        )
    single = _map_single(field, above)
    if not _is_repeated(field):
        return single
    return Mapped(
        types.ArrayType(single.kind), lambda value: [single.convert(one) for one in value]
    )


def _is_repeated(field: FieldDescriptor) -> bool:
    found = getattr(field, "is_repeated", None)  # since protobuf 6.31; before it was a number
    return bool(field.label == field.LABEL_REPEATED) if found is None else bool(found)


def _map_single(field: FieldDescriptor, above: tuple[str, ...]) -> Mapped:
    if field.message_type is not None:
        return _map_message(field.message_type, above)
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return Mapped(types.StringType(), lambda value: names.get(value, str(value)))
    if field.type == field.TYPE_BYTES:
        return Mapped(types.BinaryType(), _same)
    return _BY_CPP_TYPE[field.cpp_type]


_BY_CPP_TYPE: Final[Mapping[int, Mapped]] = {
    1: Mapped(types.IntegerType(), _same),  # CPPTYPE_INT32, and so on in its order
    2: Mapped(types.LongType(), _same),
    3: Mapped(types.LongType(), _same),  # unsigned, 32 bits
    4: Mapped(types.DecimalType(20, 0), Decimal),  # unsigned, 64 bits
    5: Mapped(types.DoubleType(), _same),
    6: Mapped(types.FloatType(), _same),
    7: Mapped(types.BooleanType(), _same),
    9: Mapped(types.StringType(), _same),
}


def _message_to_json(message: Any) -> object:
    from google.protobuf.json_format import MessageToJson

    return MessageToJson(message, preserving_proto_field_name=True, indent=None)
