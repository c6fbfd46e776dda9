"""From the bytes of a fetch answer to records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.client.rules.fetched import decode_fetched
from moldau.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    UnsupportedForMessageFormatError,
)
from moldau.records.batch_builder import build_batch
from moldau.records.batch_header import HEADER_BYTES, MAGIC_AT
from moldau.records.compression import Codec
from moldau.records.control_records import ControlType, EndTransactionMarker, build_marker_batch
from moldau.records.record import NewRecord


def batch_of(count: int, base_offset: int, codec: Codec = Codec.NONE) -> bytes:
    rows = [NewRecord(1000 + n, None, b"value %d" % (base_offset + n)) for n in range(count)]
    return bytes(build_batch(rows, base_offset=base_offset, codec=codec))


def test_all_records_of_whole_batches_come_out() -> None:
    decoded = decode_fetched(batch_of(3, 10) + batch_of(2, 13, Codec.LZ4), 10)
    assert [record.offset for record in decoded.records] == [10, 11, 12, 13, 14]
    assert decoded.records[4].value == b"value 14"
    assert decoded.next_offset == 15


def test_nothing_fetched_leaves_the_position() -> None:
    assert decode_fetched(b"", 7) == ([], 7)


@given(st.integers(min_value=0, max_value=11))
def test_records_before_the_offset_are_skipped(from_offset: int) -> None:
    decoded = decode_fetched(batch_of(4, 0) + batch_of(4, 4) + batch_of(4, 8), from_offset)
    assert [record.offset for record in decoded.records] == list(range(from_offset, 12))
    assert decoded.next_offset == 12


def test_a_batch_that_is_wholly_before_the_offset_does_not_move_the_position_back() -> None:
    assert decode_fetched(batch_of(3, 0), 50) == ([], 50)


def test_a_last_batch_that_is_cut_short_is_left_for_the_next_fetch() -> None:
    decoded = decode_fetched(batch_of(2, 0) + batch_of(2, 2)[:-1], 0)
    assert [record.offset for record in decoded.records] == [0, 1]
    assert decoded.next_offset == 2


def test_markers_are_not_shown_but_passed() -> None:
    marker = build_marker_batch(
        EndTransactionMarker(ControlType.COMMIT, 1),
        timestamp_ms=1,
        producer_id=1,
        producer_epoch=0,
        base_offset=2,
    )
    decoded = decode_fetched(batch_of(2, 0) + bytes(marker), 0)
    assert [record.offset for record in decoded.records] == [0, 1]
    assert decoded.next_offset == 3


def test_a_damaged_batch_is_not_believed() -> None:
    damaged = bytearray(batch_of(2, 0))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="offset 0"):
        decode_fetched(damaged, 0)


def test_older_formats_are_refused_by_name() -> None:
    old = bytearray(batch_of(2, 0))
    old[MAGIC_AT] = 1
    with pytest.raises(UnsupportedForMessageFormatError, match="format 1"):
        decode_fetched(old, 0)
    with pytest.raises(UnsupportedForMessageFormatError, match="format 1"):
        decode_fetched(old[: HEADER_BYTES - 20], 0)


def test_a_single_batch_cut_short_says_that_the_limit_is_too_low() -> None:
    with pytest.raises(BatchTooLargeError, match="limit"):
        decode_fetched(batch_of(20, 0)[:100], 0)
