"""How records are shown."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.record_format import parse_format
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.errors import ConfigurationError
from moldau.records.record import Record

RECORD = Record(17, 1234, b"key", b"value", (("a", b"1"), ("b", None)))
BARE = Record(0, -1, None, None, ())


def show(form: str, record: Record = RECORD) -> bytes:
    return parse_format(form)([ConsumerRecord("clicks", 3, *record)])


@pytest.mark.parametrize("form", ["value", "key-value", "hex", "json", "%k %v"])
def test_records_are_shown_one_after_the_other(form: str) -> None:
    given = [ConsumerRecord("clicks", 3, *record) for record in (RECORD, BARE, RECORD)]
    assert parse_format(form)(given) == show(form) + show(form, BARE) + show(form)
    assert parse_format(form)([]) == b""


def test_value_is_the_value_on_a_line() -> None:
    assert show("value") == b"value\n"
    assert show("value", BARE) == b"null\n"


def test_bytes_pass_through_as_they_are() -> None:
    record = Record(0, 0, None, b"\xff\x00\n", ())
    assert show("value", record) == b"\xff\x00\n\n"
    assert show("%v\\0", record) == b"\xff\x00\n\0"


def test_key_and_value_stand_apart_by_a_tab() -> None:
    assert show("key-value") == b"key\tvalue\n"
    assert show("key-value", BARE) == b"null\tnull\n"


def test_hex_shows_every_byte() -> None:
    assert show("hex") == b"6b6579\t76616c7565\n"
    assert show("hex", BARE) == b"null\tnull\n"


def test_json_is_one_object_on_one_line() -> None:
    shown = show("json")
    assert shown.count(b"\n") == 1
    assert json.loads(shown) == {
        "topic": "clicks",
        "partition": 3,
        "offset": 17,
        "timestamp_ms": 1234,
        "key": "key",
        "value": "value",
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }


def test_json_says_which_bytes_are_no_text() -> None:
    document = json.loads(show("json", Record(0, 0, b"\xff", None, (("h", b"\xfe"),))))
    assert document["key_base64"] == base64.b64encode(b"\xff").decode()
    assert "key" not in document
    assert document["value"] is None
    assert document["headers"] == [{"key": "h", "value_base64": "/g=="}]


@given(
    st.builds(
        Record,
        st.integers(0, 2**63 - 1),
        st.integers(-1, 2**53),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=20),
        st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5))).map(tuple),
    )
)
def test_json_loses_nothing_of_a_record(record: Record) -> None:
    document = json.loads(show("json", record))
    for name, data in (("key", record.key), ("value", record.value)):
        if name + "_base64" in document:
            assert base64.b64decode(document[name + "_base64"]) == data
        else:
            assert document[name] == (None if data is None else data.decode())
    assert len(document["headers"]) == len(record.headers)


def test_a_template_is_filled_in() -> None:
    assert show("%t-%p@%o %T %k=%v (%K,%V) [%h] 100%%%n") == (
        b"clicks-3@17 1234 key=value (3,5) [a=1,b=null] 100%\n"
    )
    assert show("%s %S\\n") == b"value 5\n"


def test_what_is_absent_is_null_and_has_no_length() -> None:
    assert show("%k %v %K %V %h|", BARE) == b"null null -1 -1 |\n"


def test_escapes_are_those_of_c() -> None:
    assert show(r"%k\t\x41\\%n") == b"key\tA\\\n"
    assert show(r"%v\0") == b"value\0"


def test_a_template_ends_the_line_unless_it_says_otherwise() -> None:
    assert show("%v") == b"value\n"
    assert show("%v%n") == b"value\n"
    assert show("%v\\n") == b"value\n"


@pytest.mark.parametrize("form", ["%q", "100%", "%v \\q", "%v \\x4", "%v\\"])
def test_a_template_with_a_mistake_is_refused_with_what_there_is(form: str) -> None:
    with pytest.raises(ConfigurationError, match="%k %v"):
        parse_format(form)


def test_an_unknown_form_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="value, key-value, json, hex, raw, avro, json-s"):
        parse_format("yaml")


def test_a_misspelt_form_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigurationError, match="did you mean avro"):
        parse_format("avr")
