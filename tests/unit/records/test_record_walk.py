"""Records in pieces are judged as they are in one, by both codecs in the same words."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moldau.records import _codec_pure
from moldau.records.codec import RecordCodec
from moldau.records.record_faults import RecordFault

CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]

optional_bytes = st.none() | st.binary(max_size=200)
rows = st.lists(
    st.tuples(
        st.integers(-(1 << 40), 1 << 40),
        optional_bytes,
        optional_bytes,
        st.lists(st.tuples(st.text(max_size=20), optional_bytes), max_size=3).map(tuple),
    ),
    max_size=8,
)


def walk(
    codec: RecordCodec, payload: bytes, count: int, require_keys: bool, piece_bytes: int
) -> RecordFault | None:
    begun = codec.RecordWalk(count, require_keys)
    for start in range(0, len(payload), piece_bytes):
        fault = begun.feed(memoryview(payload)[start : start + piece_bytes])
        if fault is not None:
            assert begun.finish() == fault
            return fault
    return begun.finish()


@settings(suppress_health_check=CHECKS)
@given(rows=rows, piece_bytes=st.integers(1, 300), require_keys=st.booleans())
def test_sound_records_pass_in_any_pieces(
    codec: RecordCodec, rows: list, piece_bytes: int, require_keys: bool
) -> None:
    payload = codec.encode_records(rows, 0)
    found = walk(codec, payload, len(rows), require_keys, piece_bytes)
    assert found == codec.find_fault(payload, len(rows), require_keys)


@settings(suppress_health_check=CHECKS, max_examples=300)
@given(
    rows=rows.filter(bool),
    edits=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 400),
    surplus=st.integers(-1, 2),
    piece_bytes=st.integers(1, 300),
    require_keys=st.booleans(),
)
def test_damage_is_found_where_a_look_at_the_whole_finds_it(
    codec: RecordCodec,
    rows: list,
    edits: list[tuple[int, int]],
    cut: int,
    surplus: int,
    piece_bytes: int,
    require_keys: bool,
) -> None:
    payload = bytearray(codec.encode_records(rows, 0))
    for at, byte in edits:
        payload[at % len(payload)] = byte
    damaged = bytes(payload[: max(1, len(payload) - cut)])
    count = len(rows) + surplus
    found = walk(codec, damaged, count, require_keys, piece_bytes)
    expected = codec.find_fault(damaged, count, require_keys)
    assert found == walk(_codec_pure, damaged, count, require_keys, piece_bytes + 1)
    assert (found is None) is (expected is None)
    if found is not None and expected is not None:
        assert found.index == expected.index


@pytest.mark.parametrize("size", [0, 1, 200_000, 3_000_000])
def test_a_large_value_is_passed_over(codec: RecordCodec, size: int) -> None:
    payload = codec.encode_records([(0, b"k", bytes(size), ()), (1, b"k", b"v", ())], 0)
    assert walk(codec, payload, 2, True, 150_000) is None
    assert walk(codec, payload, 1, True, 150_000) == codec.find_fault(payload, 1, True)
    assert walk(codec, payload, 3, True, 150_000) == codec.find_fault(payload, 3, True)
    assert walk(codec, payload[:-1], 2, True, 150_000) == codec.find_fault(payload[:-1], 2, True)


def test_a_negative_count_is_a_fault(codec: RecordCodec) -> None:
    assert walk(codec, b"", -1, False, 1) == RecordFault(0, "the record count is -1")
