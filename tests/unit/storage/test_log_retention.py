"""Deleting what is old, and truncating."""

from __future__ import annotations

import pytest
from log_bench import START_MS, LogBench, batch_of, offsets_of, read_all

from moldau.errors import OffsetOutOfRangeError
from moldau.storage.log import MOST_DELETED_AT_ONCE, Log

SIZE = len(batch_of()[0])


def a_log(bench: LogBench, segments: int, **values: object) -> Log:
    """Segments of two records each, a second apart."""
    log = bench.create(segment_bytes=2 * SIZE, **values)
    for number in range(2 * segments):
        bench.append(log, timestamp_ms=START_MS + 500 * number)
    return log


def names_in(bench: LogBench, suffix: str) -> list[str]:
    return [name[18:] for name in bench.files.list_folder(bench.folder) if name.endswith(suffix)]


def test_old_segments_go_and_the_log_starts_after_them(bench: LogBench):
    log = a_log(bench, 4, retention_ms=10_000)
    assert log.delete_old_segments(START_MS + 10_500, 8) == 0
    assert log.delete_old_segments(START_MS + 11_501, 8) == 2
    assert log.log_start_offset == 4
    assert offsets_of(read_all(log)) == [4, 5, 6, 7]
    assert names_in(bench, ".log") == ["04.log", "06.log"]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(3, 100, end_offset=8, min_one=True)


def test_the_files_are_renamed_and_wait_for_their_time(bench: LogBench):
    log = a_log(bench, 3, retention_bytes=4 * SIZE, file_delete_delay_ms=777)
    assert log.delete_old_segments(START_MS, 6) == 1
    assert names_in(bench, ".deleted") == [
        "00.index.deleted",
        "00.log.deleted",
        "00.timeindex.deleted",
    ]
    [removal] = bench.directory.to_remove
    assert removal.delay_ms == 777
    assert {path.name[18:] for path in removal.paths} >= set(names_in(bench, ".deleted"))


def test_nothing_above_the_high_watermark_goes(bench: LogBench):
    log = a_log(bench, 4, retention_ms=0)
    assert log.delete_old_segments(START_MS + 10**9, 3) == 1
    assert log.log_start_offset == 2


def test_many_segments_go_in_several_turns(bench: LogBench):
    log = a_log(bench, MOST_DELETED_AT_ONCE + 7, retention_ms=1000)
    now_ms = START_MS + 10**9
    assert log.delete_old_segments(now_ms, log.log_end_offset) == MOST_DELETED_AT_ONCE
    assert log.delete_old_segments(now_ms, log.log_end_offset) == 7
    assert log.delete_old_segments(now_ms, log.log_end_offset) == 0
    assert log.size_bytes == 0


def test_a_policy_of_ones_own_decides(bench: LogBench):
    class KeepThree:
        def deletable(self, segments, log, now_ms) -> int:
            return len(segments) - 3

    bench.directory.retention_policies = lambda options: [KeepThree()]
    log = a_log(bench, 5, retention_ms=0)
    assert log.delete_old_segments(START_MS + 10**9, 10) == 2
    assert log.log_start_offset == 4


def test_an_expired_active_segment_is_rolled_first(bench: LogBench):
    log = a_log(bench, 2, retention_ms=1000)
    assert log.delete_old_segments(START_MS + 10**9, 4) == 2
    assert [segment.base_offset for segment in log.segments] == [4]
    assert (log.log_start_offset, log.log_end_offset) == (4, 4)
    assert bench.append(log).first_offset == 4


def test_a_compacted_topic_keeps_old_segments(bench: LogBench):
    log = a_log(bench, 3, retention_ms=0, cleanup_policy=frozenset({"compact"}))
    assert log.delete_old_segments(START_MS + 10**9, 6) == 0


def test_segments_before_the_start_offset_go_whatever_the_policy(bench: LogBench):
    log = a_log(bench, 3, retention_ms=-1, cleanup_policy=frozenset({"compact"}))
    log.advance_start(5)
    assert log.delete_old_segments(START_MS, 6) == 2
    assert log.log_start_offset == 5
    assert bench.directory.offsets_changed


def test_the_start_offset_cannot_pass_the_end_or_go_back(bench: LogBench):
    log = a_log(bench, 1)
    with pytest.raises(OffsetOutOfRangeError):
        log.advance_start(3)
    log.advance_start(2)
    log.advance_start(1)
    assert log.log_start_offset == 2


