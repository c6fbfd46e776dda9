"""What the log of a replica says of transactions."""

from __future__ import annotations

from moldau.records.batch_header import read_header
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_batch,
    build_marker_batch,
)
from moldau.simulation.history import StoredBatch
from moldau.simulation.machine import committed_offsets_of

COMMIT, ABORT = ControlType.COMMIT, ControlType.ABORT


def log_of(*rows: tuple[int, ControlType | None]) -> list[StoredBatch]:
    """Of each producer a record, or a marker; producer -1 has no transactions."""
    batches = []
    for offset, (producer, marker) in enumerate(rows):
        if marker is None:
            batch = build_batch(
                [(0, None, b"x", ())],
                base_offset=offset,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=producer >= 0,
            )
        else:
            batch = build_marker_batch(
                EndTransactionMarker(marker, 0),
                timestamp_ms=0,
                producer_id=producer,
                producer_epoch=0,
                base_offset=offset,
            )
        header = read_header(bytes(batch))
        batches.append(StoredBatch(header.base_offset, header.next_offset, 0, bytes(batch)))
    return batches


def test_records_are_committed_by_the_next_marker_of_their_producer() -> None:
    log = log_of((7, None), (8, None), (-1, None), (7, COMMIT), (8, None), (8, ABORT))
    assert committed_offsets_of(log) == {0, 2}


def test_a_transaction_without_a_marker_is_not_committed() -> None:
    log = log_of((7, None), (7, COMMIT), (7, None), (-1, None))
    assert committed_offsets_of(log) == {0, 3}
