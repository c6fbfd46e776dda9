"""Compaction of a log: what stays, what is asked of the log meanwhile, what is left alone."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from itertools import pairwise

import pytest
from cleaner_bench import COMPACTED, clean, clean_now, put, put_rounds, read_records, table_of
from log_bench import START_MS, LogBench, read_all

from moldau.records.batch_header import read_header
from moldau.records.codec import LATEST_KEY_BYTES
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_marker_batch
from moldau.simulation.memory_files import MemoryFile, MemoryFiles
from moldau.storage import log_cleaner
from moldau.storage.log import Log
from moldau.storage.transaction_index import AbortedTransaction


def names_in(bench: LogBench) -> list[str]:
    return [name for name in bench.files.list_folder(bench.folder) if ".deleted" not in name]


def test_the_last_value_of_each_key_stays_at_its_offset(bench: LogBench):
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    before, size_bytes, end_offset = table_of(log), log.size_bytes, log.log_end_offset
    active = log.segments[-1]
    assert clean_now(bench, log)
    assert table_of(log) == before
    assert log.log_end_offset == end_offset
    assert log.log_start_offset == 0
    assert log.segments[-1] is active
    assert log.size_bytes < size_bytes / 2
    kept = [record.key for record in read_records(log) if record.offset < active.base_offset]
    assert len(kept) == len(set(kept))
    assert log.cleaned_offset == active.base_offset


def test_a_compacted_segment_goes_to_the_disk_while_it_is_written(
    memory_bench: LogBench, monkeypatch: pytest.MonkeyPatch
):
    bench, ends = memory_bench, list[int]()
    monkeypatch.setattr(log_cleaner, "STEP_BYTES", 300)
    monkeypatch.setattr(MemoryFile, "write_back", lambda file, end: ends.append(end))
    log = bench.create(**{**COMPACTED, "segment_bytes": 3_000})
    for number in range(60):
        put(bench, log, {b"%d" % number: b"x" * 50})
    assert clean_now(bench, log)
    steps = [end - start for start, end in pairwise(ends) if end > start]
    assert len(steps) > 5
    assert max(steps) < 600


def test_a_disk_that_fails_while_it_takes_a_compacted_segment_fails_the_directory(
    memory_bench: LogBench, monkeypatch: pytest.MonkeyPatch
):
    def fail(file: MemoryFile, end: int) -> None:
        raise OSError(errno.EIO, "broken")

    bench = memory_bench
    monkeypatch.setattr(log_cleaner, "STEP_BYTES", 1)
    monkeypatch.setattr(MemoryFile, "write_back", fail)
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    clean_now(bench, log)
    assert log.directory.failure is not None


def test_nothing_is_left_to_do_after_a_round(bench: LogBench):
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    assert clean_now(bench, log)
    assert not clean_now(bench, log)
    put_rounds(bench, log, 5)
    before = table_of(log)
    assert clean_now(bench, log)
    assert table_of(log) == before


def test_the_files_have_their_names_afterwards(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    clean_now(bench, log)
    stages = [name for name in names_in(bench) if name.endswith((".cleaned", ".swap"))]
    assert stages == []
    logs = [name for name in names_in(bench) if name.endswith(".log")]
    assert logs == [f"{segment.base_offset:020d}.log" for segment in log.segments]
    assert all(bench.files.exists(segment.path) for segment in log.segments)


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_compacted_log_is_the_same_after_a_restart(bench: LogBench, clean_stop: bool):
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    clean_now(bench, log)
    before, end_offset = read_records(log), log.log_end_offset
    if clean_stop:
        asyncio.run(log.shut_down())
    again = bench.load(clean=clean_stop, cleaned_offset=log.cleaned_offset)
    assert read_records(again) == before
    assert again.log_end_offset == end_offset
    assert again.cleaned_offset == log.cleaned_offset


def test_a_reader_gets_on_from_every_offset_with_every_limit(bench: LogBench):
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    clean_now(bench, log)
    all_records = read_records(log)
    assert read_records(log, max_bytes=1) == all_records
    for offset in range(log.log_end_offset):
        read = log.read(offset, 1, end_offset=log.log_end_offset, min_one=True)
        assert read.slice is not None
        assert read.end_offset > offset


def test_a_time_is_found_across_the_gaps(bench: LogBench):
    log = bench.create(**COMPACTED)
    for number in range(20):
        key = b"rare" if number == 4 else b"often"
        put(bench, log, {key: b"%d" % number}, timestamp_ms=START_MS + number)
    clean_now(bench, log)
    kept = read_records(log)
    for number in range(20):
        found = log.find_offset_by_timestamp(START_MS + number)
        assert found is not None
        assert found.offset == next(each.offset for each in kept if each.offset >= number)
    youngest = log.max_timestamp_offset()
    assert youngest is not None
    assert youngest.offset == 19


def test_the_youngest_record_is_found_when_a_bare_header_is_younger(bench: LogBench):
    log = bench.create(**{**COMPACTED, "segment_bytes": 150})
    put(bench, log, {b"a": b"1"}, timestamp_ms=START_MS + 99)
    put(bench, log, {b"b": b"1"}, timestamp_ms=START_MS + 100)
    for _ in range(4):
        put(bench, log, {b"b": b"2"}, timestamp_ms=START_MS)
    clean_now(bench, log)
    found = log.max_timestamp_offset()
    assert found is not None
    assert (found.offset, found.timestamp_ms) == (0, START_MS + 99)


def test_tombstones_go_in_the_first_round_after_their_horizon(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED, delete_retention_ms=1000)
    put_rounds(bench, log, 4)
    put(bench, log, {b"key-0": None})
    for _ in range(2):
        put(bench, log, {b"other": b"x" * 200})
        put(bench, log, {b"other": b"x" * 200})
        clean_now(bench, log)
        assert table_of(log)[b"key-0"] == (12, None)
    asyncio.run(bench.clock.advance(1.0))
    put(bench, log, {b"other": b"x" * 200})
    put(bench, log, {b"other": b"x" * 200})
    clean_now(bench, log)
    assert b"key-0" not in table_of(log)
    assert {b"key-1", b"key-2", b"other"} == set(table_of(log))


def test_a_producer_whose_records_are_gone_keeps_its_sequence(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    for sequence in range(3):
        put(bench, log, {b"a": b"1"}, producer_id=7, producer_epoch=0, base_sequence=sequence)
    put_rounds(bench, log, 6)
    put(bench, log, {b"a": b"2"})
    put_rounds(bench, log, 6)
    clean_now(bench, log)
    assert 2 not in [record.offset for record in read_records(log)]
    for snapshot in bench.files.list_folder(bench.folder):
        if snapshot.endswith(".snapshot"):
            bench.files.remove(bench.folder / snapshot)
    again = bench.load()
    repeated = put(bench, again, {b"a": b"1"}, producer_id=7, producer_epoch=0, base_sequence=2)
    assert repeated.duplicate
    assert repeated.first_offset == 2
    following = put(bench, again, {b"a": b"3"}, producer_id=7, producer_epoch=0, base_sequence=3)
    assert not following.duplicate


def test_leader_epochs_stay(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    for epoch in range(5):
        for _ in range(4):
            put(bench, log, {b"a": b"1"}, leader_epoch=epoch)
    before = log.epochs
    clean_now(bench, log)
    assert log.epochs == before
    assert bench.load().epochs == before
    assert read_all(log)[-1].leader_epoch == 4


def test_what_is_not_committed_stays(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    middle = log.segments[4].base_offset
    clean_now(bench, log, high_watermark=middle)
    offsets = [record.offset for record in read_records(log)]
    assert [each for each in offsets if each >= middle] == list(range(middle, log.log_end_offset))
    assert log.cleaned_offset == middle


def end_transaction(bench: LogBench, log: Log, control_type: ControlType) -> None:
    batch = build_marker_batch(
        EndTransactionMarker(control_type, 0),
        timestamp_ms=START_MS,
        producer_id=7,
        producer_epoch=0,
    )
    log.append(batch, read_header(batch), leader_epoch=0, now_ms=bench.clock.now_ms())


def put_in_transaction(bench: LogBench, log: Log, sequence: int, value: bytes) -> None:
    put(
        bench,
        log,
        {b"key-0": value},
        transactional=True,
        producer_id=7,
        producer_epoch=0,
        base_sequence=sequence,
    )


def test_an_open_transaction_is_not_touched(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 5)
    put_in_transaction(bench, log, 0, b"undecided")
    put_rounds(bench, log, 5)
    clean_now(bench, log)
    assert log.cleaned_offset <= 15
    assert (15, b"undecided") in [(each.offset, each.value) for each in read_records(log)]


def test_an_aborted_record_supersedes_nothing_and_the_marker_stays(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put(bench, log, {b"key-0": b"committed"})
    put_in_transaction(bench, log, 0, b"aborted")
    end_transaction(bench, log, ControlType.ABORT)
    for _ in range(6):
        put(bench, log, {b"other": b"x"})
    clean_now(bench, log)
    values = {record.offset: record.value for record in read_records(log)}
    assert values[0] == b"committed"
    assert 2 in [header.base_offset for header in read_all(log) if header.is_control]
    assert b"aborted" not in values.values()
    assert log.aborted_transactions(0, 3) == (AbortedTransaction(7, 1, 2, 3),)
    again = bench.load()
    assert again.producers.find(7).last_sequence == 0


def test_a_full_map_ends_a_round_early_and_the_next_one_goes_on(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 3, keys=12)
    before = table_of(log)
    small = {"log.cleaner.dedupe.buffer.size": str(6 * LATEST_KEY_BYTES)}
    rounds, cleaned = 0, 0
    while clean_now(bench, log, settings=small):
        assert log.cleaned_offset > cleaned
        cleaned = log.cleaned_offset
        rounds += 1
        assert table_of(log) == before
    assert rounds > 2
    assert log.cleaned_offset == log.segments[-1].base_offset


def test_small_segments_become_one(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 30)
    assert len(log.segments) > 20
    log.update_options(log.options.replace(segment_bytes=3000))
    clean_now(bench, log)
    assert len(log.segments) < 6
    put_rounds(bench, log, 30)
    clean_now(bench, log)
    assert len(log.segments) < 6


def test_a_segment_of_which_nothing_goes_is_not_replaced(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**{**COMPACTED, "segment_bytes": 150})
    for number in range(6):
        put(bench, log, {b"key-%d" % number: b"x" * 60})
    before = log.segments
    assert clean_now(bench, log)
    assert log.segments == before
    assert not any(name.endswith(".cleaned") for name in names_in(bench))


def test_a_log_that_is_not_dirty_enough_has_to_wait(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**{**COMPACTED, "min_cleanable_dirty_ratio": 1.0})
    put_rounds(bench, log, 10)
    assert not clean_now(bench, log)


def test_a_log_with_another_policy_is_left_alone(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**{**COMPACTED, "cleanup_policy": frozenset({"delete"})})
    put_rounds(bench, log, 10)
    assert not clean_now(bench, log)


def test_the_cleaner_does_not_read_faster_than_it_may(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    settings = {"log.cleaner.io.max.bytes.per.second": "1000"}

    async def story() -> None:
        task = asyncio.create_task(clean(bench, log, settings))
        seconds = 0
        while not task.done():
            await bench.clock.advance(1.0)
            seconds += 1
        assert task.result()
        assert seconds > 4

    asyncio.run(story())


def test_a_damaged_log_is_left_alone_and_stays_readable(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    file = log.segments[1].opened()
    file.write_at(70, b"\xff")
    before = read_all(log)
    clean_now(bench, log)
    assert read_all(log) == before
    assert bench.failures == []
    assert log.cleaned_offset == 0


def test_a_full_disk_puts_compaction_off_and_does_no_harm(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    before = table_of(log)
    bench.files.fail_next("write", errno.ENOSPC, path_matching="*.cleaned")
    assert not clean_now(bench, log)
    assert bench.failures == []
    assert not any(name.endswith(".cleaned") for name in names_in(bench))
    assert clean_now(bench, log)
    assert table_of(log) == before


# While the log changes


def disturbed(bench: LogBench, log: Log, change: Callable[[], None]) -> None:
    """Run a round that is interrupted once while it reads slowly."""
    settings = {
        "log.cleaner.io.max.bytes.per.second": "1000",
        "log.cleaner.io.buffer.size": "4096",
    }

    async def story() -> None:
        task = asyncio.create_task(clean(bench, log, settings))
        for _ in range(4):
            await bench.clock.advance(0.6)
        assert not task.done()
        change()
        while not task.done():
            await bench.clock.advance(1.0)
        task.result()

    asyncio.run(story())
    assert bench.failures == []
    assert not any(name.endswith((".cleaned", ".swap")) for name in names_in(bench))


def test_a_truncation_goes_first(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    disturbed(bench, log, lambda: log.truncate_to(10))
    assert [record.offset for record in read_records(log)] == list(range(10))


def test_retention_goes_first(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**{**COMPACTED, "cleanup_policy": frozenset({"compact", "delete"})})
    put_rounds(bench, log, 10)

    def delete() -> None:
        log.advance_start(10)
        assert log.delete_old_segments(START_MS, log.log_end_offset)

    disturbed(bench, log, delete)
    assert read_records(log)[-1].offset == log.log_end_offset - 1
    assert clean_now(bench, log)
    assert set(table_of(log)) == {b"key-0", b"key-1", b"key-2"}


def test_what_is_appended_and_read_meanwhile_is_not_disturbed(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)

    def use() -> None:
        put_rounds(bench, log, 3)
        assert table_of(log)[b"key-0"] == (36, b"2")

    disturbed(bench, log, use)
    assert table_of(log)[b"key-0"] == (36, b"2")
    assert log.cleaned_offset > 0


def test_a_log_that_is_closed_meanwhile_is_no_failure(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_rounds(bench, log, 10)
    settings = {"log.cleaner.io.max.bytes.per.second": "1000"}

    async def story() -> None:
        task = asyncio.create_task(clean(bench, log, settings))
        for _ in range(3):
            await bench.clock.advance(0.6)
        log.close()
        assert isinstance(bench.files, MemoryFiles)
        bench.files.rename(bench.folder, bench.folder.with_name("gone"))
        while not task.done():
            await bench.clock.advance(1.0)
        assert task.result() is False

    asyncio.run(story())
    assert bench.failures == []


def test_a_segment_ends_in_time_for_the_maximal_lag(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000)
    put(bench, log, {b"a": b"1"}, timestamp_ms=START_MS)
    put(bench, log, {b"a": b"2"}, timestamp_ms=START_MS + 1000)
    assert len(log.segments) == 1
    put(bench, log, {b"a": b"3"}, timestamp_ms=START_MS + 1001)
    assert len(log.segments) == 2


def test_a_round_leaves_a_line_that_says_why(
    memory_bench: LogBench, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    log = memory_bench.create(**COMPACTED)
    put_rounds(memory_bench, log, 10)
    assert clean_now(memory_bench, log)
    [line] = [each.getMessage() for each in caplog.records if each.name.endswith(".cleaner")]
    assert line.startswith(f"clicks-0: compacted from offset 0 to {log.cleaned_offset - 1}, ")
    assert line.endswith("min.cleanable.dirty.ratio 0.0: 1.00 of it was dirty")


def marker_offsets(log: Log) -> list[int]:
    return [header.base_offset for header in read_all(log) if header.is_control]


def a_day_later(bench: LogBench, log: Log) -> None:
    """Have the log cleaned once more when everybody could have read what is there."""
    bench.clock.jump(2 * log.options.delete_retention_ms / 1000)
    put_rounds(bench, log, 5)
    clean_now(bench, log)


@pytest.mark.parametrize("end", ControlType)
def test_a_marker_stays_as_long_as_its_transaction_has_records_and_a_while_longer(
    memory_bench: LogBench, end: ControlType
):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    put_in_transaction(bench, log, 0, b"first")
    end_transaction(bench, log, end)
    put_in_transaction(bench, log, 1, b"second")
    end_transaction(bench, log, ControlType.COMMIT)
    put_rounds(bench, log, 5)
    clean_now(bench, log)
    assert b"first" not in [record.value for record in read_records(log)]
    assert marker_offsets(log) == [1, 3]
    put_rounds(bench, log, 5)
    clean_now(bench, log)
    assert marker_offsets(log) == [1, 3]  # it is marked now
    assert log.aborted_transactions(0, log.log_end_offset) == ()
    a_day_later(bench, log)
    # The other transaction has the last batch of its producer: both stay, for its sequence.
    assert marker_offsets(log) == [3]
    again = bench.load(cleaned_offset=log.cleaned_offset)
    assert again.last_stable_offset(again.log_end_offset) == again.log_end_offset
    assert again.producers.find(7).last_sequence == 1


def test_a_marker_by_which_alone_a_producer_is_known_stays(memory_bench: LogBench):
    bench = memory_bench
    log = bench.create(**COMPACTED)
    end_transaction(bench, log, ControlType.ABORT)
    put_rounds(bench, log, 5)
    clean_now(bench, log)
    a_day_later(bench, log)
    assert marker_offsets(log) == [0]
