"""Values of records that go into no column: they are null, and cost nothing that is beside them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from moldau.errors import SchemaDecodingError
from moldau.schemas.model import ResolvedSchema, Schema, SchemaType
from moldau.schemas.registry import make_codec
from moldau.spark.decode import make_array
from moldau.spark.registry_columns import _map_reader, _Reader

FAR_AWAY = b"\0\x0a\x0a\x08" + b"\xff" * 8 + b"\x3f"
TIMES = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message M { google.protobuf.Timestamp at = 1; }
"""
COUNTS = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})


@pytest.mark.parametrize(
    ("kind", "text", "body"),
    [
        ("PROTOBUF", TIMES, FAR_AWAY),
        ("JSON", COUNTS, b'{"n": 1' + b"0" * 20 + b"}"),
        ("JSON", COUNTS, b"[]"),
    ],
)
def test_what_no_column_has_cannot_be_decoded(kind: SchemaType, text: str, body: bytes) -> None:
    schema = ResolvedSchema(schema=Schema(text=text, type=kind))
    _, read = _map_reader(_Reader(schema, None))

    with pytest.raises(SchemaDecodingError):
        read(make_codec(schema), body)


def test_a_text_that_is_not_unicode_is_null_and_its_neighbours_are_not() -> None:
    found = ["a", "\ud800", None]

    assert make_array(found, pa.string(), is_strict=False).to_pylist() == ["a", None, None]
    with pytest.raises(UnicodeEncodeError):
        make_array(found, pa.string(), is_strict=True)
