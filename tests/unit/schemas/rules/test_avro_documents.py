from __future__ import annotations

import contextlib
import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import SchemaEncodingError
from moldau.schemas.rules.avro import AvroDocuments
from moldau.schemas.rules.documents import to_document

SCHEMA = {
    "type": "record",
    "name": "All",
    "namespace": "x",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "count", "type": "int", "default": 0},
        {"name": "ratio", "type": "double", "default": 0.0},
        {"name": "raw", "type": "bytes", "default": ""},
        {"name": "either", "type": ["null", "string", "long"], "default": None},
        {"name": "inner", "type": ["null", {"type": "record", "name": "In", "fields": [
            {"name": "n", "type": "int"}]}], "default": None},
        {"name": "again", "type": {"type": "array", "items": "In"}, "default": []},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "noon", "type": ["null", {"type": "int", "logicalType": "time-millis"}]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal",
                                            "precision": 9, "scale": 2}]},
        {"name": "who", "type": ["null", {"type": "string", "logicalType": "uuid"}]},
    ],
}  # fmt: skip


def read(document: object, schema: object = SCHEMA) -> object:
    return AvroDocuments(schema).read(document)


def test_a_document_as_it_is_printed_is_read_back() -> None:
    value = {
        "text": "x",
        "count": 3,
        "ratio": float("inf"),
        "raw": b"\x00\xff",
        "either": 5,
        "inner": {"n": 1},
        "again": [{"n": 2}],
        "at": datetime(2026, 11, 16, 4, 0, 0, 123000, tzinfo=UTC),
        "day": date(2026, 11, 16),
        "noon": time(12, 30),
        "price": Decimal("12.30"),
        "who": UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
    }

    assert read(json.loads(json.dumps(to_document(value)))) == value


def test_avros_own_json_is_read_as_well() -> None:
    document = {"text": "x", "either": {"string": "y"}, "inner": {"x.In": {"n": 1}}, "at": 1000}

    assert read(document) == {
        "text": "x",
        "either": "y",
        "inner": {"n": 1},
        "at": 1000,
    }


def test_a_record_that_looks_like_a_branch_is_still_a_record() -> None:
    schema = ["string", {"type": "record", "name": "R", "fields": [
        {"name": "string", "type": "int"}]}]  # fmt: skip

    assert read({"string": 5}, schema) == {"string": 5}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "at text: is missing"),
        ({"text": 5}, "at text: 5 is not a string"),
        ({"text": "x", "count": 1 << 31}, "at count: 2147483648 is not an int"),
        ({"text": "x", "count": True}, "at count"),
        ({"text": "x", "typo": 1}, "no field 'typo'"),
        ({"text": "x", "inner": {"n": "1"}}, "at inner.n: '1' is not an int"),
        ({"text": "x", "again": [{"n": 1}, {}]}, r"at again\[1\].n: is missing"),
        ({"text": "x", "raw": "€"}, "at raw"),
        ({"text": "x", "at": "yesterday"}, "at at"),
        ([], "is not a record All"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place(document: object, told: str) -> None:
    with pytest.raises(SchemaEncodingError, match=told):
        read(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([one["name"] for one in SCHEMA["fields"]]), JSON) | JSON)
def test_no_document_is_read_into_another_error(document: object) -> None:
    with contextlib.suppress(SchemaEncodingError):
        read(document)
