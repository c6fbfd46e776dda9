"""Opening a log after every kind of stop."""

from __future__ import annotations

import asyncio
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_bench import START_MS, LogBench, batch_of, offsets_of, read_all

from moldau.model import TopicId
from moldau.records.batch_header import read_header, stamp
from moldau.records.record_batch import ControlType, EndTransactionMarker, build_marker_batch
from moldau.storage.checkpoint_files import encode_partition_metadata
from moldau.storage.log import Log

LOG = "00000000000000000000.log"
INDEX = "00000000000000000000.index"


def shut_down(log: Log) -> None:
    asyncio.run(log.shut_down())


def append_producer(bench: LogBench, log: Log, producer_id: int, sequence: int, count: int = 1):
    return bench.append(
        log, count, producer_id=producer_id, producer_epoch=1, base_sequence=sequence
    )


def end_transaction(bench: LogBench, log: Log, producer_id: int, kind: ControlType) -> None:
    marker = build_marker_batch(
        EndTransactionMarker(kind, 5),
        timestamp_ms=START_MS,
        producer_id=producer_id,
        producer_epoch=1,
    )
    log.append(marker, read_header(marker), leader_epoch=0, now_ms=START_MS)


# Torn tails


def test_a_cut_at_any_byte_leaves_exactly_the_whole_batches(memory_bench: LogBench):
    log = memory_bench.create(index_interval_bytes=0)
    boundaries = [0]
    for count in (1, 3, 2):
        memory_bench.append(log, count)
        boundaries.append(log.size_bytes)
    log.close()
    files, path = memory_bench.files, memory_bench.folder / LOG
    data = files.read(path)
    for size in range(len(data) + 1):
        files.replace(path, data[:size])
        recovered = memory_bench.load()
        whole = max(number for number, end in enumerate(boundaries) if end <= size)
        assert recovered.size_bytes == boundaries[whole]
        assert recovered.log_end_offset == [0, 1, 4, 6][whole]
        assert files.size(path) == boundaries[whole]
        assert files.read(path) == data[: boundaries[whole]]
        assert not recovered.has_lost_its_end  # whoever wrote it was killed, that is all
        recovered.close()


@given(tail=st.binary(min_size=1, max_size=300), damage=st.integers(0, 10_000))
def test_garbage_behind_or_inside_the_last_batch_is_cut(memory_bench_factory, tail, damage):
    bench = memory_bench_factory()
    log = bench.create()
    bench.append(log, 2)
    good = log.size_bytes
    bench.append(log, 2)
    log.close()
    path = bench.folder / LOG
    data = bytearray(bench.files.read(path))
    bench.files.replace(path, bytes(data) + tail)
    assert bench.load().log_end_offset == 4

    at = good + 8 + damage % (len(data) - good - 8)
    if not good + 12 <= at < good + 16:  # the leader epoch is outside the CRC
        data[at] ^= 0x40
        bench.files.replace(path, bytes(data))
        recovered = bench.load()
        assert recovered.log_end_offset == 2
        assert recovered.has_lost_its_end or at < good + 12  # the size: it may be unfinished


def test_what_is_behind_damage_goes_too(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size)
    for _ in range(6):
        bench.append(log)
    log.close()
    path = bench.folder / "00000000000000000002.log"
    data = bytearray(bench.files.read(path))
    data[-1] ^= 1
    bench.files.replace(path, bytes(data))
    recovered = bench.load()
    assert recovered.log_end_offset == 3
    assert recovered.has_lost_its_end
    assert offsets_of(read_all(recovered)) == [0, 1, 2]
    assert not bench.files.exists(bench.folder / "00000000000000000004.log")


def test_a_segment_that_lost_its_end_ends_the_log(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size)
    for _ in range(6):
        bench.append(log)
    log.close()
    path = bench.folder / "00000000000000000002.log"
    bench.files.replace(path, bench.files.read(path)[:size])
    recovered = bench.load()
    assert recovered.has_lost_its_end
    assert offsets_of(read_all(recovered)) == [0, 1, 2]
    assert bench.append(recovered).first_offset == 3


