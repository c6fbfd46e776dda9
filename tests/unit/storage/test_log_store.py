"""The store of all logs: folders, identity, markers, making and deleting logs, ending."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import TypeVar
from uuid import UUID

import pytest
from log_bench import DEFAULTS, START_MS, batch_of, offsets_of, read_all

from moldau.config.broker_options import BrokerOptions
from moldau.errors import StartupError, StorageError
from moldau.model import BrokerId, Offset, TopicId, TopicPartition
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.checkpoint_files import read_offset_checkpoint
from moldau.storage.files import Files, RealFiles
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.storage.log_table import clear_folder
from moldau.workers import InlineWorkers

CLICKS = TopicPartition("clicks", 0)
VIEWS = TopicPartition("views", 3)
TOPIC_ID = TopicId(UUID("6f1f0b36-7a3c-4a0e-9e0a-0c7b5a1d2e3f"))
OTHER_ID = TopicId(UUID(int=9))
DATA = Path("data")
BROKER = BrokerId(1)
CLUSTER = "cluster-one"

T = TypeVar("T")


class Bench:
    """A machine with its files and clock, on which stores are opened one after the other."""

    def __init__(self, files: Files | None = None, folders: tuple[Path, ...] = (DATA,)) -> None:
        self.files = files or MemoryFiles()
        self.folders = folders
        self.clock = ManualClock()
        self.failed: list[Path] = []
        self.settings: dict[str, str] = {}

    def directory_failed(self, folder: Path, error: OSError) -> None:
        self.failed.append(folder)

    def resolve_options(self) -> None:
        self.options = BrokerOptions.resolve(self.settings)

    def a_store(self) -> LogStore:
        self.resolve_options()
        return LogStore(
            self.folders,
            files=self.files,
            clock=self.clock,
            workers=InlineWorkers(),
            options=lambda: self.options,
            failures=self,
            random=Random(1),
        )

    async def open(self) -> LogStore:
        store = self.a_store()
        await store.open()
        await store.write_identity(BROKER, CLUSTER)
        return store


def run(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def append(log: Log, count: int = 1) -> None:
    batch, header = batch_of(count)
    log.append(batch, header, leader_epoch=0, now_ms=START_MS)


# Opening


def test_logs_are_there_again_after_a_clean_stop():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        append(log, 3)
        await store.create_log(VIEWS, TOPIC_ID, DEFAULTS)
        await store.close()

        again = await bench.open()
        assert set(again.logs) == {CLICKS, VIEWS}
        assert again.logs[CLICKS].topic_id == TOPIC_ID
        assert offsets_of(read_all(again.logs[CLICKS])) == [0, 1, 2]
        assert again.logs[CLICKS].recovery_point == 3
        await again.close()

    run(story)


def test_the_marker_of_a_clean_stop_is_kafkas_and_is_there_only_between_stop_and_start():
    async def story() -> None:
        bench = Bench()
        marker = DATA / ".kafka_cleanshutdown"
        store = await bench.open()
        await store.close(broker_epoch=42)
        assert json.loads(bench.files.read(marker)) == {"version": 0, "brokerEpoch": 42}
        store = await bench.open()
        assert not bench.files.exists(marker)
        await store.close()

    run(story)


def test_the_marker_does_not_come_back_with_a_power_loss():
    async def story() -> None:
        bench = Bench()
        await (await bench.open()).close()
        bench.files.sync_everything()
        await bench.open()
        bench.files.lose_power()
        assert not bench.files.exists(DATA / ".kafka_cleanshutdown")

    run(story)


def test_after_a_kill_the_torn_tail_is_cut():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 3)
        bench.files.crash_process()
        path = DATA / "clicks-0" / "00000000000000000000.log"
        bench.files.replace(path, bench.files.read(path) + b"torn")
        again = await bench.open()
        assert again.logs[CLICKS].log_end_offset == 3
        assert again.logs[CLICKS].recovery_point == 0
        await again.close()

    run(story)


def test_a_second_broker_on_the_folder_is_told_which_and_what_to_do():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        with pytest.raises(StartupError, match=r"another broker uses the data folder data; stop"):
            await bench.open()
        await store.close()
        await (await bench.open()).close()

    run(story)


def test_a_folder_says_whose_it_is():
    async def story() -> None:
        bench = Bench()
        store = bench.a_store()
        await store.open()
        assert (store.identities.broker_id, store.identities.cluster_id) == (None, None)
        await store.write_identity(BROKER, CLUSTER)
        await store.close()
        before = bench.files.read(DATA / "meta.properties")
        assert b"cluster.id=cluster-one" in before
        again = bench.a_store()
        await again.open()
        assert (again.identities.broker_id, again.identities.cluster_id) == (BROKER, CLUSTER)
        await again.write_identity(BROKER, CLUSTER)
        assert bench.files.read(DATA / "meta.properties") == before
        await again.close()

    run(story)


@pytest.mark.parametrize(
    ("broker_id", "cluster_id", "message"),
    [(BROKER, "cluster-two", "belongs to cluster cluster-one"), (2, CLUSTER, "--broker-id 1")],
)
def test_another_brokers_folder_is_refused(broker_id: int, cluster_id: str, message: str):
    async def story() -> None:
        bench = Bench()
        await (await bench.open()).close()
        store = bench.a_store()
        await store.open()
        with pytest.raises(StartupError, match=message):
            await store.write_identity(BrokerId(broker_id), cluster_id)
        await store.close()

    run(story)


def test_deleted_logs_are_removed_and_strange_folders_left_alone():
    async def story() -> None:
        bench = Bench()
        deleted = DATA / f"old-0.{'ab' * 16}-delete"
        for folder in (deleted, DATA / "notes", DATA / "lost+found"):
            bench.files.make_folder(folder)
        store = await bench.open()
        assert dict(store.logs) == {}
        assert not bench.files.exists(deleted)
        assert bench.files.exists(DATA / "notes")
        await store.close()

    run(story)


def test_a_log_that_cannot_be_served_stops_the_start_with_its_folder():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 3)
        bench.files.crash_process()
        import zlib

        body = b"\x01\x00" + bytes(8) + b"\xff\xff\xff\xff" + (3).to_bytes(4, "big") + b"old"
        message = zlib.crc32(body).to_bytes(4, "big") + body
        data = bytes(8) + len(message).to_bytes(4, "big") + message
        bench.files.replace(DATA / "clicks-0" / "00000000000000000000.log", data * 5)
        with pytest.raises(StartupError, match=r"clicks-0 cannot be opened.*format 1"):
            await bench.open()

    run(story)


# Several folders


def test_new_logs_go_to_the_folder_with_the_fewest():
    async def story() -> None:
        bench = Bench(folders=(Path("a"), Path("b"), Path("c")))
        store = await bench.open()
        for number in range(7):
            await store.create_log(TopicPartition("t", number), TOPIC_ID, DEFAULTS)
        counts = [len(store.logs_in(folder)) for folder in bench.folders]
        assert sorted(counts) == [2, 2, 3]
        await store.close()

    run(story)


def test_one_failing_folder_does_not_stop_the_others():
    async def story() -> None:
        bench = Bench(folders=(Path("a"), Path("b")))
        store = await bench.open()
        for number in range(4):
            append(await store.create_log(TopicPartition("t", number), TOPIC_ID, DEFAULTS))
        await store.close()
        bench.files.fail_next("list_folder", path_matching="a/*")
        again = await bench.open()
        await asyncio.sleep(0)
        assert bench.failed == [Path("a")]
        assert {log.directory.folder for log in again.logs.values()} == {Path("b")}
        assert len(again.logs) == 2
        new = await again.create_log(TopicPartition("new", 0), TOPIC_ID, DEFAULTS)
        assert new.directory.folder == Path("b")
        with pytest.raises(StorageError, match="may be in an offline directory"):
            await again.create_log(TopicPartition("t", 0), TOPIC_ID, DEFAULTS, is_new=False)
        await again.close()
        assert bench.files.exists(Path("b/.kafka_cleanshutdown"))
        assert not bench.files.exists(Path("a/.kafka_cleanshutdown"))

    run(story)


def test_a_folder_of_another_user_is_refused_with_what_to_do():
    async def story() -> None:
        bench = Bench()
        bench.files.fail_next("make_folder", errno.EACCES)
        with pytest.raises(StartupError, match=r"Permission denied.*--data-dir or log\.dirs"):
            await bench.open()

    run(story)


def test_when_every_folder_fails_the_broker_does_not_start():
    async def story() -> None:
        bench = Bench()
        bench.files.fail_next("make_folder")
        with pytest.raises(StartupError, match="no log directory can be used: data: "):
            await bench.open()

    run(story)


def test_a_partition_in_two_folders_is_refused():
    async def story() -> None:
        bench = Bench(folders=(Path("a"), Path("b")))
        store = await bench.open()
        await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        await store.close()
        bench.files.make_folder(Path("b/clicks-0"))
        with pytest.raises(StartupError, match="clicks-0 is in two log directories"):
            await bench.open()

    run(story)


def test_a_folder_that_fails_while_in_use_is_reported_once_and_described_as_offline():
    async def story() -> None:
        bench = Bench(folders=(Path("a"), Path("b")))
        store = await bench.open()
        logs = [
            await store.create_log(TopicPartition("t", number), TOPIC_ID, DEFAULTS)
            for number in range(4)
        ]
        bench.files.fail_next("write", errno.EIO, path_matching="a/*.log")
        for log in logs:
            if log.directory.folder == Path("a"):
                with pytest.raises(StorageError):
                    append(log)
            else:
                append(log)
        await asyncio.sleep(0)
        assert bench.failed == [Path("a")]
        a, b = store.describe()
        assert (a.online, b.online) == (False, True)
        assert a.total_bytes == -1
        assert b.total_bytes > b.usable_bytes > 0
        assert sum(b.sizes.values()) == sum(log.size_bytes for log in store.logs_in(Path("b")))
        await store.close()
        assert not bench.files.exists(Path("a/.kafka_cleanshutdown"))

    run(story)


# Making and deleting


@pytest.mark.parametrize("seed", range(20))
def test_a_new_log_is_there_with_its_topic_id_after_a_power_loss(seed: int):
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS))
        bench.files.lose_power(Random(seed))
        again = await bench.open()
        assert again.logs[CLICKS].topic_id == TOPIC_ID
        assert again.logs[CLICKS].log_end_offset in (0, 1)

    run(story)


def test_a_log_is_not_made_twice():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        with pytest.raises(StorageError, match="already"):
            await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        await store.close()

    run(story)


def test_a_store_that_nobody_served_from_does_not_take_the_ends_of_its_logs_for_committed():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 3)
        await store.close(high_watermarks={CLICKS: Offset(1)})
        await (await bench.open()).close()  # a broker that did not come up
        store = await bench.open()
        assert store.checkpoints.take_high_watermark(CLICKS) == 1
        await store.close()

    run(story)


def test_a_deleted_log_is_renamed_at_once_and_gone_after_its_delay():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        maintaining = asyncio.create_task(store.maintain())
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS.replace(file_delete_delay_ms=5000))
        append(log)
        await store.delete_log(CLICKS)
        assert CLICKS not in store.logs
        [name] = [name for name in bench.files.list_folder(DATA) if "clicks" in name]
        assert name.startswith("clicks-0.")
        assert name.endswith("-delete")
        with pytest.raises(StorageError):
            append(log)
        again = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        assert again.log_end_offset == 0
        await bench.clock.advance(4)
        assert bench.files.exists(DATA / name)
        await bench.clock.advance(2)
        assert not bench.files.exists(DATA / name)
        assert CLICKS in store.logs
        await store.delete_log(TopicPartition("unknown", 0))
        maintaining.cancel()
        await store.close()

    run(story)


def test_a_deleted_log_that_cannot_be_opened_to_be_removed_goes_later():
    async def story() -> None:
        bench = Bench()
        assert isinstance(bench.files, MemoryFiles)
        store = await bench.open()
        maintaining = asyncio.create_task(store.maintain())
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS.replace(file_delete_delay_ms=0)))
        bench.files.fail_next("remove", errno.EMFILE, path_matching="*-delete", count=2)
        await store.delete_log(CLICKS)
        await bench.clock.advance(1)
        assert any(name.endswith("-delete") for name in bench.files.list_folder(DATA))
        await bench.clock.advance(60)
        assert not any(name.endswith("-delete") for name in bench.files.list_folder(DATA))
        assert bench.failed == []
        maintaining.cancel()
        await store.close()

    run(story)


def test_a_log_made_again_does_not_inherit_the_start_offset_of_the_deleted_one():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        append(log, 10)
        log.advance_start(8)
        await store.checkpoints.write(store.directories[0])
        assert read_offset_checkpoint(bench.files, DATA / "log-start-offset-checkpoint") == {
            CLICKS: 8
        }
        await store.delete_log(CLICKS)
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 2)
        bench.files.crash_process()
        again = await bench.open()
        assert again.logs[CLICKS].log_start_offset == 0
        assert again.logs[CLICKS].log_end_offset == 2

    run(story)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_nothing_is_said_of_the_high_watermark_of_a_log_that_was_deleted(is_made_again: bool):
    """Else a later log of the name has it, or is missed before it was ever made (LOG-14)."""

    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 10)
        await store.close(high_watermarks={CLICKS: Offset(10)})
        store = await bench.open()
        await store.delete_log(CLICKS)
        if is_made_again:
            append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 2)
        else:
            await store.checkpoints.write_all()
            await store.checkpoints.write_high_watermarks()
        bench.files.crash_process()
        for name in bench.files.list_folder(DATA):
            if name.endswith("-delete"):  # its delay was over
                bench.files.remove_folder(DATA / name)
        again = await bench.open()
        assert again.checkpoints.take_high_watermark(CLICKS) == 0
        assert not again.is_missed(CLICKS)

    run(story)


# Ending


def test_a_clean_stop_leaves_kafkas_files():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        append(log, 5)
        log.advance_start(2)
        await store.close(high_watermarks={CLICKS: Offset(5)})
        assert bench.files.read(DATA / "recovery-point-offset-checkpoint") == b"0\n1\nclicks 0 5\n"
        assert bench.files.read(DATA / "replication-offset-checkpoint") == b"0\n1\nclicks 0 5\n"
        assert bench.files.read(DATA / "log-start-offset-checkpoint") == b"0\n1\nclicks 0 2\n"
        assert list(bench.files.list_folder(DATA / "clicks-0")) == [
            "00000000000000000000.index",
            "00000000000000000000.log",
            "00000000000000000000.timeindex",
            "00000000000000000005.snapshot",
            "leader-epoch-checkpoint",
            "log-start-offset",  # ours, where somebody has deleted records: Kafka passes over it
            "partition.metadata",
        ]
        assert bench.files.open_files == 0

    run(story)


def test_a_clean_stop_survives_a_power_loss():
    async def story() -> None:
        bench = Bench()
        bench.files.make_folder(DATA)
        bench.files.sync_everything()
        store = await bench.open()
        for number in range(5):
            append(await store.create_log(TopicPartition("t", number), TOPIC_ID, DEFAULTS), 5)
        await store.close()
        bench.files.lose_power(Random(3))
        again = await bench.open()
        assert [log.log_end_offset for log in again.logs.values()] == [5] * 5
        assert [log.recovery_point for log in again.logs.values()] == [5] * 5

    run(story)


def test_a_stop_with_a_failing_disk_leaves_no_marker_and_ends():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 5)
        bench.files.fail_next("sync", path_matching="*.log")
        await store.close()
        await asyncio.sleep(0)
        assert bench.failed == [DATA]
        assert not bench.files.exists(DATA / ".kafka_cleanshutdown")
        again = await bench.open()
        assert again.logs[CLICKS].log_end_offset == 5

    run(story)


def test_the_real_file_system_is_locked_and_loaded(tmp_path: Path):
    async def story() -> None:
        bench = Bench(RealFiles(), (tmp_path,))
        store = await bench.open()
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 5)
        with pytest.raises(StartupError, match="another broker"):
            await bench.open()
        await store.close()
        again = await bench.open()
        assert offsets_of(read_all(again.logs[CLICKS])) == [0, 1, 2, 3, 4]
        await again.close()

    run(story)


def test_what_is_in_the_place_of_a_new_log_is_kept_and_nothing_else_needs_a_name():
    files, folder, drawn = MemoryFiles(), DATA / "clicks-0", []

    def make_id() -> str:
        drawn.append("ab" * 16)
        return drawn[-1]

    clear_folder(files, folder, CLICKS, make_id)  # nothing is there
    files.make_folder(folder)
    files.replace(folder / "00000000000000000000.log", b"")
    clear_folder(files, folder, CLICKS, make_id)  # no record is
    assert (drawn, files.exists(folder)) == ([], False)
    files.make_folder(folder)
    files.replace(folder / "00000000000000000000.log", b"records")
    clear_folder(files, folder, CLICKS, make_id)
    assert len(drawn) == 1
    assert files.list_folder(DATA) == [f"clicks-0.{drawn[0]}-stray"]


# Checkpoints of logs that are deleted


class SlowWorkers(InlineWorkers):
    """Holds the first work that comes after `hold` until `go_on`, as a thread does that nobody can
    cancel."""

    def __init__(self) -> None:
        super().__init__()
        self._holds = False
        self._go_on = asyncio.Event()

    def hold(self) -> None:
        self._holds = True

    def go_on(self) -> None:
        self._go_on.set()

    async def run(self, work: Callable[[], T]) -> T:
        is_held, self._holds = self._holds, False
        return await (asyncio.shield(self._run_late(work)) if is_held else super().run(work))

    async def _run_late(self, work: Callable[[], T]) -> T:
        await self._go_on.wait()
        return await super().run(work)


async def open_slowly(bench: Bench) -> tuple[LogStore, SlowWorkers]:
    workers = SlowWorkers()
    bench.resolve_options()
    store = LogStore(
        bench.folders,
        files=bench.files,
        clock=bench.clock,
        workers=workers,
        options=lambda: bench.options,
        failures=bench,
        random=Random(1),
    )
    await store.open()
    await store.write_identity(BROKER, CLUSTER)
    return store, workers


def test_a_late_checkpoint_says_nothing_of_another_topic_of_the_same_name():
    """What the former log began with would be taken for where the new one begins."""

    async def story() -> None:
        bench = Bench()
        store, workers = await open_slowly(bench)
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        append(log, 9)
        log.advance_start(7)
        workers.hold()
        late = asyncio.create_task(store.checkpoints.write_all())
        await asyncio.sleep(0)
        await store.delete_log(CLICKS)
        making = asyncio.create_task(store.create_log(CLICKS, OTHER_ID, DEFAULTS))
        for _ in range(5):
            await asyncio.sleep(0)
        workers.go_on()
        await late
        append(await making, 3)
        bench.files.crash_process()
        log = (await bench.open()).logs[CLICKS]
        assert (log.topic_id, log.log_start_offset, log.log_end_offset) == (OTHER_ID, 0, 3)

    run(story)


def test_who_is_cancelled_does_not_leave_a_checkpoint_to_two_writers():
    """A broker that stops in the middle of one would write the same file a second time."""

    async def story() -> None:
        bench = Bench()
        store, workers = await open_slowly(bench)
        append(await store.create_log(CLICKS, TOPIC_ID, DEFAULTS), 9)
        await store.logs[CLICKS].flush()
        workers.hold()
        late = asyncio.create_task(store.checkpoints.write_all())
        await asyncio.sleep(0)
        late.cancel()
        stopping = asyncio.create_task(store.close())
        for _ in range(100):  # more than a stop takes
            await asyncio.sleep(0)
        path = DATA / "recovery-point-offset-checkpoint"
        assert not bench.files.exists(path)
        workers.go_on()
        await asyncio.wait([late, stopping])
        assert late.cancelled()
        assert read_offset_checkpoint(bench.files, path) == {CLICKS: 9}
        assert not bench.failed

    run(story)


def test_a_checkpoint_that_could_not_be_finished_is_written_again():
    async def story() -> None:
        bench = Bench()
        assert isinstance(bench.files, MemoryFiles)
        store = await bench.open()
        await store.checkpoints.write_all()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        append(log, 9)
        await log.flush()
        bench.files.fail_next("sync_folder", errno.EMFILE, path_matching="data")
        with pytest.raises(StorageError, match="too many files"):
            await store.checkpoints.write_all()
        await store.delete_log(CLICKS)
        await store.create_log(CLICKS, OTHER_ID, DEFAULTS)
        path = DATA / "recovery-point-offset-checkpoint"
        assert read_offset_checkpoint(bench.files, path) == {}
        await store.close()

    run(story)


def test_a_flush_that_ends_late_writes_nothing_into_the_log_of_another_topic():
    async def story() -> None:
        bench = Bench()
        store = await bench.open()
        log = await store.create_log(CLICKS, TOPIC_ID, DEFAULTS)
        batch, header = batch_of(5)
        log.append(batch, header, leader_epoch=7, now_ms=START_MS)
        (segment,) = log.segments
        sync, epochs = segment.sync, DATA / "clicks-0" / "leader-epoch-checkpoint"

        class Slow(type(segment)):  # type: ignore[misc]
            __slots__ = ()

            def sync(self) -> None:
                sync()
                log.close()  # as a deletion does, on the event loop; another log is made then
                bench.files.replace(epochs, b"of another log")

        segment.__class__ = Slow
        await log.flushing.flush()
        assert bench.files.read(epochs) == b"of another log"

    run(story)


@pytest.mark.parametrize("topic", ["clicks", "c" * 249])
def test_a_log_that_was_deleted_is_not_missed_however_often_the_broker_is_killed(topic: str):
    """LOG-14: its folder goes when no checkpoint speaks of it any more."""

    async def crash_at(step: int) -> bool:
        bench = Bench()
        key = TopicPartition(topic, 0)
        assert isinstance(bench.files, MemoryFiles)
        store = await bench.open()
        log = await store.create_log(key, TOPIC_ID, DEFAULTS)
        append(log, 9)
        await log.flush()
        store.checkpoints.note_high_watermark(key, Offset(9))
        await store.checkpoints.write_all()
        await store.checkpoints.write_high_watermarks()
        await store.delete_log(key)
        bench.files.crash_process()
        fault = bench.files.fail_next("*", skip=step, count=None)
        with contextlib.suppress(StartupError, OSError):
            await bench.open()
        bench.files.clear_faults()
        bench.files.crash_process()
        again = await bench.open()
        assert not again.is_missed(key), step
        assert not [name for name in bench.files.list_folder(DATA) if name.startswith("c")]
        await again.close()
        return fault.times_met > 0

    step = 0
    while asyncio.run(crash_at(step)):
        step += 1
    assert step > 10
