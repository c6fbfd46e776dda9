"""Appending: offsets, stamps, rolls, producers, epochs, files."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_bench import START_MS, LogBench, batch_of, headers_in, options, read_all

from moldau.errors import (
    CorruptBatchError,
    InvalidProducerEpochError,
    OutOfOrderSequenceError,
    StorageError,
)
from moldau.records.batch_header import crc_matches
from moldau.records.record_batch import build_batch, records_of
from moldau.storage.log import AppendResult


def data_of(bench: LogBench, base_offset: int = 0) -> bytes:
    return bench.files.read(bench.folder / f"{base_offset:020d}.log")


def test_offsets_are_given_in_order(bench: LogBench):
    log = bench.create()
    assert bench.append(log, 3) == AppendResult(0, 2, -1, 0, False)
    assert bench.append(log, 2) == AppendResult(3, 4, -1, 0, False)
    assert log.log_end_offset == 5
    assert [header.base_offset for header in read_all(log)] == [0, 3]


def test_the_batch_on_disk_is_the_batch_that_was_sent_but_for_offset_and_epoch(bench: LogBench):
    log = bench.create()
    bench.append(log)
    sent, _ = batch_of(2)
    bench.append(log, 2, leader_epoch=7)
    stored = data_of(bench)[-len(sent) :]
    assert stored[8:12] + stored[16:] == sent[8:12] + sent[16:]
    assert stored[:8] == (1).to_bytes(8, "big")
    assert stored[12:16] == (7).to_bytes(4, "big")


def test_log_append_time_is_written_into_the_batch_and_answered(bench: LogBench):
    log = bench.create(message_timestamp_type="LogAppendTime")
    result = bench.append(log, 2, timestamp_ms=5)
    now_ms = bench.clock.now_ms()
    assert result.log_append_time_ms == now_ms
    data = data_of(bench)
    [header] = headers_in(data)
    assert crc_matches(data, header)
    assert [record.timestamp_ms for record in records_of(data)] == [now_ms, now_ms]


def test_a_segment_is_rolled_before_it_would_grow_too_large(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size)
    for _ in range(5):
        bench.append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert [segment.size_bytes for segment in log.segments] == [2 * size, 2 * size, size]
    assert log.size_bytes == 5 * size


def test_a_segment_is_rolled_when_it_is_old(bench: LogBench):
    log = bench.create(segment_ms=1000)
    bench.append(log, timestamp_ms=START_MS)
    bench.append(log, timestamp_ms=START_MS + 1000)
    assert len(log.segments) == 1
    bench.append(log, timestamp_ms=START_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_segment_is_rolled_when_its_index_is_full(bench: LogBench):
    log = bench.create(index_interval_bytes=0, segment_index_bytes=12 * 4)
    for _ in range(9):
        bench.append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 4, 8]


def test_a_rolled_segment_has_complete_indexes_and_a_snapshot(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=3 * size, index_interval_bytes=0)
    for number in range(4):
        bench.append(log, timestamp_ms=START_MS + number)
    names = bench.files.list_folder(bench.folder)
    assert bench.files.size(bench.folder / "00000000000000000000.index") == 2 * 8
    assert bench.files.size(bench.folder / "00000000000000000000.timeindex") == 2 * 12
    assert "00000000000000000003.log" in names
    assert log.flushing in bench.directory.to_flush


def test_options_can_change_while_the_log_is_in_use(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create()
    for _ in range(3):
        bench.append(log)
    log.update_options(options(segment_bytes=size))
    bench.append(log)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


# Producers


def producer(sequence: int, epoch: int = 0) -> dict[str, int]:
    return {"producer_id": 9, "producer_epoch": epoch, "base_sequence": sequence}


def test_a_batch_that_comes_again_is_answered_with_its_first_offsets(bench: LogBench):
    log = bench.create()
    bench.append(log, 3, **producer(0))
    first = bench.append(log, 2, **producer(3))
    bench.append(log, 1, **producer(5))
    size = log.size_bytes
    assert bench.append(log, 2, **producer(3)) == first._replace(duplicate=True)
    assert log.size_bytes == size
    assert log.log_end_offset == 6


def test_a_gap_in_the_sequence_changes_nothing(bench: LogBench):
    log = bench.create()
    bench.append(log, 3, **producer(0))
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(log, 1, **producer(4))
    assert log.log_end_offset == 3
    bench.append(log, 1, **producer(3))


def test_an_old_epoch_is_fenced(bench: LogBench):
    log = bench.create()
    bench.append(log, 1, **producer(0, epoch=2))
    with pytest.raises(InvalidProducerEpochError):
        bench.append(log, 1, **producer(1, epoch=1))


def test_a_duplicate_on_a_log_append_time_topic_gets_its_first_timestamp(bench: LogBench):
    log = bench.create(message_timestamp_type="LogAppendTime")
    first = bench.append(log, 1, **producer(0))
    bench.clock.jump(60)
    assert bench.append(log, 1, **producer(0)) == first._replace(duplicate=True)


# Epochs


def test_leader_epochs_are_remembered_with_their_starts(bench: LogBench):
    log = bench.create()
    bench.append(log, 3, leader_epoch=1)
    bench.append(log, 2, leader_epoch=1)
    bench.append(log, 1, leader_epoch=4)
    assert log.latest_epoch == 4
    assert log.end_offset_for_epoch(1) == (1, 5)
    assert log.end_offset_for_epoch(3) == (1, 5)
    assert log.end_offset_for_epoch(4) == (4, 6)
    assert log.end_offset_for_epoch(5) == (-1, -1)


def test_a_leader_may_begin_its_epoch_before_it_writes(bench: LogBench):
    log = bench.create()
    bench.append(log, 3, leader_epoch=1)
    log.begin_epoch(2)
    assert log.end_offset_for_epoch(1) == (1, 3)
    assert log.end_offset_for_epoch(2) == (2, 3)


# Replicas


def replicated(*shapes: tuple[int, int, int]) -> memoryview:
    """Batches of (base offset, record count, leader epoch), as a leader sends them."""
    parts = [
        build_batch([(START_MS, None, b"v", ())] * count, base_offset=base, leader_epoch=epoch)
        for base, count, epoch in shapes
    ]
    return memoryview(b"".join(parts))


def test_a_follower_keeps_the_leaders_offsets_and_epochs(bench: LogBench):
    log = bench.create()
    records = replicated((0, 2, 1), (2, 1, 1), (3, 4, 3))
    assert log.append_replicated(records) == 7
    assert data_of(bench) == records
    assert log.end_offset_for_epoch(1) == (1, 3)


def test_a_follower_takes_over_the_gaps_of_a_compacted_log(bench: LogBench):
    log = bench.create()
    assert log.append_replicated(replicated((5, 2, 1), (90, 1, 1))) == 91
    assert [header.base_offset for header in read_all(log)] == [5, 90]


def test_a_follower_rolls_where_an_offset_does_not_fit(bench: LogBench):
    log = bench.create()
    far = 3 + 2**31
    log.append_replicated(replicated((0, 3, 1), (far, 1, 1)))
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert [header.base_offset for header in read_all(log)] == [0, far]


def test_a_damaged_batch_among_good_ones_is_refused_with_all_of_them(bench: LogBench):
    log = bench.create()
    records = bytearray(replicated((0, 2, 1), (2, 2, 1)))
    records[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        log.append_replicated(memoryview(records))
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


def test_a_batch_that_overlaps_the_log_is_refused(bench: LogBench):
    log = bench.create()
    log.append_replicated(replicated((0, 2, 1)))
    with pytest.raises(CorruptBatchError, match="2 is next"):
        log.append_replicated(replicated((1, 2, 1)))
    assert log.log_end_offset == 2


def test_a_batch_cut_short_at_the_end_is_left_for_the_next_fetch(bench: LogBench):
    log = bench.create()
    records = replicated((0, 2, 1), (2, 2, 1))
    assert log.append_replicated(records[:-5]) == 2


def test_a_closed_log_refuses_everything(bench: LogBench):
    log = bench.create()
    bench.append(log)
    log.close()
    with pytest.raises(StorageError, match="closed"):
        bench.append(log)
    with pytest.raises(StorageError, match="closed"):
        log.read(0, 100, end_offset=1, min_one=True)
    assert len(bench.open_files) == 0


def test_a_log_keeps_one_file_open(bench: LogBench, tmp_path: Path):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=size)
    for _ in range(4):
        bench.append(log)
    assert len(bench.open_files) <= len(log.segments)