def test_epochs_before_the_start_are_forgotten(bench: LogBench):
    log = bench.create()
    for epoch in (1, 2, 3):
        bench.append(log, 2, leader_epoch=epoch)
    log.advance_start(3)
    assert log.end_offset_for_epoch(1) == (1, 3)
    assert log.epochs.find_epoch_at(3) == 2


def test_truncation_removes_segments_batches_and_epochs(bench: LogBench):
    log = bench.create(segment_bytes=2 * SIZE)
    for number in range(6):
        bench.append(log, leader_epoch=number)
    log.truncate_to(3)
    assert offsets_of(read_all(log)) == [0, 1, 2]
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert log.latest_epoch == 2
    assert names_in(bench, ".log") == ["00.log", "02.log"]
    assert bench.append(log, leader_epoch=9).first_offset == 3
    assert offsets_of(read_all(log)) == [0, 1, 2, 3]


def test_truncation_inside_a_batch_removes_the_whole_batch(bench: LogBench):
    log = bench.create()
    bench.append(log, 3)
    bench.append(log, 3)
    log.truncate_to(4)
    assert log.log_end_offset == 3


def test_truncation_to_the_end_or_past_it_changes_nothing_but_empty_epochs(bench: LogBench):
    log = a_log(bench, 2)
    log.begin_epoch(7)
    log.truncate_to(4)
    assert log.log_end_offset == 4
    assert log.latest_epoch == 0
    log.truncate_to(99)
    assert log.log_end_offset == 4


def test_truncation_before_the_first_segment_starts_there(bench: LogBench):
    log = a_log(bench, 3, retention_bytes=2 * SIZE)
    log.delete_old_segments(START_MS, 6)
    log.truncate_to(1)
    assert (log.log_start_offset, log.log_end_offset) == (1, 1)
    assert bench.append(log).first_offset == 1


def test_full_truncation_starts_the_log_anew(bench: LogBench):
    log = a_log(bench, 3)
    log.truncate_fully(100)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (100, 100, 0)
    assert log.latest_epoch is None
    assert log.recovery_point <= 100
    assert bench.append(log).first_offset == 100
    assert offsets_of(read_all(log)) == [100]


def test_full_truncation_to_the_same_offset_empties_the_files(bench: LogBench):
    log = a_log(bench, 1)
    log.truncate_fully(0)
    assert log.size_bytes == 0
    bench.append(log, 3)
    assert offsets_of(read_all(log)) == [0, 1, 2]
    log.close()
    assert bench.load().log_end_offset == 3


def test_a_producer_whose_batches_were_truncated_is_what_it_was_before(bench: LogBench):
    log = bench.create()
    for sequence in range(4):
        bench.append(log, producer_id=1, producer_epoch=0, base_sequence=sequence)
    bench.append(log, producer_id=2, producer_epoch=0, base_sequence=0)
    log.truncate_to(2)
    assert [(e.producer_id, e.last_sequence) for e in log.active_producers()] == [(1, 1)]
    assert bench.append(log, producer_id=1, producer_epoch=0, base_sequence=1).duplicate
    assert not bench.append(log, producer_id=1, producer_epoch=0, base_sequence=2).duplicate


# What is said of it


def lines_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "moldau.storage"]


def test_segments_that_go_leave_a_line_for_each_reason(
    bench: LogBench, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    log = a_log(bench, 5, retention_ms=1000, retention_bytes=-1)
    size = log.segments[0].size_bytes
    log.advance_start(2)
    assert log.delete_old_segments(START_MS, 10) == 1
    assert lines_of(caplog) == [
        f"clicks-0: deleted offsets 0 to 1, {size} bytes in 1 segment: the log starts at offset 2 "
        "(DeleteRecords, or its leader's)"
    ]
    caplog.clear()
    log.update_options(log.options.replace(retention_ms=-1, retention_bytes=2 * size))
    assert log.delete_old_segments(START_MS, 10) == 2
    assert lines_of(caplog) == [
        f"clicks-0: deleted offsets 2 to 5, {2 * size} bytes in 2 segments: "
        f"retention.bytes {2 * size}: the log had {4 * size} bytes"
    ]
    caplog.clear()
    log.update_options(log.options.replace(retention_ms=1000, retention_bytes=-1))
    newest_ms = log.segments[0].largest_timestamp()
    assert log.delete_old_segments(newest_ms + 5000, 10) == 2
    [line] = lines_of(caplog)
    assert "offsets 6 to 9" in line
    assert "retention.ms 1000: the newest record of the first is of 2023-11-14T22:" in line
    assert line.endswith(", 5000 ms ago")
