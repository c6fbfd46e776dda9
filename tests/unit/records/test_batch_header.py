from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from moldau.model import NO_SEQUENCE
from moldau.records.batch_header import (
    CONTROL_FLAG,
    HEADER_BYTES,
    TIMESTAMP_TYPE_FLAG,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
    read_size,
    stamp,
    walk_headers,
)
from moldau.records.record_batch import build_batch


def header_of(**changes: int) -> BatchHeader:
    return read_header(build_batch([(0, None, None, ())]))._replace(**changes)


def int_of(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


@given(
    st.builds(
        BatchHeader,
        *(int_of(64), int_of(32), int_of(32), int_of(8), st.integers(0, (1 << 32) - 1)),
        *(int_of(16), int_of(32), int_of(64), int_of(64), int_of(64)),
        *(int_of(16), int_of(32), int_of(32)),
    )
)
def test_every_field_is_read_from_its_place(header: BatchHeader) -> None:
    packed = struct.pack(">qiibIhiqqqhii", *header)

    assert len(packed) == HEADER_BYTES
    assert read_header(b"before" + packed, 6) == header


def test_the_flags_of_the_attributes_are_told_apart() -> None:
    assert header_of(attributes=4).codec == 4
    assert header_of(attributes=TIMESTAMP_TYPE_FLAG).is_log_append_time
    assert header_of(attributes=TRANSACTIONAL_FLAG).is_transactional
    assert header_of(attributes=CONTROL_FLAG).is_control
    plain = header_of(attributes=0)
    assert not plain.is_log_append_time
    assert not plain.is_transactional
    assert not plain.is_control


def test_offsets_end_where_the_last_delta_says() -> None:
    header = header_of(base_offset=100, last_offset_delta=9)

    assert header.last_offset == 109
    assert header.next_offset == 110


def test_sequences_wrap_to_zero() -> None:
    assert header_of(base_sequence=(1 << 31) - 1, last_offset_delta=1).last_sequence == 0
    assert header_of(base_sequence=5, last_offset_delta=2).last_sequence == 7
    assert header_of(base_sequence=NO_SEQUENCE, last_offset_delta=2).last_sequence == NO_SEQUENCE


def test_only_a_producer_id_from_zero_on_is_a_producer() -> None:
    assert header_of(producer_id=0).has_producer
    assert not header_of(producer_id=-1).has_producer


def test_walking_finds_every_whole_batch_and_stops_before_a_torn_one() -> None:
    first = build_batch([(0, None, b"a", ())])
    second = build_batch([(0, None, b"bbb", ())], base_offset=1)
    log = first + second

    for cut in range(len(log) + 1):
        found = [(position, header.base_offset) for position, header in walk_headers(log[:cut])]
        whole = [(0, 0)] * (cut >= len(first)) + [(len(first), 1)] * (cut == len(log))
        assert found == whole, cut


def test_walking_stops_at_a_size_that_cannot_be() -> None:
    for size in (-1, 0, HEADER_BYTES - 13):
        log = bytearray(200)
        struct.pack_into(">i", log, 8, size)
        assert list(walk_headers(log)) == []


def test_size_and_stamp_work_at_a_position() -> None:
    batch = build_batch([(0, None, b"a", ())])
    log = bytearray(batch + batch)

    stamp(log, 42, 3, len(batch))

    assert read_size(log, len(batch)) == len(batch)
    assert read_header(log).base_offset == 0
    assert read_header(log, len(batch)).base_offset == 42
    assert read_header(log, len(batch)).leader_epoch == 3