@pytest.mark.parametrize("is_known", [False, True])
def test_a_gap_is_left_alone_where_compaction_has_been_and_nowhere_else(
    bench: LogBench, is_known: bool
):
    """Kafka's cleaner leaves gaps before a segment, and its checkpoint says how far it came."""
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size, cleanup_policy=frozenset({"compact"}))
    for _ in range(6):
        bench.append(log)
    log.close()
    path = bench.folder / "00000000000000000002.log"
    bench.files.replace(path, bench.files.read(path)[:size])
    again = bench.load(cleaned_offset=4 if is_known else 3)
    assert [header.base_offset for header in read_all(again)] == [0, 1, 2, *((4, 5) * is_known)]
    assert again.has_lost_its_end is not is_known


def test_only_what_is_past_the_recovery_point_is_scanned(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size)
    for _ in range(6):
        bench.append(log)
    log.close()
    path = bench.folder / LOG
    data = bytearray(bench.files.read(path))
    data[-1] ^= 1
    bench.files.replace(path, bytes(data))
    assert bench.load(recovery_point=3).log_end_offset == 6
    assert bench.load(clean=True).log_end_offset == 6
    assert bench.load(recovery_point=1).log_end_offset == 1


def test_the_recovery_point_is_not_moved_by_recovery(bench: LogBench):
    log = bench.create()
    for _ in range(4):
        bench.append(log)
    log.close()
    assert bench.load(recovery_point=2).recovery_point == 2
    assert bench.load(recovery_point=99).recovery_point == 4
    assert bench.load(clean=True).recovery_point == 4


# Indexes


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_a_lost_index_is_rebuilt(bench: LogBench, suffix: str, clean: bool):
    log = bench.create(index_interval_bytes=0)
    for _ in range(5):
        bench.append(log)
    shut_down(log)
    path = bench.folder / f"00000000000000000000.{suffix}"
    before = bench.files.read(path)
    assert before
    bench.files.remove(path)
    again = bench.load(clean=clean, recovery_point=5)
    assert bench.files.read(path) == before
    assert offsets_of(read_all(again)) == [0, 1, 2, 3, 4]


def test_an_empty_log_that_lost_its_indexes_is_used_as_any_other(bench: LogBench):
    shut_down(bench.create())
    for suffix in ("index", "timeindex"):
        bench.files.remove(bench.folder / f"00000000000000000000.{suffix}")
    log = bench.load(clean=True)
    bench.append(log)
    bench.append(log)
    asyncio.run(log.flush())
    log.truncate_to(1)
    assert offsets_of(read_all(log)) == [0]
    assert bench.failures == []


def test_the_lost_index_of_an_old_segment_is_rebuilt_and_the_others_stay(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size, index_interval_bytes=0)
    for _ in range(6):
        bench.append(log)
    shut_down(log)
    path = bench.folder / "00000000000000000002.index"
    before = bench.files.read(path)
    bench.files.remove(path)
    again = bench.load(clean=True)
    assert bench.files.read(path) == before
    assert [segment.base_offset for segment in again.segments] == [0, 2, 4]


def test_an_index_that_points_behind_the_log_is_rebuilt(bench: LogBench):
    log = bench.create(index_interval_bytes=0)
    for _ in range(5):
        bench.append(log)
    shut_down(log)
    before = bench.files.read(bench.folder / INDEX)
    bench.files.replace(bench.folder / INDEX, before + bytes.fromhex("0000000900ffffff"))
    again = bench.load(clean=True)
    assert again.log_end_offset == 5
    assert bench.files.read(bench.folder / INDEX) == before


def test_a_folder_with_kafkas_preallocated_indexes_is_served(bench: LogBench):
    log = bench.create(index_interval_bytes=0)
    for _ in range(5):
        bench.append(log)
    shut_down(log)
    for suffix in ("index", "timeindex"):
        path = bench.folder / f"00000000000000000000.{suffix}"
        bench.files.replace(path, bench.files.read(path) + bytes(12 * 8 * 1000))
    again = bench.load(clean=True)
    assert offsets_of(read_all(again, max_bytes=1)) == [0, 1, 2, 3, 4]
    bench.append(again)
    assert offsets_of(read_all(again, max_bytes=1)) == [0, 1, 2, 3, 4, 5]
    shut_down(again)
    assert bench.files.size(bench.folder / INDEX) == 5 * 8


def test_a_missing_log_is_an_empty_one(bench: LogBench):
    bench.create().close()
    for name in bench.files.list_folder(bench.folder):
        bench.files.remove(bench.folder / name)
    log = bench.load()
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    bench.append(log)


