"""Records as consumers give them, on both record codecs."""

from __future__ import annotations

import gc
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.errors import InvalidRecordError
from moldau.records.codec import RecordCodec
from moldau.records.record import Headers, NewRecord


class Placed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_type: int
    leader_epoch: int


rows = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 1 << 40),
        st.none() | st.binary(max_size=9),
        st.none() | st.binary(max_size=9),
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2).map(
            tuple
        ),
    ),
    max_size=9,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(rows=rows, skipped=st.integers(0, 10))
def test_each_record_has_its_place(codec: RecordCodec, rows: list[NewRecord], skipped: int) -> None:
    payload = codec.encode_records(rows, 1_000)
    found = codec.decode_consumer_records(
        payload, len(rows), 70, 1_000, None, 70 + skipped, Placed, "clicks", 3, 9
    )
    assert (
        found
        == [Placed("clicks", 3, 70 + index, *row, 0, 9) for index, row in enumerate(rows)][skipped:]
    )
    assert all(type(record) is Placed for record in found)


def test_the_time_of_appending_is_that_of_every_record(codec: RecordCodec) -> None:
    payload = codec.encode_records([NewRecord(5, None, b"a"), NewRecord(6, None, b"b")], 5)
    found = codec.decode_consumer_records(payload, 2, 0, 5, 77, 0, Placed, "t", 0, -1)
    assert [(one.timestamp_ms, one.timestamp_type) for one in found] == [(77, 1), (77, 1)]


def test_damage_is_refused(codec: RecordCodec) -> None:
    payload = codec.encode_records([NewRecord(5, None, b"a")] * 2, 5)
    for damaged, count in ((payload[:-1], 2), (payload, 3), (payload, 1)):
        with pytest.raises(InvalidRecordError):
            codec.decode_consumer_records(damaged, count, 0, 5, None, 0, Placed, "t", 0, -1)


def test_records_live_through_collections_and_go_when_they_are_dropped(codec: RecordCodec) -> None:
    payload = codec.encode_records([NewRecord(5, b"k", b"v", (("h", b"1"),))] * 50, 5)
    found = codec.decode_consumer_records(payload, 50, 0, 5, None, 0, Placed, "t", 0, -1)
    gc.collect()
    assert {one.value for one in found} == {b"v"}
    assert hash(found[0]) == hash(tuple(found[0]))
    del found
    gc.collect()
