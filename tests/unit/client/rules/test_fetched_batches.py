"""From an answer's bytes to batches: offsets, markers, aborted transactions, other formats."""

from __future__ import annotations

import pytest

from moldau.client.consumer.rules.fetch_buffer import decode_batch, split_batches
from moldau.errors import BatchTooLargeError, CorruptBatchError, UnsupportedForMessageFormatError
from moldau.model import TopicPartition
from moldau.records.compression import Codec
from moldau.records.record import NewRecord
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_batch,
    build_marker_batch,
)

ZERO = TopicPartition("t", 0)


def batch(base_offset: int, count: int = 1, *, producer_id: int = -1, **options: object) -> bytes:
    rows = [NewRecord(1_000 + n, b"k", b"%d" % (base_offset + n)) for n in range(count)]
    return bytes(
        build_batch(
            rows,
            base_offset=base_offset,
            leader_epoch=7,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
            **options,  # type: ignore[arg-type]
        )
    )


def marker(base_offset: int, producer_id: int, kind: ControlType) -> bytes:
    return bytes(
        build_marker_batch(
            EndTransactionMarker(kind, 0),
            timestamp_ms=0,
            producer_id=producer_id,
            producer_epoch=0,
            base_offset=base_offset,
            leader_epoch=7,
        )
    )


def split(data: bytes, from_offset: int = 0, aborted: object = None) -> tuple[list[int], int]:
    found = split_batches(memoryview(data), from_offset, aborted)  # type: ignore[arg-type]
    return [one.header.base_offset for one in found.batches], found.next_offset


def test_batches_before_the_offset_are_left_out() -> None:
    assert split(batch(0, 3) + batch(3, 2) + batch(5), 4) == ([3, 5], 6)


def test_a_batch_that_is_cut_comes_with_the_next_fetch() -> None:
    assert split(batch(0, 3) + batch(3, 2)[:-1]) == ([0], 3)


def test_the_leader_epoch_is_that_of_the_last_batch() -> None:
    assert split_batches(memoryview(batch(0)), 0).leader_epoch == 7


def test_markers_are_not_given_but_passed() -> None:
    data = batch(0, 2, producer_id=4) + marker(2, 4, ControlType.COMMIT)
    assert split(data) == ([0], 3)
    assert split(marker(2, 4, ControlType.COMMIT), 2) == ([], 3)


def test_aborted_transactions_are_left_out_up_to_their_marker() -> None:
    data = b"".join(
        (
            batch(0, 2, producer_id=4),  # aborted
            batch(2, 1),  # of no transaction
            batch(3, 1, producer_id=5),  # committed
            marker(4, 4, ControlType.ABORT),
            batch(5, 1, producer_id=4),  # the next transaction of the same producer
            marker(6, 5, ControlType.COMMIT),
            marker(7, 4, ControlType.COMMIT),
        )
    )
    assert split(data, 0, [(4, 0)]) == ([2, 3, 5], 8)
    assert split(data, 0, []) == ([0, 2, 3, 5], 8)


def test_transactions_that_abort_one_after_the_other_are_told_apart() -> None:
    data = b"".join(
        (
            batch(0, 1, producer_id=4),
            marker(1, 4, ControlType.ABORT),
            batch(2, 1, producer_id=4),  # committed
            marker(3, 4, ControlType.COMMIT),
            batch(4, 1, producer_id=4),
            marker(5, 4, ControlType.ABORT),
        )
    )
    assert split(data, 0, [(4, 4), (4, 0)]) == ([2], 6)


def test_a_transaction_that_began_before_the_offset_is_left_out_from_there_on() -> None:
    data = batch(5, 1, producer_id=4) + marker(6, 4, ControlType.ABORT)
    assert split(data, 5, [(4, 1)]) == ([], 7)


def test_a_reader_of_everything_gets_aborted_records() -> None:
    data = batch(0, 1, producer_id=4) + marker(1, 4, ControlType.ABORT)
    assert split(data, 0, None) == ([0], 2)


def test_older_formats_are_refused() -> None:
    old = bytearray(batch(0))
    old[16] = 1
    with pytest.raises(UnsupportedForMessageFormatError, match="format 1"):
        split(bytes(old))
    with pytest.raises(UnsupportedForMessageFormatError, match="format 1"):
        split(bytes(old)[:40])


def test_a_batch_of_which_only_a_part_fits_is_explained() -> None:
    with pytest.raises(BatchTooLargeError, match="higher limit"):
        split(batch(0, 3)[:70])


def test_nothing_is_nothing() -> None:
    assert split(b"") == ([], 0)


@pytest.mark.parametrize("codec", list(Codec))
def test_records_are_decoded_from_the_offset_on(codec: Codec) -> None:
    (found,) = split_batches(memoryview(batch(10, 4, codec=codec)), 12).batches
    records = decode_batch(found, ZERO, 12)
    assert [one.offset for one in records] == [12, 13]
    first = records[0]
    assert (first.topic, first.partition, first.value, first.key) == ("t", 0, b"12", b"k")
    assert (first.timestamp_ms, first.timestamp_type, first.leader_epoch) == (1_002, 0, 7)


def test_the_time_of_appending_is_told_apart() -> None:
    (found,) = split_batches(memoryview(batch(0, 2, log_append_time_ms=5_000)), 0).batches
    records = decode_batch(found, ZERO, 0)
    assert {(one.timestamp_ms, one.timestamp_type) for one in records} == {(5_000, 1)}


def test_a_damaged_batch_is_named() -> None:
    data = bytearray(batch(3, 2))
    data[-1] ^= 1
    (found,) = split_batches(memoryview(data), 3).batches
    with pytest.raises(CorruptBatchError, match="t-0: the batch at offset 3 fails its CRC"):
        decode_batch(found, ZERO, 3)
