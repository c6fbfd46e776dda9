"""Columns out of records of a schema registry: on real Spark, with real HTTP between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

import moldau
from moldau.errors import ConfigurationError
from moldau.schemas import Schema, SchemaRegistry
from moldau.schemas.rules.framing import make_head
from moldau.spark import from_registry
from support.pipelines import run_file, send
from support.schema_registry import RegistryServer, serve_registry
from support.topics import Topics, fresh_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

USER = {"name": "user", "type": "string"}
COUNT = {"name": "count", "type": "int", "default": -1}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
PRICE = {"name": "price", "type": ["null", MONEY], "default": None}
EITHER = {"name": "either", "type": ["null", "string", "long"], "default": None}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Ignored {}
message Order {
  uint64 id = 1;
  google.protobuf.Timestamp at = 2;
  message Line { string article = 1; double price = 2; }
  repeated Line lines = 3;
  map<string, int32> counts = 4;
  enum State { NEW = 0; SENT = 1; }
  State state = 5;
  optional string note = 6;
}
"""


def record(*fields: object) -> Schema:
    return Schema(text=json.dumps({"type": "record", "name": "Click", "fields": fields}))


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with serve_registry() as found:
        yield found


@pytest.fixture
def registry(server: RegistryServer) -> SchemaRegistry:
    return SchemaRegistry(server.url, timeout_seconds=60)


def written(registry: SchemaRegistry, subject: str, schema: Schema, *values: object) -> list[bytes]:
    number = registry.register(subject, schema).id or 0
    codec = registry.codec(number)
    return [make_head(number) + codec.write(one) for one in values]


def test_records_of_several_versions_are_rows_of_one_type(
    spark: SparkSession, registry: SchemaRegistry, server: RegistryServer
) -> None:
    old = written(registry, "clicks-value", record(USER), {"user": "a"})
    new = written(
        registry,
        "clicks-value",
        record(USER, COUNT, PRICE, EITHER),
        {"user": "b", "count": 3, "price": Decimal("1.50"), "either": 7},
    )
    rows = [(one,) for one in (*old, *new, b"plain", make_head(99) + b"x", old[0] + b"x", None)]
    frame = spark.createDataFrame(rows, "value BINARY").coalesce(1)
    server.stored.requests.clear()

    data = from_registry("value", server.url, subject="clicks-value")
    found = frame.select(data.alias("data"))

    assert found.schema["data"].dataType.simpleString() == (
        "struct<user:string,count:int,price:decimal(9,2),either:string>"
    )
    assert [row["data"] for row in found.toArrow().to_pylist()] == [
        {"user": "a", "count": -1, "price": None, "either": None},
        {"user": "b", "count": 3, "price": Decimal("1.50"), "either": "7"},
        *(None, None, None, None),
    ]
    asked = {one for one in server.stored.requests if one.startswith("GET /schemas/ids/")}
    assert asked == {f"GET /schemas/ids/{number}" for number in (1, 2, 99)}
    strict = from_registry("value", server.url, subject="clicks-value", mode="failfast")
    with pytest.raises(PySparkException, match="a record cannot be decoded"):
        frame.select(strict.alias("data")).toArrow()
    with pytest.raises(ConfigurationError, match="neither permissive"):
        from_registry("value", server.url, subject="clicks-value", mode="lenient")  # type: ignore[arg-type]


def test_protobuf_and_json_schema_become_columns(
    spark: SparkSession, registry: SchemaRegistry, server: RegistryServer
) -> None:
    from moldau.schemas.protobuf import ProtobufCodec

    proto = Schema(text=PROTO, type="PROTOBUF")
    number = registry.register("orders-value", proto).id or 0
    codec = ProtobufCodec(registry.resolve(proto), "shop.Order")
    order = {
        "id": str((1 << 64) - 1),
        "at": "2026-11-16T04:05:06Z",
        "lines": [{"article": "a", "price": 1.5}],
        "counts": {"n": 2},
        "state": "SENT",
    }
    person = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": ["integer", "null"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "any": {},
        },
    }
    json_schema = Schema(text=json.dumps(person), type="JSON")
    value = {"name": "x", "age": None, "tags": ["a"], "any": {"b": 1}}
    (as_json,) = written(registry, "people-value", json_schema, value)
    rows = [(make_head(number) + codec.write(order), as_json)]
    frame = spark.createDataFrame(rows, "order BINARY, person BINARY")

    orders = from_registry("order", server.url, subject="orders-value", message="shop.Order")
    people = from_registry("person", server.url, subject="people-value")
    (row,) = frame.select(orders.alias("order"), people.alias("person")).toArrow().to_pylist()

    assert row["order"] == {
        "id": Decimal((1 << 64) - 1),
        "at": datetime(2026, 11, 16, 4, 5, 6, tzinfo=UTC),
        "lines": [{"article": "a", "price": 1.5}],
        "counts": [("n", 2)],
        "state": "SENT",
        "note": None,
    }
    assert row["person"] == {"name": "x", "age": None, "tags": ["a"], "any": '{"b": 1}'}


def test_a_pipeline_reads_by_a_registry_and_what_cannot_be_read_is_a_dead_letter(
    spark: SparkSession,
    bootstrap: str,
    topics: Topics,
    tmp_path: Path,
    registry: SchemaRegistry,
    server: RegistryServer,
) -> None:
    source, dead, feed = topics.create(), fresh_name("dead"), topics.create()
    old = written(registry, f"{source}-value", record(USER), {"user": "a"})
    new = written(registry, f"{source}-value", record(USER, COUNT), {"user": "b", "count": 3})
    send(bootstrap, source, [*old, b"plain", *new])
    path = tmp_path / "pipeline.toml"
    path.write_text(
        f"""
        [sources.clicks]
        topic = "{source}"
        format = "avro"
        registry = "{server.url}"
        dead_letter = "{dead}"
        [sinks.feed]
        topic = "{feed}"
        """
    )

    run_file(spark, bootstrap, path)

    letters = moldau.read_table(dead, bootstrap=bootstrap)["value"].to_pylist()
    assert letters == [b"plain"]
    values = moldau.read_table(feed, bootstrap=bootstrap)["value"].to_pylist()
    assert sorted(map(json.loads, values), key=lambda row: row["user"]) == [
        {"user": "a", "count": -1},
        {"user": "b", "count": 3},
    ]
