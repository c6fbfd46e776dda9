from __future__ import annotations

import json

import fastavro
import pytest

from moldau.errors import ConfigurationError
from moldau.schemas.model import ResolvedSchema, Schema
from moldau.schemas.rules.avro import named_types, resolve_avro

ADDRESS = {
    "type": "record",
    "name": "Address",
    "namespace": "geo",
    "fields": [
        {"name": "street", "type": "string"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["HOME", "WORK"]}},
    ],
}
PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "people",
    "fields": [
        {"name": "first", "type": "geo.Address"},
        {"name": "second", "type": ["null", "geo.Address"], "default": None},
        {"name": "kinds", "type": {"type": "array", "items": "geo.Kind"}},
        {"name": "boss", "type": ["null", "Person"], "default": None},
    ],
}


def resolved(document: object, **referred: ResolvedSchema) -> ResolvedSchema:
    return ResolvedSchema(schema=Schema(text=json.dumps(document)), referred=referred)


def test_what_a_schema_refers_to_is_defined_where_it_is_used_first() -> None:
    found = resolve_avro(resolved(PERSON, **{"geo.Address": resolved(ADDRESS)}))

    assert set(named_types(found)) == {"people.Person", "geo.Address", "geo.Kind"}
    assert json.dumps(found).count('"symbols"') == 1
    fastavro.parse_schema(found)


def test_references_of_references_are_resolved_and_each_is_defined_once() -> None:
    pair = {
        "type": "record",
        "name": "Pair",
        "fields": [{"name": "a", "type": "people.Person"}, {"name": "b", "type": "geo.Address"}],
    }
    person = resolved(PERSON, **{"geo.Address": resolved(ADDRESS)})
    found = resolve_avro(
        resolved(pair, **{"people.Person": person, "geo.Address": resolved(ADDRESS)})
    )

    assert json.dumps(found).count('"symbols"') == 1
    fastavro.parse_schema(found)


def test_unions_and_plain_types_stand_for_themselves() -> None:
    assert resolve_avro(resolved("string")) == "string"
    found = resolve_avro(resolved(["null", "geo.Address"], **{"geo.Address": resolved(ADDRESS)}))
    assert isinstance(found, list)
    fastavro.parse_schema(found)


def test_what_is_no_json_is_told() -> None:
    with pytest.raises(ConfigurationError, match="is JSON"):
        resolve_avro(ResolvedSchema(schema=Schema(text="{")))
