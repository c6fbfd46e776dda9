"""Offsets by timestamp, against a plain list of records."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_bench import START_MS, LogBench, batch_of

from moldau.records.batch_header import read_header
from moldau.records.compression import Codec
from moldau.records.record_batch import build_batch
from moldau.storage.local_log import TimestampedOffset
from moldau.storage.log import Log


def append_with(log: Log, timestamps: list[int], codec: Codec = Codec.NONE) -> None:
    batch = build_batch([(t, None, b"v" * 20, ()) for t in timestamps], codec=codec)
    log.append(batch, read_header(batch), leader_epoch=6, now_ms=START_MS)


@given(
    batches=st.lists(
        st.lists(st.integers(1000, 1050), min_size=1, max_size=4), min_size=1, max_size=25
    ),
    codec=st.sampled_from([Codec.NONE, Codec.GZIP]),
    segment_bytes=st.sampled_from([300, 1000, 1 << 20]),
    interval=st.sampled_from([0, 200, 4096]),
    start=st.integers(0, 40),
    reopen=st.booleans(),
)
def test_lookups_find_what_a_scan_of_all_records_finds(
    memory_bench_factory, batches, codec, segment_bytes, interval, start, reopen
):
    bench = memory_bench_factory()
    log = bench.create(segment_bytes=segment_bytes, index_interval_bytes=interval)
    for timestamps in batches:
        append_with(log, timestamps, codec)
    records = list(enumerate(t for timestamps in batches for t in timestamps))
    start = min(start, len(records))
    log.advance_start(start)
    if reopen:
        log.close()
        log = bench.load(log_start=start)

    for target in range(998, 1053):
        expected = next(((o, t) for o, t in records if t >= target and o >= start), None)
        found = log.find_offset_by_timestamp(target)
        assert found == (None if expected is None else TimestampedOffset(*expected, 6))
    youngest = max((t for o, t in records if o >= start), default=None)
    first = next(((o, t) for o, t in records if t == youngest and o >= start), None)
    found = log.max_timestamp_offset()
    assert found == (None if first is None else TimestampedOffset(*first, 6))


def test_log_append_time_gives_the_first_record_of_the_batch(bench: LogBench):
    log = bench.create(message_timestamp_type="LogAppendTime")
    bench.append(log, 3)
    now_ms = bench.clock.now_ms()
    bench.clock.jump(10)
    bench.append(log, 3)
    assert log.find_offset_by_timestamp(now_ms) == (0, now_ms, 0)
    assert log.find_offset_by_timestamp(now_ms + 1) == (3, now_ms + 10_000, 0)
    assert log.max_timestamp_offset() == (3, now_ms + 10_000, 0)
    log.advance_start(4)
    assert log.find_offset_by_timestamp(0) == (4, now_ms + 10_000, 0)


def test_an_empty_log_finds_nothing(bench: LogBench):
    log = bench.create()
    assert log.find_offset_by_timestamp(0) is None
    assert log.max_timestamp_offset() is None


def test_records_without_timestamps_are_not_found(bench: LogBench):
    log = bench.create()
    append_with(log, [-1, -1])
    assert log.find_offset_by_timestamp(0) is None
    assert log.max_timestamp_offset() is None


@pytest.mark.parametrize("lose", [1, 3])
def test_segments_deleted_under_a_lookup_are_looked_for_no_more(bench: LogBench, lose: int):
    """As when a worker looks while the event loop applies retention."""
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=size, retention_bytes=(4 - lose) * size)
    for number in range(4):
        bench.append(log, timestamp_ms=START_MS + number)
    log.close()
    log = bench.load(clean=True)
    segments = log.segments

    class Deleting(tuple):
        """Segments that are deleted as soon as somebody looks at them."""

        def __iter__(self):
            if log.segments is self:
                log._local.segments = segments
                assert log.delete_old_segments(bench.clock.now_ms(), 4) == lose
                for removal in bench.directory.to_remove:
                    for path in removal.paths:
                        bench.files.remove(path)
            return super().__iter__()

    log._local.segments = Deleting(segments)
    found = log.find_offset_by_timestamp(START_MS)
    assert found == (lose, START_MS + lose, 0)
    assert bench.failures == []


def test_the_youngest_record_may_be_before_the_start(bench: LogBench):
    log = bench.create(message_timestamp_type="LogAppendTime")
    for jump in (10, -5, -3):
        bench.clock.jump(max(0, jump))
        batch, header = batch_of(2)
        log.append(batch, header, leader_epoch=0, now_ms=bench.clock.now_ms() + 1000 * jump)
    log.advance_start(2)
    assert log.max_timestamp_offset() == (4, bench.clock.now_ms() - 3000, 0)


def test_lookups_in_threads_do_not_mind_appends_rolls_truncations_and_deletions(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=4 * size, index_interval_bytes=0, retention_bytes=20 * size)
    done = threading.Event()
    faults = []

    def look() -> None:
        while not done.is_set():
            try:
                log.find_offset_by_timestamp(START_MS + 10)
                log.max_timestamp_offset()
            except Exception as error:  # noqa: BLE001 the test shows it
                faults.append(error)
                return

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1500):
        bench.append(log, timestamp_ms=START_MS + number)
        if number % 37 == 0:
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - 6))
        if number % 50 == 0:
            log.delete_old_segments(START_MS, log.log_end_offset)
        if number == 1000:
            log.truncate_fully(5000)
    done.set()
    for thread in threads:
        thread.join()
    assert faults == []
    assert bench.failures == []