def test_a_log_without_segments_starts_at_its_start_offset(bench: LogBench):
    bench.create().close()
    for name in bench.files.list_folder(bench.folder):
        bench.files.remove(bench.folder / name)
    log = bench.load(log_start=40)
    assert bench.append(log).first_offset == 40


# Left-over files


def test_left_over_files_are_removed_and_finished_swaps_take_their_place(bench: LogBench):
    size = len(batch_of()[0])
    log = bench.create(segment_bytes=2 * size)
    for _ in range(6):
        bench.append(log)
    shut_down(log)
    folder, files = bench.folder, bench.files
    compacted, _ = batch_of(1, value=b"compacted")
    stamp(compacted, 3, 0)
    files.replace(folder / f"{LOG}.swap", bytes(compacted))
    files.replace(folder / f"{INDEX}.swap", b"")
    files.replace(folder / "00000000000000000099.log.deleted", b"x")
    files.replace(folder / "00000000000000000004.log.cleaned", b"x")
    files.replace(folder / "00000000000000000077.index", b"")
    again = bench.load(clean=True)
    assert [header.base_offset for header in read_all(again)] == [3, 4, 5]
    names = files.list_folder(folder)
    assert not [name for name in names if name.endswith((".swap", ".deleted", ".cleaned"))]
    assert "00000000000000000077.index" not in names


# Producers


def producers_of(log: Log):
    return sorted((e.producer_id, e.producer_epoch, e.last_sequence) for e in log.producers)


