"""One life of a log on a disk that forgets what was not flushed, drawn from a seed.

Appends, flushes, checkpoints, compaction, retention, DeleteRecords and truncations, with a power
loss, a kill or a clean stop at any moment, also in the middle of an operation: from some step on
nothing reaches the disk, and then the power goes. After each start the log is compared with its
history:

- what was flushed is there, and what is there is a prefix of what was appended (LOG-6, LOG-7);
- inside the prefix only compaction has left gaps: nothing is missing above what it has been at,
  and below it the last value of each key is there;
- producers, leader epochs and timestamps are those of the prefix (SEQ-3, IDX-2);
- a log that lost something it had flushed says so (REP-6).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple
from uuid import UUID

from cleaner_bench import read_records
from log_bench import DEFAULTS, START_MS

from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import MoldauError, StorageError
from moldau.model import BrokerId, Offset, TopicId, TopicPartition
from moldau.records.batch_header import read_header
from moldau.records.record import Record
from moldau.records.record_batch import build_batch, records_of
from moldau.simulation.manual_clock import ManualClock
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.file_records import walk_batches
from moldau.storage.log_cleaner import LogCleaner
from moldau.storage.log_store import LogStore
from moldau.workers import InlineWorkers

DATA = Path("data")
PARTITION = TopicPartition("clicks", 0)
TOPIC_ID = TopicId(UUID(int=7, version=4))
PRODUCERS = (11, 12)


class Batch(NamedTuple):
    """A batch of the history, as the log wrote it first."""

    base_offset: int
    next_offset: int
    leader_epoch: int
    producer_id: int
    last_sequence: int
    data: bytes
    records: tuple[Record, ...]


@dataclass
class Failures:
    """Hears of folders that went offline."""

    count: int = 0

    def directory_failed(self, folder: Path, error: OSError) -> None:
        self.count += 1


class Story:
    """See the module. `run` once."""

    folders: tuple[Path, ...] = (DATA,)

    def __init__(self, seed: int, policy: str) -> None:
        self.random = Random(seed)
        self.policy = frozenset(policy.split(","))
        self.files = MemoryFiles()
        for folder in self.folders:
            self.files.make_folder(folder)
        self.files.sync_everything()
        self.clock = ManualClock(START_MS)
        self.options: TopicOptions = DEFAULTS.replace(
            cleanup_policy=self.policy,
            segment_bytes=self.random.choice((2_000, 5_000, 12_000)),
            index_interval_bytes=self.random.choice((0, 500, 4096)),
            min_cleanable_dirty_ratio=0.0,
            file_delete_delay_ms=0,
        )
        self.broker_options = BrokerOptions.resolve({})
        self.happened: list[str] = []  # for whoever looks at a seed that fails
        self.history: list[Batch] = []
        self.start = 0  # where the history begins
        self.end = 0
        self.epoch = 0
        self.high_watermark = 0
        self.cleaned = 0  # compaction may have been up to here
        self.flushed = 0  # what must be there after a power loss
        self.timestamp_ms = START_MS

    def run(self, steps: int = 25) -> None:
        asyncio.run(self._run(steps))

    async def _run(self, steps: int) -> None:
        await self._open()
        self.log = await self.store.create_log(PARTITION, TOPIC_ID, self.options)
        for _ in range(steps):
            await self._step()
        await self._lose_power()

    # Doing

    def _works(self) -> Mapping[Callable[[], Awaitable[None]], int]:
        """What may happen, and how often."""
        works = (
            self._append,
            self._flush,
            self._checkpoint,
            self._commit,
            self._compact,
            self._delete_records,
            self._retain,
            self._truncate,
            self._begin_anew,
            self._stop_cleanly,
            self._kill,
            self._fail_to_sync,
            self._lack_handles,
            self._lose_power,
        )
        weights = (40, 8, 6, 10, 8, 3, 3, 6, 1, 2, 3, 1, 1, 6)
        return dict(zip(works, weights, strict=True))

    async def _step(self) -> None:
        works = self._works()
        work = self.random.choices(tuple(works), tuple(works.values()))[0]
        self.happened.append(work.__name__)
        has_faults = work in (self._fail_to_sync, self._lack_handles)
        if self.random.random() < 0.12 and not has_faults:
            await self._interrupt(work)
        else:
            await work()

    async def _interrupt(self, work: Callable[[], Awaitable[None]]) -> None:
        """From some operation on nothing reaches the disk; then the power goes."""
        skipped = self.random.choice((self.random.randrange(8), self.random.randrange(60)))
        before = self.end
        fault = self.files.fail_next("*", skip=skipped, count=None)
        with contextlib.suppress(MoldauError, OSError):
            await work()
        if fault.times_met:
            self.happened.append(f"interrupted after {skipped}")
            self.flushed = min(self.flushed, self.end, before)
        self.files.clear_faults()
        await self._lose_power()

    async def _append(self) -> None:
        for _ in range(self.random.randint(1, 6)):
            self._append_one()

    def _append_one(self) -> None:
        count = self.random.randint(1, 4)
        producer_id = self.random.choice((-1, *PRODUCERS))
        sequence = self._next_sequence(producer_id)
        size = self.random.choice((3, 40, 700, 1400))
        rows = []
        for _ in range(count):
            self.timestamp_ms += self.random.randint(-5, 20)
            key = b"key-%d" % self.random.randrange(6)
            value = None if self.random.random() < 0.1 else self.random.randbytes(size)
            rows.append((self.timestamp_ms, key, value, ()))
        fields: dict[str, int] = {}
        if producer_id >= 0:
            fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        batch = build_batch(rows, **fields)  # type: ignore[arg-type]
        header = read_header(batch)
        result = self.log.append(batch, header, leader_epoch=self.epoch, now_ms=self.clock.now_ms())
        assert result.first_offset == self.end
        stamped = read_header(batch)
        self.history.append(
            Batch(
                stamped.base_offset,
                stamped.next_offset,
                self.epoch,
                producer_id,
                sequence + count - 1,
                bytes(batch),
                tuple(records_of(bytes(batch), stamped)),
            )
        )
        self.end = stamped.next_offset

    def _next_sequence(self, producer_id: int) -> int:
        found = self.log.producers.find(producer_id)
        return 0 if found is None else found.last_sequence + 1

    async def _flush(self) -> None:
        await self.log.flush()
        assert self.log.recovery_point == self.end
        self.flushed = self.end

    async def _checkpoint(self) -> None:
        await self.store.checkpoints.write(self.log.directory)
        await self.store.checkpoints.write_high_watermarks({PARTITION: Offset(self.high_watermark)})

    async def _commit(self) -> None:
        self.high_watermark = self.random.choice(
            (self.end, self.random.randint(self.high_watermark, self.end))
        )

    async def _compact(self) -> None:
        if self.random.random() < 0.7:
            await self._flush()
        reach = min(self.high_watermark, self.log.recovery_point)
        self.cleaned = max(self.cleaned, reach)
        cleaner = LogCleaner(self.clock, lambda: self.broker_options)
        await cleaner.clean_dirtiest(
            {PARTITION: self.log}, {PARTITION: Offset(self.high_watermark)}
        )

    async def _delete_records(self) -> None:
        self.log.advance_start(self.random.randint(self.log.log_start_offset, self.high_watermark))
        await self._retain()

    async def _retain(self) -> None:
        if self.random.random() < 0.5:
            kept = self.random.choice((0, 3_000, 20_000))
            self.log.update_options(self.options.replace(retention_bytes=kept))
        self.log.delete_old_segments(self.clock.now_ms(), self.high_watermark)
        self.log.update_options(self.options)

    async def _truncate(self) -> None:
        """As a follower does, whose new leader has another history from some batch on."""
        places = [each.base_offset for each in self.history]
        lowest = max(self.high_watermark, self.log.log_start_offset)
        places = [each for each in places if each >= lowest]
        if not places:
            return
        target = self.random.choice(places)
        self.flushed = min(self.flushed, target)
        await self.store.checkpoints.prepare_truncation(self.log, target)
        if self.random.random() < 0.1:  # there was another election meanwhile
            self.log.flushing.withdraw_truncation()
            self.flushed = self.log.recovery_point
            return
        self.log.truncate_to(target)
        assert self.log.log_end_offset == target
        await self.store.checkpoints.complete_truncation(self.log)
        self._forget_from(target)
        self.epoch += 1

    def _forget_from(self, offset: int) -> None:
        self.history = [each for each in self.history if each.next_offset <= offset]
        self.end = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.flushed = min(self.flushed, offset)
        self.cleaned = min(self.cleaned, offset)

    async def _begin_anew(self) -> None:
        """As a follower does, whose leader's log begins behind the end of its own."""
        start = self.end + self.random.randint(1, 50)
        former = self.history, self.start, self.end
        self.flushed = 0
        self.log.truncate_fully(start)
        self.history, self.start, self.end = [], start, start
        self.high_watermark = self.cleaned = start
        try:
            await self.store.checkpoints.complete_truncation(self.log)
        except MoldauError:  # the power goes next, and either of both may be there
            self.history, self.start, self.end = former
            self.cleaned = self.high_watermark = self.end
            self._anew_at = start
            raise
        self.flushed = start
        self.epoch += 1

    # Stopping and starting

    async def _open(self) -> None:
        self.failures = Failures()
        self._anew_at: int | None = None
        self.store = LogStore(
            self.folders,
            files=self.files,
            clock=self.clock,
            workers=InlineWorkers(),
            options=lambda: self.broker_options,
            failures=self.failures,
            random=Random(1),
        )
        await self.store.open(lambda _: self.options)
        await self.store.write_identity(BrokerId(1), "cluster")

    async def _stop_cleanly(self) -> None:
        await self.store.close(high_watermarks={PARTITION: Offset(self.high_watermark)})
        if self.log.directory.failure is not None:  # nothing was promised
            return
        assert self.files.exists(self.log.directory.folder / ".kafka_cleanshutdown")
        self.flushed = self.end
        if self.random.random() < 0.5:
            self.files.lose_power(self.random)
            self.happened.append("power lost after the stop")
        await self._start()
        assert self.log.log_end_offset == self.end
        assert not self.has_lost

    async def _kill(self) -> None:
        self.files.crash_process()
        await self._start()
        assert self.log.log_end_offset == self.end
        assert not self.has_lost

    async def _fail_to_sync(self) -> None:
        """What could not be synced is read from memory still, and would not be synced later."""
        fault = self.files.fail_next("sync", path_matching="*.log")
        with contextlib.suppress(StorageError):
            await self.log.flush()
        self.files.clear_faults()
        if not fault.times_met:
            return
        self.files.crash_process()
        await self._start()
        assert self.log.log_end_offset == self.end
        assert self.has_lost, "after a failed sync the log counts as whole"

    async def _lack_handles(self) -> None:
        """A stop in which files cannot be opened is no clean one."""
        skipped = self.random.randrange(12)
        fault = self.files.fail_next("open", errno.EMFILE, skip=skipped, count=40)
        with contextlib.suppress(StorageError):
            await self.store.close(high_watermarks={PARTITION: Offset(self.high_watermark)})
        self.files.clear_faults()
        if self.files.exists(self.log.directory.folder / ".kafka_cleanshutdown"):
            self.flushed = self.end
        else:
            assert fault.times_met
        await self._lose_power()

    async def _lose_power(self) -> None:
        self.files.lose_power(self.random)
        self.happened.append("power lost")
        await self._start()

    async def _start(self) -> None:
        anew_at = self._anew_at
        await self._open()
        assert PARTITION in self.store.logs, "the log is gone"
        self.log = self.store.logs[PARTITION]
        if anew_at is not None and self.log.log_start_offset == anew_at:
            self.history, self.start, self.end = [], anew_at, anew_at
            self.high_watermark = self.cleaned = self.flushed = anew_at
        self._compare()
        self.has_lost = self.log.has_lost_its_end
        await self.store.forget_losses()  # the cluster has been told
        self._go_on()
        await self.store.checkpoints.write_high_watermarks({PARTITION: Offset(self.high_watermark)})

    def _go_on(self) -> None:
        """With a history of its own from here on, or with what its leader has behind it."""
        end = self.log.log_end_offset
        lost = [each for each in self.history if each.base_offset >= end]
        # A leader sends all of a batch into which DeleteRecords has cut (`replica_fetcher`).
        is_cut = any(each.base_offset < end < each.next_offset for each in self.history)
        if lost and self.random.random() < 0.5 and not is_cut:
            self.happened.append("fetched again")
            self.log.append_replicated(memoryview(b"".join(each.data for each in lost)))
        else:
            self._forget_from(end)
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)
        self.flushed = self.log.recovery_point
        self.epoch += 1

    # Comparing

    def _compare(self) -> None:
        log = self.log
        end, start = log.log_end_offset, log.log_start_offset
        assert log.topic_id == TOPIC_ID
        assert self.flushed <= end <= max(self.end, start), (self.flushed, end, self.end)
        assert self.start <= start
        kept = [each for each in self.history if each.next_offset <= end]
        assert max((each.next_offset for each in kept), default=start) <= end
        if kept and end > start:
            assert kept[-1].next_offset == end, "the end is no boundary"
        self._compare_records(
            [record for each in kept for record in each.records if record.offset >= start], start
        )
        self._compare_epochs(start)
        self._compare_producers(kept, start)
        self._compare_times()

    def _compare_records(self, expected: Sequence[Record], start: int) -> None:
        found = [each for each in read_records(self.log) if each.offset >= start]
        written = {record.offset: record for record in expected}
        for record in found:
            assert written.get(record.offset) == record, f"offset {record.offset} is another"
        there = {record.offset for record in found}
        missing = [record for record in expected if record.offset not in there]
        if not missing:
            return
        assert "compact" in self.policy, f"missing: {[record.offset for record in missing]}"
        last = {record.key: record.offset for record in expected}
        for record in missing:
            assert record.offset < self.cleaned, f"offset {record.offset} was never compacted"
            is_last = last[record.key] == record.offset
            assert not is_last or record.value is None, f"the last of {record.key!r} is missing"

    def _compare_epochs(self, start: int) -> None:
        for segment in self.log.segments:
            for _, header in walk_batches(segment.opened(), 0, segment.size_bytes):
                if header.base_offset >= start:
                    found = self.log.epochs.find_epoch_at(header.base_offset)
                    assert found == header.leader_epoch, f"another epoch at {header.base_offset}"

    def _compare_producers(self, kept: Sequence[Batch], start: int) -> None:
        for producer_id in PRODUCERS:
            mine = [each for each in kept if each.producer_id == producer_id]
            if mine and mine[-1].base_offset >= start:
                found = self.log.producers.find(producer_id)
                assert found is not None, f"producer {producer_id} is forgotten"
                assert found.last_sequence == mine[-1].last_sequence

    def _compare_times(self) -> None:
        for segment in self.log.segments:
            batches = walk_batches(segment.opened(), 0, segment.size_bytes)
            youngest = max((header.max_timestamp for _, header in batches), default=-1)
            assert segment.largest_timestamp() == youngest, f"{segment} is of another time"
