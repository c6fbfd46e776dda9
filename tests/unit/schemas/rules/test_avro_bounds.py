from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import ConfigurationError, SchemaDecodingError, SchemaEncodingError
from moldau.schemas.avro import AvroCodec
from moldau.schemas.model import ResolvedSchema, Schema
from moldau.schemas.rules.avro import DEEPEST, AvroBounds

CHAIN = {
    "type": "record",
    "name": "a.Chain",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "next", "type": ["null", "Chain"], "default": None},
    ],
}
EMPTY = {"type": "record", "name": "Empty", "fields": [{"name": "n", "type": "null"}]}
MANY = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
"""2^63 - 1 of them."""


def record(name: str, kind: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": kind}]}


@pytest.mark.parametrize(
    ("schema", "level"),
    [
        (CHAIN, b"\0\x02"),
        (record("Tree", {"type": "array", "items": "Tree"}), b"\x02"),
        (record("Tree", {"type": "map", "values": "Tree"}), b"\x02\0"),
        (record("One", ["null", record("Two", ["null", "One"])]), b"\x02"),
    ],
)
def test_bytes_that_nest_a_record_by_the_thousand_are_refused(schema: object, level: bytes) -> None:
    """The decoder would end the process: five thousand bytes are enough."""
    with pytest.raises(SchemaDecodingError, match="deep"):
        AvroBounds(schema).check(level * 5000)


@pytest.mark.parametrize("item", ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}])
def test_items_that_take_no_bytes_are_not_believed_by_the_billion(item: object) -> None:
    bounds = AvroBounds(record("R", {"type": "array", "items": item}))

    for count in (MANY + b"\0", b"\x01\0" + MANY + b"\0"):
        with pytest.raises(SchemaDecodingError, match="take no bytes"):
            bounds.check(count)
    bounds.check(b"\x06\x05\0\0")


def test_a_record_that_has_no_end_is_no_schema() -> None:
    with pytest.raises(ConfigurationError, match="without an end"):
        AvroBounds(record("One", record("Two", "One")))


def test_no_schema_says_that_it_was_looked_at() -> None:
    """What fastavro takes for its own it does not parse: a type that contains itself hid there."""
    hidden = {"Chain": record("Chain", ["null", "Chain"])}
    schema = {**record("R", ["null", "Chain"]), "__fastavro_parsed": True}

    with pytest.raises(ConfigurationError, match="Chain"):
        AvroCodec(
            ResolvedSchema(schema=Schema(text=json.dumps({**schema, "__named_schemas": hidden})))
        )
    with pytest.raises(ConfigurationError, match="'Chain' is no type"):
        AvroBounds(schema)


def chains() -> st.SearchStrategy[Any]:
    return st.recursive(
        st.none(), lambda one: st.fixed_dictionaries({"text": st.text(), "next": one}), max_leaves=1
    ).filter(bool)


EVERY = {
    "type": "record",
    "name": "Every",
    "fields": [
        {"name": "chain", "type": CHAIN},
        {"name": "chains", "type": {"type": "array", "items": "a.Chain"}},
        {"name": "nulls", "type": {"type": "array", "items": "null"}},
        {"name": "map", "type": {"type": "map", "values": ["double", "float", "boolean"]}},
        {"name": "enum", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        {"name": "fixed", "type": {"type": "fixed", "name": "F", "size": 3}},
        {"name": "number", "type": "long"},
    ],
}
CODEC = AvroCodec(ResolvedSchema(schema=Schema(text=json.dumps(EVERY))))


@given(
    st.fixed_dictionaries(
        {
            "chain": chains(),
            "chains": st.lists(chains(), max_size=3),
            "nulls": st.lists(st.none(), max_size=5),
            "map": st.dictionaries(st.text(), st.floats(allow_nan=False) | st.booleans()),
            "enum": st.sampled_from("AB"),
            "fixed": st.binary(min_size=3, max_size=3),
            "number": st.integers(-(1 << 63), (1 << 63) - 1),
        }
    )
)
def test_whatever_is_written_is_read(value: Any) -> None:
    assert CODEC.read(CODEC.write(value)) == value


def test_what_is_long_and_not_deep_is_read() -> None:
    codec = AvroCodec(ResolvedSchema(schema=Schema(text=json.dumps(CHAIN))))
    value: dict[str, object] = {"text": "x" * 1000, "next": None}
    for _ in range(DEEPEST - 1):
        value = {"text": "x" * 1000, "next": value}

    assert codec.read(codec.write(value)) == value
    for _ in range(2):  # a little too deep, and much
        with pytest.raises(SchemaEncodingError, match="nested more than 200 deep"):
            codec.write({"text": "", "next": value})
        for _ in range(20_000):
            value = {"text": "", "next": value}
