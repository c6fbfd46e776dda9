"""Lines of JSON: what `moldau produce --format json` takes, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.line_parser import JsonLineParser, ParsedLines, ParsedRow
from moldau.cli.record_format import show_json
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.errors import ConfigurationError
from moldau.records.record import Record


def parse(line: str) -> ParsedRow:
    (found,) = JsonLineParser().parse([line.encode()], 7)
    assert found.keys is None
    ((*_, row),) = [found.values]
    assert isinstance(row, tuple)
    return row


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
    line = show_json(ConsumerRecord("clicks", partition, *record))
    (parsed,) = JsonLineParser().parse([line], 1)
    row = (record.timestamp_ms, record.key, record.value, record.headers)
    assert parsed == ParsedLines([row], None, partition)


def test_only_the_value_has_to_be_there() -> None:
    assert parse('{"value": "v"}') == (None, None, b"v", ())
    assert parse('{"value": null}') == (None, None, None, ())


def test_what_is_not_a_text_is_sent_as_json() -> None:
    assert parse('{"key": 17, "value": {"a": [1, true, "ä"]}}') == (
        *(None, b"17", '{"a":[1,true,"ä"]}'.encode(), ()),
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "is no JSON"),
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "is no JSON object"),
        ("{}", "has no value"),
        ('{"value": "v", "hedaers": []}', "has 'hedaers', which means nothing here"),
        ('{"value_base64": "*"}', "has a value_base64 that is none"),
        ('{"value": "v", "headers": {"a": "b"}}', "has headers that are no list"),
        ('{"value": "v", "headers": [{"value": "b"}]}', "has headers that are no list"),
        ('{"value": "v", "partition": "1"}', "has a partition that is no number"),
        ('{"value": "v", "partition": -1}', "has a partition that is no number"),
        ('{"value": "v", "timestamp_ms": 1.5}', "has a timestamp_ms that is no number"),
        ('{"value": "v", "timestamp_ms": 9223372036854775808}', "has a timestamp_ms that is no"),
        ('{"value": "v", "headers": [{"key": "\\ud800"}]}', "surrogates not allowed"),
    ],
)
def test_a_line_that_cannot_be_sent_is_named(line: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^line 7 ") as refused:
        parse(line)
    assert words in str(refused.value)


def test_lines_for_the_same_partition_go_together() -> None:
    lines = [
        b'{"value": "%d"%s}' % (n, b', "partition": 1' if n in (1, 2) else b"") for n in range(4)
    ]
    found = [
        (one.partition, [row[2] for row in one.values if isinstance(row, tuple)])
        for one in JsonLineParser().parse(lines, 1)
    ]
    assert found == [(None, [b"0"]), (1, [b"1", b"2"]), (None, [b"3"])]


def test_headers_for_all_come_before_those_of_the_line() -> None:
    parser = JsonLineParser((("a", b"1"),))
    (found,) = parser.parse([b'{"value": "v", "headers": [{"key": "b", "value": "2"}]}'], 1)
    assert found.values == [(None, None, b"v", (("a", b"1"), ("b", b"2")))]


def test_what_precedes_a_bad_line_is_given_first() -> None:
    parsed = JsonLineParser().parse([b'{"value": "fits"}', b"{", b'{"value": "later"}'], 7)
    assert next(parsed).values == [(None, None, b"fits", ())]
    with pytest.raises(ConfigurationError, match=r"^line 8 is no JSON"):
        next(parsed)
