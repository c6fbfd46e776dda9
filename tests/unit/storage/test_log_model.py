"""A log against a plain list: any sequence of appends, truncations, deletions and restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from log_bench import START_MS, LogBench, batch_of, headers_in, read_all

from moldau.records.batch_header import BatchHeader
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log import Log
from moldau.storage.rules.epoch_cache import EpochCache


class LogMachine(RuleBasedStateMachine):
    """The model is the list of batches and the log's start."""

    def __init__(self) -> None:
        super().__init__()
        files = MemoryFiles()
        files.make_folder(Path("data"))
        self.bench = LogBench(files, Path("data"))
        size = len(batch_of(3)[0])
        self.log: Log = self.bench.create(
            segment_bytes=8 * size, index_interval_bytes=size, file_delete_delay_ms=0
        )
        self.batches: list[BatchHeader] = []
        self.start = 0
        self.timestamp_ms = START_MS
        self.epoch = 0

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=9), idempotent=st.booleans())
    def append(self, counts: list[int], idempotent: bool) -> None:
        for count in counts:
            self._append(count, idempotent)

    def _append(self, count: int, idempotent: bool) -> None:
        self.timestamp_ms += count - 2
        fields = {}
        if idempotent:
            known = self.log.producers.find(7)
            sequence = 0 if known is None else (known.last_sequence + 1)
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": sequence}
        end = self.log.log_end_offset
        result = self.bench.append(
            self.log, count, leader_epoch=self.epoch, timestamp_ms=self.timestamp_ms, **fields
        )
        assert (result.first_offset, result.last_offset) == (end, end + count - 1)
        found = self.log.read(end, 1, end_offset=end + count, min_one=True)
        assert found.slice is not None
        self.batches += headers_in(found.slice.read())

    @rule()
    def new_leader(self) -> None:
        self.epoch += 1

    @precondition(lambda self: self.batches)
    @rule(back=st.integers(0, 25))
    def truncate(self, back: int) -> None:
        target = max(self.start, self.log.log_end_offset - back)
        self.log.truncate_to(target)
        self.batches = [b for b in self.batches if b.last_offset < target]
        self.epoch += 1

    @rule(forward=st.integers(0, 3))
    def delete_records(self, forward: int) -> None:
        self.start = min(self.start + forward, self.log.log_end_offset)
        self.log.advance_start(self.start)

    @rule()
    def retention(self) -> None:
        now_ms = self.bench.clock.now_ms()
        self.log.delete_old_segments(now_ms, self.log.log_end_offset)
        first = self.log.segments[0].base_offset
        assert first <= self.start
        self.batches = [b for b in self.batches if b.base_offset >= first]

    @rule()
    def flush(self) -> None:
        asyncio.run(self.log.flush())
        assert self.log.recovery_point == self.log.log_end_offset

    @rule()
    def restart_cleanly(self) -> None:
        producers = self._producers()
        epochs = self._epochs()
        asyncio.run(self.log.shut_down())
        self.log = self.bench.load(clean=True, log_start=self.start)
        assert self._producers() == producers
        assert self._epochs() == epochs

    @rule()
    def restart_after_kill(self) -> None:
        producers = self._producers()
        epochs = self._epochs()
        point = self.log.recovery_point
        self.bench.files.crash_process()
        self.log = self.bench.load(recovery_point=point, log_start=self.start)
        assert self._producers() == producers
        assert self._epochs() == epochs

    def _producers(self) -> dict[int, tuple[int, int]]:
        """Those that have a batch in the log; the others may be forgotten by a restart."""
        return {
            entry.producer_id: (entry.last_sequence, entry.last_offset)
            for entry in self.log.producers
            if entry.last_offset >= self.start
        }

    def _epochs(self) -> EpochCache:
        """Those that have a batch in the log; the others may be forgotten by a restart."""
        return self.log.epochs.truncate_from_end(self.log.log_end_offset)

    @invariant()
    def the_log_is_what_the_model_says(self) -> None:
        end = self.batches[-1].next_offset if self.batches else self.log.log_end_offset
        end = max(end, self.start)
        assert self.log.log_end_offset == end
        assert self.log.log_start_offset == self.start
        assert self.log.recovery_point <= end
        readable = [b for b in self.batches if b.last_offset >= self.start]
        assert read_all(self.log) == readable
        for batch in readable:
            for offset in range(max(batch.base_offset, self.start), batch.next_offset):
                assert self._batch_at(offset) == batch
        if readable:
            assert self.log.latest_epoch == readable[-1].leader_epoch

    def _batch_at(self, offset: int) -> BatchHeader:
        found = self.log.read(offset, 1, end_offset=self.log.log_end_offset, min_one=True)
        assert found.slice is not None
        [header] = headers_in(found.slice.read())
        return header


LogMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=25, deadline=None)
TestLogAgainstModel = LogMachine.TestCase
