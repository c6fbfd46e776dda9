"""Lines of JSON: what `moldau produce --format json` takes, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.json_lines import JsonLineParser
from moldau.cli.line_parser import ParsedLine
from moldau.cli.record_format import show_json
from moldau.errors import ConfigurationError
from moldau.model import TopicPartition
from moldau.records.record import Record


def parse(line: str) -> ParsedLine:
    return JsonLineParser().parse(line.encode(), 7)


maybe_bytes = st.none() | st.binary(max_size=20)


@given(
    record=st.builds(
        Record,
        offset=st.integers(0, 2**60),
        timestamp_ms=st.integers(0, 2**50),
        key=maybe_bytes,
        value=maybe_bytes,
        headers=st.lists(st.tuples(st.text(max_size=5), maybe_bytes), max_size=3).map(tuple),
    ),
    partition=st.integers(0, 1000),
)
def test_what_consume_prints_is_what_produce_sends(record: Record, partition: int) -> None:
    line = show_json(TopicPartition("clicks", partition), record)
    assert JsonLineParser().parse(line, 1) == ParsedLine(
        record.key, record.value, record.headers, partition, record.timestamp_ms
    )


def test_only_the_value_has_to_be_there() -> None:
    assert parse('{"value": "v"}') == ParsedLine(None, b"v")
    assert parse('{"value": null}') == ParsedLine(None, None)


def test_what_is_not_a_text_is_sent_as_json() -> None:
    assert parse('{"key": 17, "value": {"a": [1, true, "ä"]}}') == ParsedLine(
        b"17", '{"a":[1,true,"ä"]}'.encode()
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[1]", "is no JSON object"),
        ("{}", "has no value"),
        ('{"value": "v", "hedaers": []}', "has 'hedaers', which means nothing here"),
        ('{"value_base64": "*"}', "has a value_base64 that is none"),
        ('{"value": "v", "headers": {"a": "b"}}', "has headers that are no list"),
        ('{"value": "v", "headers": [{"value": "b"}]}', "has headers that are no list"),
        ('{"value": "v", "partition": "1"}', "has a partition that is no number"),
        ('{"value": "v", "partition": -1}', "has a partition that is no number"),
        ('{"value": "v", "timestamp_ms": 1.5}', "has a timestamp_ms that is no number"),
    ],
)
def test_a_line_that_cannot_be_sent_is_named(line: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^line 7 ") as refused:
        parse(line)
    assert words in str(refused.value)
