"""What Confluent's serializers write is read by ours, and what ours write by theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import Schema as TheirSchema
from confluent_kafka.schema_registry import (
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from moldau.schemas import Reference, Schema, SchemaRegistry, decode_any
from moldau.schemas.model import ResolvedSchema
from moldau.schemas.protobuf import ProtobufCodec
from moldau.schemas.rules.framing import make_head
from support.schema_registry import RegistryServer, serve_registry

CONTEXT = SerializationContext("orders", MessageField.VALUE)

LINE = {
    "type": "record",
    "name": "Line",
    "namespace": "shop",
    "fields": [
        {"name": "article", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12,
                                   "scale": 2}},
    ],
}  # fmt: skip
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "lines", "type": {"type": "array", "items": "shop.Line"}},
        {"name": "gift", "type": ["null", "shop.Line", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "SENT"]}},
        {"name": "tags", "type": {"type": "map", "values": ["int", "string"]}},
    ],
}
VALUE = {
    "id": UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    "at": datetime(2026, 11, 16, 4, 5, 6, 789012, tzinfo=UTC),
    "day": date(2026, 11, 16),
    "lines": [{"article": "a", "price": Decimal("12.30")}],
    "gift": {"article": "b", "price": Decimal("0.01")},
    "state": "SENT",
    "tags": {"n": 5, "s": "x"},
}

CUSTOMER_PROTO = """
syntax = "proto3";
package shop;
message Customer { string name = 1; message Place { string city = 1; } Place place = 2; }
"""
ORDER_PROTO = """
syntax = "proto3";
package shop;
import "shop/customer.proto";
import "google/protobuf/timestamp.proto";
message Ignored { int32 x = 1; }
message Order {
  int64 id = 1;
  Customer customer = 2;
  google.protobuf.Timestamp at = 3;
  message Line { string article = 1; double price = 2; }
  repeated Line lines = 4;
  map<string, int32> counts = 5;
  oneof payment { string card = 6; int32 cash = 7; }
  optional string note = 8;
}
"""


def record(*fields: object) -> dict[str, object]:
    return {"type": "record", "name": "E", "fields": fields}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serve_registry() as found:
        yield found


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url)


@pytest.fixture
def theirs(server: RegistryServer) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": server.url}) as client:
        yield client


def test_avro_with_references_unions_and_logical_types(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    registry.register("line", Schema(text=json.dumps(LINE)))
    schema = Schema(
        text=json.dumps(ORDER),
        references=(Reference(name="shop.Line", subject="line", version=1),),
    )
    number = registry.register("orders-value", schema).id
    assert number is not None
    their_schema = TheirSchema(json.dumps(ORDER), "AVRO", [SchemaReference("shop.Line", "line", 1)])
    written = AvroSerializer(theirs, their_schema, conf={"auto.register.schemas": False})(
        VALUE, CONTEXT
    )
    codec = registry.codec(number)

    assert written == make_head(number) + codec.write(VALUE)
    assert codec.read(written[5:]) == VALUE
    assert AvroDeserializer(theirs)(make_head(number) + codec.write(VALUE), CONTEXT) == VALUE
    shown = decode_any(registry, written)
    assert (shown.id, shown.name, shown.type) == (number, "shop.Order", "AVRO")
    assert json.loads(json.dumps(shown.value))["lines"] == [{"article": "a", "price": "12.30"}]
    assert codec.write(codec.from_document(shown.value)) == written[5:]


def test_an_avro_record_of_an_older_version_is_read_as_the_reader_wants_it(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    old = record({"name": "a", "type": "int"}, {"name": "gone", "type": "string"})
    new = record(
        {"name": "b", "type": "long", "aliases": ["a"]},
        {"name": "c", "type": "string", "default": "?"},
    )
    serializer = AvroSerializer(theirs, json.dumps(old))
    written = serializer({"a": 5, "gone": "x"}, CONTEXT)
    from moldau.schemas.avro import AvroCodec

    writer = registry.codec(1)
    assert isinstance(writer, AvroCodec)
    reader = AvroCodec(ResolvedSchema(schema=Schema(text=json.dumps(new))))

    assert writer.read(written[5:], reader=reader) == {"b": 5, "c": "?"}
    assert AvroDeserializer(theirs, json.dumps(new))(written, CONTEXT) == {"b": 5, "c": "?"}


def test_json_schema_with_references(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    place = {"type": "object", "title": "Place", "properties": {"city": {"type": "string"}},
             "required": ["city"]}  # fmt: skip
    person = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Person",
        "type": "object",
        "properties": {"name": {"type": "string"}, "home": {"$ref": "place.json"}},
    }
    registry.register("place", Schema(text=json.dumps(place), type="JSON"))
    reference = Reference(name="place.json", subject="place", version=1)
    schema = Schema(text=json.dumps(person), type="JSON", references=(reference,))
    number = registry.register("orders-value", schema).id
    assert number is not None
    their_schema = TheirSchema(
        json.dumps(person), "JSON", [SchemaReference("place.json", "place", 1)]
    )
    value = {"name": "x", "home": {"city": "Praha"}}
    written = JSONSerializer(their_schema, theirs, conf={"auto.register.schemas": False})(
        value, CONTEXT
    )
    codec = registry.codec(number)

    assert decode_any(registry, written).value == value
    assert decode_any(registry, written).name == "Person"
    ours = make_head(number) + codec.write(value)
    assert JSONDeserializer(their_schema, schema_registry_client=theirs)(ours, CONTEXT) == value


def test_protobuf_with_references_and_a_message_that_is_not_the_first(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    registry.register("customer", Schema(text=CUSTOMER_PROTO, type="PROTOBUF"))
    reference = Reference(name="shop/customer.proto", subject="customer", version=1)
    schema = Schema(text=ORDER_PROTO, type="PROTOBUF", references=(reference,))
    number = registry.register("orders-value", schema).id
    assert number is not None
    codec = ProtobufCodec(registry.resolve(schema), "shop.Order")
    kind = codec.message_class()
    document = {
        "id": "9007199254740993",
        "customer": {"name": "x", "place": {"city": "Praha"}},
        "at": "2026-11-16T04:05:06.789Z",
        "lines": [{"article": "a", "price": 1.5}],
        "counts": {"n": 2},
        "card": "visa",
        "note": "",
    }
    message = codec.from_document(document)
    deserializer = ProtobufDeserializer(kind, {"use.deprecated.format": False})

    ours = make_head(number) + codec.write(message)
    assert deserializer(ours, CONTEXT) == message
    shown = decode_any(registry, ours)
    assert (shown.value, shown.name) == (document, "shop.Order")

    serializer = ProtobufSerializer(kind, theirs, {"use.deprecated.format": False})
    written = serializer(message, CONTEXT)
    assert written[5:] == ours[5:]
    # Their registry makes a text of the descriptor that this serializer registers; ours keeps it.
    shown = decode_any(registry, written)
    assert (shown.value, shown.name) == (document, "shop.Order")
    nested = codec.message_class("shop.Order.Line")(article="z", price=2.0)
    written = ProtobufSerializer(type(nested), theirs, {"use.deprecated.format": False})(
        nested, SerializationContext("lines", MessageField.VALUE)
    )
    assert decode_any(registry, written).name == "shop.Order.Line"
    assert decode_any(registry, written).value == {"article": "z", "price": 2.0}


def test_a_guid_in_a_header_names_the_schema_too(
    registry: SchemaRegistry, theirs: SchemaRegistryClient
) -> None:
    headers: list[tuple[str, bytes]] = []
    context = SerializationContext("orders", MessageField.VALUE, headers)
    schema = json.dumps(record({"name": "a", "type": "int"}))
    conf = {"schema.id.serializer": header_schema_id_serializer}
    theirs.register_schema_full_response("orders-value", TheirSchema(schema, "AVRO"))
    written = AvroSerializer(theirs, schema, conf=conf)({"a": 5}, context)
    assert headers

    shown = decode_any(registry, written, tuple(headers))

    assert shown.value == {"a": 5}
    assert (shown.id, shown.guid) == (None, UUID(bytes=headers[0][1][1:]))