@pytest.mark.parametrize("stop", ["clean", "kill", "kill after a flush"])
def test_producers_are_the_same_after_a_restart(bench: LogBench, stop: str):
    size = len(batch_of(2, producer_id=1, producer_epoch=1, base_sequence=0)[0])
    log = bench.create(segment_bytes=3 * size)
    for number in range(5):
        append_producer(bench, log, 1, 2 * number, 2)
        append_producer(bench, log, 2 + number % 2, number // 2)
    before = producers_of(log)
    if stop == "clean":
        shut_down(log)
    elif stop == "kill after a flush":
        asyncio.run(log.flush())
    point = log.recovery_point
    log.close()
    again = bench.load(clean=stop == "clean", recovery_point=point)
    assert producers_of(again) == before
    assert append_producer(bench, again, 1, 8, 2).duplicate
    assert not append_producer(bench, again, 1, 10, 2).duplicate


def test_a_damaged_snapshot_is_passed_over(bench: LogBench):
    log = bench.create()
    append_producer(bench, log, 1, 0, 3)
    before = producers_of(log)
    shut_down(log)
    path = bench.folder / "00000000000000000003.snapshot"
    bench.files.replace(path, bench.files.read(path)[:-1])
    again = bench.load(clean=True)
    assert producers_of(again) == before
    assert not bench.files.exists(path)


def test_after_a_clean_stop_the_log_is_not_read_for_its_producers(bench: LogBench):
    log = bench.create()
    append_producer(bench, log, 1, 0, 3)
    shut_down(log)
    path = bench.folder / LOG
    # Were the batch read again, it would be of another producer.
    data = bytearray(bench.files.read(path))
    data[43:51] = (99).to_bytes(8, "big")
    bench.files.replace(path, bytes(data))
    assert producers_of(bench.load(clean=True)) == [(1, 1, 2)]


@pytest.mark.parametrize("clean", [True, False])
def test_open_and_aborted_transactions_are_known_after_a_restart(bench: LogBench, clean: bool):
    log = bench.create()
    fields = {"producer_epoch": 1, "base_sequence": 0, "transactional": True}
    bench.append(log, 2, producer_id=1, **fields)  # 0, 1
    bench.append(log, 1, producer_id=2, **fields)  # 2
    end_transaction(bench, log, 1, ControlType.ABORT)  # 3
    assert log.last_stable_offset(4) == 2
    if clean:
        shut_down(log)
    log.close()
    again = bench.load(clean=clean)
    assert again.last_stable_offset(4) == 2
    assert [each[:3] for each in again.aborted_transactions(0, 4)] == [(1, 0, 3)]
    end_transaction(bench, again, 2, ControlType.COMMIT)
    assert again.last_stable_offset(5) == 5
    assert again.aborted_transactions(4, 5) == ()


# Epochs, identity


def test_an_epoch_whose_records_were_truncated_does_not_come_back(bench: LogBench):
    log = bench.create()
    bench.append(log, 2, leader_epoch=2)
    bench.append(log, 2, leader_epoch=3)
    asyncio.run(log.flush())
    log.truncate_to(2)
    bench.append(log, 2, leader_epoch=2)
    bench.append(log, 2, leader_epoch=5)
    epochs = log.epochs
    log.close()
    recovered = bench.load(recovery_point=2)
    assert recovered.epochs == epochs
    assert recovered.epochs.find_epoch_at(3) == 2


def test_epochs_are_rebuilt_from_the_batches_when_the_file_is_lost_or_damaged(bench: LogBench):
    log = bench.create()
    for epoch in (1, 1, 4):
        bench.append(log, 2, leader_epoch=epoch)
    epochs = log.epochs
    log.close()
    assert bench.load().epochs == epochs
    bench.files.replace(bench.folder / "leader-epoch-checkpoint", b"rubbish")
    assert bench.load(clean=True).epochs == epochs


def test_the_topic_id_is_read_and_a_damaged_one_is_unknown(bench: LogBench):
    topic_id = TopicId(UUID("6f1f0b36-7a3c-4a0e-9e0a-0c7b5a1d2e3f"))
    bench.create().close()
    path = bench.folder / "partition.metadata"
    bench.files.replace(path, encode_partition_metadata(topic_id))
    assert bench.load().topic_id == topic_id
    bench.files.replace(path, b"")
    assert bench.load().topic_id is None


# Power loss


@pytest.mark.parametrize("seed", range(60))
def test_what_was_flushed_survives_a_power_loss(memory_bench: LogBench, seed: int):
    random = Random(seed)
    log = memory_bench.create(segment_bytes=1000, index_interval_bytes=100)
    flushed = 0
    for number in range(40):
        append_producer(memory_bench, log, 1, 2 * number, 2)
        if random.random() < 0.2:
            asyncio.run(log.flush())
            flushed = log.log_end_offset
    point = log.recovery_point
    assert point == flushed
    memory_bench.files.lose_power(random)
    if not memory_bench.files.exists(memory_bench.folder):
        assert flushed == 0
        return
    again = memory_bench.load(recovery_point=point)
    assert again.log_end_offset >= flushed
    offsets = offsets_of(read_all(again, max_bytes=300))
    assert offsets == list(range(again.log_end_offset))
    if flushed:
        [(_, _, sequence)] = producers_of(again)
        assert sequence == again.log_end_offset - 1
        assert again.latest_epoch == 0


@pytest.mark.parametrize("change", ["cut", "longer"])
def test_a_clean_stop_does_not_vouch_for_a_copy_that_is_not_whole(
    memory_bench: LogBench, change: str
):
    """What is appended behind such an end could not be read, and went with the next recovery."""
    log = memory_bench.create()
    for _ in range(5):
        memory_bench.append(log, 2)
    log.close()
    path = log.segments[-1].path
    data = bytes(memory_bench.files.read(path))
    memory_bench.files.replace(path, data[:-7] if change == "cut" else data + bytes(500))

    log = memory_bench.load(clean=True, recovery_point=10)
    end_offset = 8 if change == "cut" else 10
    assert log.log_end_offset == end_offset
    assert log.has_lost_its_end
    memory_bench.append(log, 3)
    assert offsets_of(read_all(log)) == list(range(end_offset + 3))
    log.close()

    assert memory_bench.load().log_end_offset == end_offset + 3


@pytest.mark.parametrize("content", ["nothing", "garbage", "a cut"])
def test_what_compaction_had_ready_takes_no_place_if_it_is_damaged(
    memory_bench: LogBench, content: str
):
    log = memory_bench.create(segment_bytes=300)
    for _ in range(8):
        memory_bench.append(log, 2)
    log.close()
    path = log.segments[1].path
    data = bytes(memory_bench.files.read(path))
    swapped = {"nothing": b"", "garbage": bytes(100), "a cut": data[:-9]}[content]
    memory_bench.files.replace(path.with_name(path.name + ".swap"), swapped)
    memory_bench.files.replace(path.with_suffix(".index.swap"), bytes(16))

    log = memory_bench.load(recovery_point=16)

    assert offsets_of(read_all(log)) == list(range(16))
    assert not any(name.endswith(".swap") for name in memory_bench.files.list_folder(log.folder))
