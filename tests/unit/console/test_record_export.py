"""Records as a file."""

from __future__ import annotations

import csv
import io
import json

from hypothesis import given
from hypothesis import strategies as st

from moldau.cli.line_parser import JsonLineParser
from moldau.client.consumer.rules.fetch_buffer import ConsumerRecord
from moldau.console.record_view import KEPT_BYTES, KeptRecord, keep, to_csv, to_json_lines


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes]) -> KeptRecord:
    found = ConsumerRecord(
        topic="t",
        partition=1,
        offset=7,
        timestamp_ms=1_700_000_000_000,
        key=key,
        value=value,
        headers=headers,
    )
    return keep(found)


@given(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20))
def test_json_lines_are_read_by_produce(key: bytes | None, value: bytes | None) -> None:
    line = to_json_lines("t", [record(key, value, ("h", b"w"))]).splitlines()[0]
    (parsed,) = JsonLineParser().parse([line], 1)
    assert (parsed.partition, len(parsed.values)) == (1, 1)
    assert tuple(parsed.values[0][1:3]) == (key, value)
    assert parsed.values[0][3] == (("h", b"w"),)


def test_bytes_that_are_no_text_are_told_apart() -> None:
    document = json.loads(to_json_lines("t", [record(b"k", b"\xff\xfe")]))
    assert document == {
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "timestamp_ms": 1_700_000_000_000,
        "key": "k",
        "value_base64": "//4=",
    }


def test_what_was_cut_says_how_long_it_was() -> None:
    document = json.loads(to_json_lines("t", [record(None, b"x" * (KEPT_BYTES + 1))]))
    assert document["value_bytes"] == KEPT_BYTES + 1
    assert len(document["value"]) == KEPT_BYTES


def test_a_spreadsheet_runs_nothing() -> None:
    made = to_csv("t", [record(b"=1+1", b"-5"), record(b"@x", b'a,"b"\nc', ("h", b"+x"))])
    rows = list(csv.DictReader(io.StringIO(made.decode())))
    assert [row["key"] for row in rows] == ["'=1+1", "'@x"]
    assert [row["value"] for row in rows] == ["-5", 'a,"b"\nc']
    assert rows[1]["headers"] == "h: +x"
    assert rows[0]["time"] == "2023-11-14 22:13:20.000"
