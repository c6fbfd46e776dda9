"""`pip install 'moldau[schemas]'`: Avro, JSON Schema and Protobuf are written and read."""

from __future__ import annotations

import importlib.util
import json

from moldau.schemas import Schema
from moldau.schemas.model import ResolvedSchema, SchemaType
from moldau.schemas.registry import make_codec

for absent in ("numpy", "pyarrow", "pyspark", "confluent_kafka"):
    assert importlib.util.find_spec(absent) is None, f"the extra brings {absent}"

AVRO = json.dumps({"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]})
JSON = json.dumps({"type": "object", "properties": {"x": {"type": "integer"}}})
PROTO = 'syntax = "proto3"; import "google/type/money.proto"; message A { int32 x = 1; }'
schemas: dict[SchemaType, str] = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTO}
for kind, text in schemas.items():
    codec = make_codec(ResolvedSchema(schema=Schema(text=text, type=kind)))
    written = codec.write(codec.from_document({"x": 5}))
    assert codec.to_document(codec.read(written)) == {"x": 5}, kind
