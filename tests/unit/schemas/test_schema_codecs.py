from __future__ import annotations

import base64
import contextlib
import json
import math
import struct
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.schemas.model import ResolvedSchema, Schema, SchemaType
from moldau.schemas.registry import SchemaCodec, make_codec

LINE = {"type": "record", "name": "Line", "fields": [{"name": "n", "type": "int"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "lines", "type": {"type": "array", "items": LINE}},
        {"name": "next", "type": ["null", "Order"], "default": None},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
PROTO = 'syntax = "proto3"; message A { repeated A a = 1; string s = 2; map<string, A> m = 3; }'


def codec_of(text: str, kind: SchemaType) -> SchemaCodec:
    return make_codec(ResolvedSchema(schema=Schema(text=text, type=kind)))


AVRO = codec_of(json.dumps(ORDER), "AVRO")
PROTOBUF = codec_of(PROTO, "PROTOBUF")
JSON = codec_of('{"type": "object", "properties": {"a": {"type": "integer"}}}', "JSON")
VALUE = {
    "lines": [{"n": 1}],
    "next": None,
    "tags": {"a": "b"},
    "price": Decimal(7),
    "at": datetime(2026, 11, 16, tzinfo=UTC),
}


@given(st.binary(max_size=60))
def test_no_bytes_are_read_into_another_error(data: bytes) -> None:
    for codec in (AVRO, PROTOBUF, JSON):
        with contextlib.suppress(SchemaDecodingError):
            json.dumps(codec.to_document(codec.read(data)))


@given(st.data())
def test_damaged_avro_is_read_or_refused(data: st.DataObject) -> None:
    written = bytearray(AVRO.write(VALUE))
    at = data.draw(st.integers(0, len(written) - 1))
    written[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(SchemaDecodingError):
        AVRO.to_document(AVRO.read(bytes(written)))


def test_values_are_read_as_they_were_written() -> None:
    assert AVRO.read(AVRO.write(VALUE)) == VALUE
    assert AVRO.read(AVRO.write(AVRO.from_document(AVRO.to_document(VALUE)))) == VALUE
    document = {"a": [{"a": [], "s": "x", "m": {}}], "s": "", "m": {}}
    assert PROTOBUF.to_document(PROTOBUF.read(PROTOBUF.write(document))) == document


def test_a_value_that_does_not_fit_is_refused_with_the_reason() -> None:
    with pytest.raises(SchemaEncodingError, match="Order"):
        AVRO.write({"lines": 5})
    with pytest.raises(SchemaEncodingError, match=r"at a: 'x' is not of type 'integer'"):
        JSON.write({"a": "x"})
    with pytest.raises(SchemaEncodingError, match="no field named"):
        PROTOBUF.write({"nothing": 5})


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        ("{", "AVRO", "is JSON, and this is none"),
        ('{"type": "recordd"}', "AVRO", "no schema of Avro"),
        ("[", "JSON", "is JSON, and this is none"),
        ('{"type": 5}', "JSON", "no JSON Schema"),
        ("5", "JSON", "cannot be used"),
        ('{"$schema": []}', "JSON", "cannot be used"),
        ('{"type": [5]}', "AVRO", "no type of Avro"),
        ('syntax = "proto3"; message A { B b = 1; }', "PROTOBUF", "no schema of Protobuf"),
        ('syntax = "proto3";', "PROTOBUF", "no message"),
    ],
)
def test_what_is_no_schema_is_told(text: str, kind: SchemaType, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        codec_of(text, kind)


def test_nothing_is_fetched_from_where_a_reference_points() -> None:
    codec = codec_of('{"$ref": "http://127.0.0.1:1/other.json"}', "JSON")

    with pytest.raises(ConfigurationError, match="not among its registered references"):
        codec.write({})


def test_a_type_within_a_type_is_that_type() -> None:
    codec = codec_of('{"type": {"type": ["null", {"type": "string"}]}}', "AVRO")

    assert codec.read(codec.write(codec.from_document("x"))) == "x"


@pytest.mark.parametrize("text", ["1" + "0" * 400, "1e400", "NaN"])
def test_numbers_beyond_all_measure_are_refused(text: str) -> None:
    with pytest.raises(SchemaDecodingError, match="cannot be checked"):
        codec_of('{"multipleOf": 0.1}', "JSON").read(text.encode())


def test_what_is_nested_by_the_hundred_is_refused_in_words() -> None:
    deep: object = None
    for _ in range(5000):
        deep = {"lines": [], "next": deep, "tags": {}}
    with pytest.raises(SchemaEncodingError, match="too deeply"):
        AVRO.from_document(deep)
    codec = codec_of("{}", "JSON")
    for depth in (990, 5000):
        with pytest.raises(SchemaDecodingError, match=r"deeply|recursion"):
            codec.to_document(codec.read(b"[" * depth + b"]" * depth))


KNOWN = """
syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/struct.proto";
message M {
  google.protobuf.Any any = 1;
  google.protobuf.Timestamp at = 2;
  google.protobuf.Value value = 3;
}
"""


def test_messages_that_cannot_be_shown_are_told_of() -> None:
    codec = codec_of(KNOWN, "PROTOBUF")
    far = b"\x12\x0a\x08" + b"\xff" * 8 + b"\x3f"
    unknown = b"\x0a\x03\x0a\x01/"
    not_a_number = b"\x1a\x09\x11" + struct.pack("<d", math.nan)

    for body in (far, unknown, not_a_number):
        with pytest.raises(SchemaDecodingError, match="cannot be shown"):
            codec.to_document(codec.read(b"\0" + body))


def test_a_registry_chooses_no_modules_to_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil_pb2.py").write_text("raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    file = FileDescriptorProto(name="x", syntax="proto3", dependency=["evil.proto"])

    with pytest.raises(ConfigurationError, match=r"imports evil\.proto"):
        codec_of(base64.b64encode(file.SerializeToString()).decode(), "PROTOBUF")


def test_the_working_directory_is_no_part_of_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "grpc_tools.py").write_text("raise AssertionError('run')")
    monkeypatch.chdir(tmp_path)

    assert codec_of(PROTO, "PROTOBUF").name == "A"
