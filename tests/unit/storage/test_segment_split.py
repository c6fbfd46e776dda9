"""Segments with more offsets or bytes than indexes can describe, as they come from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from log_bench import START_MS, LogBench, batch_of, offsets_of, read_all

from moldau.errors import StorageError
from moldau.records.batch_header import read_header, stamp
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_marker_batch
from moldau.simulation.memory_files import FileOperation, MemoryFiles
from moldau.storage.log import Log
from moldau.storage.log_loader import split_segment
from moldau.storage.rules.file_names import LOG_SUFFIX, segment_file_name
from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET
from moldau.storage.segment import Segment
from moldau.storage.transaction_index import AbortedTransaction

FAR = MAX_RELATIVE_OFFSET + 1


def write_segment(bench: LogBench, base_offset: int, offsets: Sequence[int]) -> bytes:
    """A file with a batch of one record at each of these offsets, and no index."""
    data = bytearray()
    for offset in offsets:
        batch, _ = batch_of(1)
        stamp(batch, base_offset=offset, leader_epoch=0)
        data += batch
    bench.files.replace(bench.folder / segment_file_name(base_offset, LOG_SUFFIX), bytes(data))
    return bytes(data)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


SPARSE = (0, 5, MAX_RELATIVE_OFFSET, FAR, FAR + 7, 3 * FAR, 3 * FAR + 1)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_segment_whose_offsets_are_too_far_apart_is_split_and_loses_nothing(
    bench: LogBench, clean: bool, is_last: bool
) -> None:
    bench.create().close()
    write_segment(bench, 0, SPARSE)
    following = () if is_last else (SPARSE[-1] + 1,)
    if following:
        write_segment(bench, *following, following)
    end = (*SPARSE, *following)[-1] + 1
    cleaned_offset = 0
    for _ in range(2):  # what we have written ourselves the second time
        log = bench.load(
            clean=clean,
            recovery_point=end if is_last else 0,
            cleaned_offset=cleaned_offset,
        )
        cleaned_offset = log.cleaned_offset
        assert offsets_of(read_all(log)) == [*SPARSE, *following]
        assert log.log_end_offset == end
        assert bases(log) == [0, MAX_RELATIVE_OFFSET + 1, 3 * FAR, *following]
        assert not log.has_lost_its_end
        found = [log.read(at, 1, end_offset=end, min_one=True) for at in (*SPARSE, *following)]
        assert all(one.slice is not None for one in found)
        asyncio.run(log.shut_down())


def test_an_offset_that_a_disk_has_damaged_makes_no_segment(bench: LogBench) -> None:
    """Offsets are outside of the CRC: nothing else shows that this one is wrong."""
    bench.create().close()
    write_segment(bench, 0, (0, 1, 1 << 40))
    log = bench.load(recovery_point=1)
    assert (log.log_end_offset, bases(log)) == (2, [0])


def test_a_segment_that_is_too_long_is_split(bench: LogBench) -> None:
    bench.create().close()
    data = write_segment(bench, 0, range(10))
    length = len(data) // 10
    segment = Segment(
        bench.open_files, bench.folder, 0, size_bytes=len(data) + 3, created_ms=START_MS
    )
    segment.opened().write_at(len(data), b"end")  # of a batch that never was written
    segment.transaction_index.append(AbortedTransaction(7, 0, 2, 3))
    segment.transaction_index.append(AbortedTransaction(7, 3, 5, 6))
    assert split_segment(bench.directory, segment, 0, max_bytes=4 * length) == 0
    log = bench.load()
    assert offsets_of(read_all(log)) == list(range(10))
    assert bases(log) == [0, 4, 8]
    assert log.size_bytes == len(data)


def test_the_aborted_transactions_of_a_split_segment_are_where_their_markers_are(
    bench: LogBench,
) -> None:
    log = bench.create()
    for sequence in range(2):
        bench.append(
            log,
            producer_id=7,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
        )
        marker = build_marker_batch(
            EndTransactionMarker(ControlType.ABORT, 5),
            timestamp_ms=START_MS,
            producer_id=7,
            producer_epoch=0,
        )
        log.append(marker, read_header(marker), leader_epoch=0, now_ms=START_MS)
    asyncio.run(log.shut_down())
    size_bytes = log.size_bytes
    segment = Segment(bench.open_files, bench.folder, 0, size_bytes=size_bytes, created_ms=START_MS)
    before = segment.transaction_index.entries()
    split_segment(bench.directory, segment, 0, max_bytes=size_bytes // 2)
    found = [one.transaction_index.entries() for one in bench.load(clean=True).segments]
    assert found == [[before[0]], [before[1]]]


def test_a_file_that_is_too_long_and_damaged_is_refused_and_kept(bench: LogBench) -> None:
    bench.create().close()
    data = write_segment(bench, 0, range(4))
    segment = Segment(bench.open_files, bench.folder, 0, size_bytes=len(data), created_ms=START_MS)
    segment.opened().write_at(len(data) // 4 + 30, b"damage")
    with pytest.raises(StorageError, match=f"damaged at byte {len(data) // 4}"):
        split_segment(bench.directory, segment, 0, max_bytes=len(data) // 2)
    assert bench.load(clean=True).segments[0].size_bytes == len(data)


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_folder", "remove"])
def test_a_failure_at_any_step_of_a_split_loses_nothing(
    memory_bench: LogBench, operation: FileOperation
) -> None:
    bench, files = memory_bench, memory_bench.files
    assert isinstance(files, MemoryFiles)
    bench.create().close()
    write_segment(bench, 0, SPARSE)
    end = SPARSE[-1] + 1
    steps = 0
    while True:
        fault = files.fail_next(operation, skip=steps)
        try:
            log = bench.load(recovery_point=end)
        except OSError:
            files.crash_process()
            steps += 1
        else:
            break
        finally:
            fault.cancel()
    assert offsets_of(read_all(log)) == list(SPARSE)
    assert steps > 0
