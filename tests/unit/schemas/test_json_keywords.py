"""JSON Schema within bounds: the same verdicts as jsonschema's own, and in time."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema.validators import Draft7Validator, Draft202012Validator

from moldau.errors import ConfigurationError, SchemaDecodingError
from moldau.schemas import json_schema
from moldau.schemas.json_schema import bounded, checked_within
from moldau.schemas.model import ResolvedSchema, Schema
from moldau.schemas.registry import SchemaCodec, make_codec

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
ENDLESS = "a" * 60 + "!"


def resolved(schema: object, **referred: object) -> ResolvedSchema:
    others = {name: resolved(one) for name, one in referred.items()}
    return ResolvedSchema(schema=Schema(text=json.dumps(schema), type="JSON"), referred=others)


def codec_of(schema: object, **referred: object) -> SchemaCodec:
    return make_codec(resolved(schema, **referred))


def is_valid(kind: Any, schema: object, value: object) -> bool:
    with checked_within(60.0):
        return bool(bounded(kind)(schema).is_valid(value))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "ab", 1.0, 0.0]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)
SCHEMAS: list[dict[str, Any]] = [
    {"pattern": "^a+$"},
    {"patternProperties": {"^[ab]$": {"type": "integer"}}},
    {"properties": {"a": {}}, "patternProperties": {"b": {}}, "additionalProperties": False},
    {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
    {"uniqueItems": True},
    {"items": {"uniqueItems": True, "minItems": 1}},
]


@pytest.mark.parametrize("kind", [Draft7Validator, Draft202012Validator])
@given(st.sampled_from(SCHEMAS), values)
def test_the_verdicts_are_those_of_the_library(kind: Any, schema: object, value: object) -> None:
    assert is_valid(kind, schema, value) == kind(schema).is_valid(value)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^(a+)+$"},
        {"$schema": DRAFT_7, "pattern": "^(a+)+$"},
        {"$schema": DRAFT_7, "$ref": "other.json"},
    ],
)
def test_a_pattern_takes_no_longer_than_its_text(schema: object) -> None:
    other = {"$schema": DRAFT_7, "pattern": "^(a+)+$"}
    with pytest.raises(SchemaDecodingError, match="does not match"):
        codec_of(schema, **{"other.json": other}).read(json.dumps(ENDLESS).encode())


@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {"^(a+)+$": False}},
        {"patternProperties": {"^(a+)+$": {}}, "additionalProperties": {"type": "null"}},
    ],
)
def test_a_pattern_of_names_takes_no_longer_than_they(schema: object) -> None:
    value = {ENDLESS: None}
    assert codec_of(schema).read(json.dumps(value).encode()) == value


def test_thousands_of_items_are_soon_found_to_differ() -> None:
    value = [{"n": n} for n in range(20_000)]
    assert codec_of({"uniqueItems": True}).read(json.dumps(value).encode()) == value


def test_what_doubles_with_every_level_ends_when_its_time_is_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(json_schema, "_CHECK_SECONDS", 0.2)
    again = {"properties": {"a": {"$ref": "#"}}}
    schema = {"$schema": DRAFT_7, "type": "object", "anyOf": [again, again]}
    deep: object = 1
    for _ in range(60):
        deep = {"a": deep}
    with pytest.raises(SchemaDecodingError, match=r"longer than 0\.2 seconds to check"):
        codec_of(schema).read(json.dumps(deep).encode())


def test_what_the_library_for_patterns_does_not_know_is_left_to_python() -> None:
    codec = codec_of({"pattern": r"^(?!tmp).*$"})
    assert codec.read(b'"clicks"') == "clicks"
    with pytest.raises(SchemaDecodingError, match="does not match"):
        codec.read(b'"tmp1"')


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"pattern": "^a.$"}, '"a\\ud83d"'),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, '{"a\\ud83d":1}'),
        ({"pattern": "\ud83d"}, '"a\\ud83d"'),
    ],
)
def test_half_a_surrogate_pair_is_a_character_as_for_the_library(schema: object, text: str) -> None:
    """Programs that cut texts leave them behind."""
    assert codec_of(schema).read(text.encode()) == json.loads(text)


def test_a_pattern_that_is_none_is_a_fault_of_the_schema() -> None:
    with pytest.raises(ConfigurationError, match=r"'\(' is not a 'regex'"):
        codec_of({"pattern": "("})
    other = codec_of({"$ref": "other.json"}, **{"other.json": {"pattern": "("}})
    with pytest.raises(ConfigurationError, match=r"no regular expression, '\('"):
        other.read(b'"a"')
