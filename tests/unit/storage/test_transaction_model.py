"""A log with transactions against a plain list: producers in between each other, commits, aborts,
truncations, restarts. A reader of decided transactions sees exactly the committed records, in order
(TXP-1, TXP-4).
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from log_bench import LogBench, batch_of

from moldau.model import Offset
from moldau.records.batch_header import read_header, walk_headers
from moldau.records.record_batch import (
    ControlType,
    EndTransactionMarker,
    build_marker_batch,
    find_marker,
    records_of,
)
from moldau.simulation.memory_files import MemoryFiles
from moldau.storage.log import Log

PRODUCERS = st.integers(1, 3)


class Entry(NamedTuple):
    """A batch, or the end of a transaction."""

    producer: int
    first_offset: int
    count: int
    transactional: bool = True
    end: ControlType | None = None

    @property
    def next_offset(self) -> int:
        return self.first_offset + self.count


class Transaction(NamedTuple):
    """What the list says of one."""

    first_offset: int
    marker_offset: int | None
    committed: bool


class TransactionMachine(RuleBasedStateMachine):
    """The model is the list of entries and the high watermark."""

    def __init__(self) -> None:
        super().__init__()
        files = MemoryFiles()
        files.make_folder(Path("data"))
        self.bench = LogBench(files, Path("data"))
        self.log: Log = self.bench.create(
            segment_bytes=6 * len(batch_of(2)[0]), index_interval_bytes=100, file_delete_delay_ms=0
        )
        self.entries: list[Entry] = []
        self.high_watermark = 0
        self.epoch = 0
        self.is_whole = True  # nothing was read back since the high watermark stood where it does

    @rule(producer=PRODUCERS, count=st.integers(1, 3), transactional=st.booleans())
    def send(self, producer: int, count: int, transactional: bool) -> None:
        known = self.log.producers.find(producer)
        transactional = transactional or (
            known is not None and known.transaction_first_offset is not None
        )
        result = self.bench.append(
            self.log,
            count,
            leader_epoch=self.epoch,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0 if known is None else known.last_sequence + 1,
            transactional=transactional,
        )
        assert not result.duplicate
        self.entries.append(Entry(producer, result.first_offset, count, transactional))

    @rule(producer=PRODUCERS, end=st.sampled_from(ControlType))
    def end(self, producer: int, end: ControlType) -> None:
        marker = EndTransactionMarker(end, 0)
        batch = build_marker_batch(marker, timestamp_ms=1, producer_id=producer, producer_epoch=0)
        now_ms = self.bench.clock.now_ms()
        result = self.log.append(batch, read_header(batch), leader_epoch=self.epoch, now_ms=now_ms)
        self.entries.append(Entry(producer, result.first_offset, 1, end=end))

    @rule(behind=st.integers(0, 4))
    def replicate(self, behind: int) -> None:
        """The high watermark is at the end of some batch."""
        ends = [0, *(entry.next_offset for entry in self.entries)]
        reached = ends[max(0, len(ends) - 1 - behind)]
        if reached > self.high_watermark:
            self.high_watermark = reached
            self.is_whole = True

    @rule(kept=st.integers(0, 6))
    def truncate(self, kept: int) -> None:
        uncommitted = [one for one in self.entries if one.first_offset >= self.high_watermark]
        going = uncommitted[kept:]
        if going:
            self.log.truncate_to(going[0].first_offset)
            self.entries = [one for one in self.entries if one not in going]
            self.epoch += 1
            self.is_whole = False

    @rule(forward=st.integers(0, 3))
    def delete_records(self, forward: int) -> None:
        start = min(self.log.log_start_offset + forward, self.high_watermark)
        self.log.advance_start(start)

    @rule()
    def restart_cleanly(self) -> None:
        asyncio.run(self.log.shut_down())
        self.log = self.bench.load(clean=True, log_start=self.log.log_start_offset)
        self.is_whole = False

    @rule()
    def restart_after_kill(self) -> None:
        point, start = self.log.recovery_point, self.log.log_start_offset
        self.bench.files.crash_process()
        self.log = self.bench.load(recovery_point=point, log_start=start)
        self.is_whole = False

    # What has to be so

    def transactions(self) -> list[Transaction]:
        """All of the list, the open ones without a marker."""
        found: list[Transaction] = []
        open_since: dict[int, int] = {}
        for entry in self.entries:
            if entry.end is not None:
                first_offset = open_since.pop(entry.producer, None)
                if first_offset is not None:
                    is_commit = entry.end is ControlType.COMMIT
                    found.append(Transaction(first_offset, entry.first_offset, is_commit))
            elif entry.transactional:
                open_since.setdefault(entry.producer, entry.first_offset)
        return [*found, *(Transaction(first, None, False) for first in open_since.values())]

    def last_stable_offset(self) -> int:
        return self.log.last_stable_offset(Offset(self.high_watermark))

    @invariant()
    def the_last_stable_offset_is_before_what_is_undecided(self) -> None:
        start, end = self.log.log_start_offset, self.high_watermark
        known = self.transactions()
        undecided = min((t.first_offset for t in known if t.marker_offset is None), default=end)
        unsafe = (
            t.first_offset for t in known if t.marker_offset is None or t.marker_offset >= end
        )
        first_unsafe = min(unsafe, default=end)
        stable = self.last_stable_offset()
        # Who reads its log back may have forgotten whose markers are not committed: the decision is
        # the coordinator's, and stays.
        most = first_unsafe if self.is_whole else undecided
        assert min(max(first_unsafe, start), end) <= stable <= min(max(most, start), end)

    @invariant()
    def a_reader_of_decided_transactions_sees_the_committed_records_in_order(self) -> None:
        stable = self.last_stable_offset()
        for max_bytes in (1, 400, 1 << 20):
            assert self._read_committed(stable, max_bytes) == self._committed(stable)

    def _committed(self, end: int) -> list[int]:
        decided = {t.first_offset: t.committed for t in self.transactions()}
        offsets: list[int] = []
        of_producer: dict[int, int] = {}
        for entry in self.entries:
            if entry.end is not None:
                of_producer.pop(entry.producer, None)
                continue
            if entry.transactional:
                first = of_producer.setdefault(entry.producer, entry.first_offset)
                if not decided[first]:
                    continue
            offsets += range(entry.first_offset, entry.next_offset)
        return [offset for offset in offsets if self.log.log_start_offset <= offset < end]

    def _read_committed(self, end: int, max_bytes: int) -> list[int]:
        """As a consumer does: the answer tells it which transactions to skip."""
        log = self.log
        offset, seen = int(log.log_start_offset), []
        while offset < end:
            read = log.read(offset, max_bytes, end_offset=end, min_one=True)
            assert read.slice is not None
            told = sorted(
                (one.first_offset, one.producer_id)
                for one in log.aborted_transactions(offset, read.end_offset)
            )
            skipped: set[int] = set()
            data = memoryview(read.slice.read())
            for position, header in walk_headers(data):
                while told and told[0][0] <= header.last_offset:
                    skipped.add(told.pop(0)[1])
                if header.is_control:
                    batch = data[position : position + header.size_bytes]
                    marker = find_marker(records_of(batch, header)[0])
                    if marker is not None and marker.control_type is ControlType.ABORT:
                        skipped.discard(header.producer_id)
                    continue
                if header.is_transactional and header.producer_id in skipped:
                    continue
                numbers = range(header.base_offset, header.next_offset)
                seen += [number for number in numbers if offset <= number < end]
            offset = read.end_offset
        return seen


TransactionMachine.TestCase.settings = settings(
    max_examples=80, stateful_step_count=25, deadline=None
)
TestTransactionsAgainstModel = TransactionMachine.TestCase
