"""One suite for the lines of both record codecs: the values of `records_of`, joined."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.errors import InvalidRecordError
from moldau.records.batch_header import read_header
from moldau.records.codec import RecordCodec
from moldau.records.record import NewRecord
from moldau.records.record_batch import build_batch, payload_of

on_both_codecs = settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
values = st.lists(st.none() | st.binary(max_size=9), min_size=1, max_size=20)
NULL = b"null"


def payload(contents: list[bytes | None], base_offset: int = 0) -> memoryview:
    batch = build_batch([NewRecord(0, None, one, ()) for one in contents], base_offset=base_offset)
    return memoryview(payload_of(batch, read_header(batch)))


@given(values, st.integers(0, 25), st.integers(0, 25), st.integers(0, 25))
@on_both_codecs
def test_the_values_between_two_offsets_are_lines(
    codec: RecordCodec, contents: list[bytes | None], start: int, end: int, most: int
) -> None:
    lines, count = codec.join_values(
        payload(contents, 100), len(contents), 100, 100 + start, 100 + end, most, NULL
    )
    wanted = contents[start:end][:most] if start < end else []
    assert count == len(wanted)
    assert bytes(lines) == b"".join((NULL if one is None else one) + b"\n" for one in wanted)


def test_damaged_records_are_refused_also_where_they_are_not_wanted(codec: RecordCodec) -> None:
    with pytest.raises(InvalidRecordError):
        codec.join_values(payload([b"a", b"b"])[:-1], 2, 0, 0, 1, 1, NULL)


def test_records_that_are_missing_are_noticed(codec: RecordCodec) -> None:
    with pytest.raises(InvalidRecordError):
        codec.join_values(payload([b"a", b"b"]), 3, 0, 0, 9, 9, NULL)
