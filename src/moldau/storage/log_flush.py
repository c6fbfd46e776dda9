"""Brings a log to the disk, off the event loop, and moves its recovery point.

The recovery point moves only when a sync has ended well, and only to where the log ended when that
sync began (LOG-7). Everyone who asks for a flush while one runs waits for it and, if it began too
early, shares the next.

A truncation has to be on disk before anything is written in the place of what it took away
(LOG-9): otherwise a power loss could bring back some old blocks, segments or snapshots among the
new ones, and nothing would tell them apart. A shell, owned by the event loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.errors import InvariantViolation
from moldau.storage.leader_epoch_file import write_epochs
from moldau.storage.log_reader import LogReader, segment_index
from moldau.storage.rules.epoch_cache import EpochCache
from moldau.storage.rules.file_names import LEADER_EPOCHS_FILE
from moldau.storage.rules.producer_sequences import ProducerEntry
from moldau.storage.segment import Segment
from moldau.storage.snapshot_files import SnapshotFiles

if TYPE_CHECKING:
    from moldau.storage.log import Log


_NEVER_MS = 365 * 24 * 3600 * 1000
"""A `flush.ms` of a year or more, as by default, leaves flushing to the operating system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FlushPlan:
    """What one flush writes, as it stood when the flush began."""

    end_offset: int
    disturbances: int
    segments: tuple[Segment, ...]
    epochs: EpochCache | None
    snapshots: tuple[tuple[int, tuple[ProducerEntry, ...]], ...]
    sync_folder: bool


class LogFlush:
    """The part of a log that deals with the disk. Invariant: recovery point <= log end offset."""

    def __init__(
        self,
        log: Log,
        reader: LogReader,
        recovery_point: int,
        snapshots: SnapshotFiles,
        stored_epochs: EpochCache,
        *,
        is_durable: bool,
        unflushed_from: int,
    ) -> None:
        """`is_durable` says that the names in the folder would survive a power loss.

        `unflushed_from` is where the first segment begins whose indexes may not survive one.
        """
        self.recovery_point = recovery_point
        self.dirty_since_ms: int | None = None  # None when the recovery point is the log's end
        self.folder_changed = not is_durable
        self.is_settled = True  # False: a truncation is not known to be on disk
        self._unflushed_from = unflushed_from  # mostly the segment that the last flush ended in
        self._doomed_from: int | None = None  # a truncation to this offset was announced
        self._log = log
        self._snapshots = snapshots
        self._stored_epochs = stored_epochs  # what the file holds
        self._snapshots_due: list[tuple[int, tuple[ProducerEntry, ...]]] = []
        self._reader = reader
        self._running: asyncio.Future[None] | None = None

    def begin_dirty(self, now_ms: int) -> None:
        """Take note of the first batch that is not flushed."""
        log = self._log
        self.dirty_since_ms = now_ms
        log.directory.dirty[log] = None
        if log.options.flush_ms < _NEVER_MS:
            log.directory.flush_later(log, log.options.flush_ms)

    def resume(self) -> None:
        """Take note of what was not flushed before the log was opened."""
        if self.recovery_point < self._log.log_end_offset:
            self.begin_dirty(self._log.directory.clock.now_ms())

    def snapshot_due(self, offset: int, entries: tuple[ProducerEntry, ...]) -> None:
        """Have a snapshot of the producers written with the next flush."""
        if offset > (self._snapshots.latest or 0):  # there is nothing to tell about offset 0
            self._snapshots.add(offset)
            self._snapshots_due.append((offset, entries))

    def begin_truncation(self) -> None:
        """What a running flush or lookup finds is void from here on."""
        self._reader.disturbances += 1

    def announce_truncation(self, offset: int) -> None:
        """Say nothing any more of what lies behind an offset: it is about to be taken away."""
        self.recovery_point = min(self.recovery_point, offset)
        self._doomed_from = offset

    def withdraw_truncation(self) -> None:
        """What was announced has happened, or will not."""
        if self._doomed_from is not None:
            self._doomed_from = None
            self.resume()

    def unsettle(self) -> None:
        """Batches are being taken away at the log's end."""
        self.is_settled = False
        self.folder_changed = True
        self._doomed_from = None

    def end_truncation(self, end_offset: int) -> None:
        self._reader.disturbances += 1
        self.recovery_point = min(self.recovery_point, end_offset)
        self._unflushed_from = min(self._unflushed_from, self._log.segments[-1].base_offset)
        self._snapshots_due = [due for due in self._snapshots_due if due[0] <= end_offset]

    async def flush(self) -> None:
        target = self._log.log_end_offset
        while self.recovery_point < min(target, self._kept_end()):
            await self._next_flush()

    def _kept_end(self) -> int:
        end_offset = self._log.log_end_offset
        return end_offset if self._doomed_from is None else min(end_offset, self._doomed_from)

    async def finish(self) -> None:
        """Flush, with everything that waits for a flush, even if no batch does."""
        await self.flush()
        epochs_changed = self._epochs_to_store() != self._stored_epochs
        if self._snapshots_due or epochs_changed or self.folder_changed:
            await self._next_flush()

    async def flush_truncation(self) -> None:
        """Return when what was taken away would stay away after a power loss."""
        while self.folder_changed or self._running is not None:
            await self._next_flush()

    async def _next_flush(self) -> None:
        self._log.require_usable()
        running = self._running
        # One that is done is here until its callback has run. It must not be awaited again: that
        # returns at once, and `flush` would turn for ever without letting the callback run.
        if running is None or running.done():
            running = self._running = asyncio.ensure_future(self._flush_once())
            running.add_done_callback(self._ended)
        await asyncio.shield(running)  # whoever gives up waiting does not stop the others

    def _ended(self, running: asyncio.Future[None]) -> None:
        if self._running is running:
            self._running = None
        if not running.cancelled():
            running.exception()  # the waiters have seen it, and so has the directory

    async def _flush_once(self) -> None:
        log = self._log
        plan = self._plan()
        try:
            for segment in plan.segments:
                segment.write_out_indexes()
            await log.directory.workers.run(lambda: self._execute(plan))
        except OSError as error:
            self._take_back(plan)
            if log.is_closed and isinstance(error, FileNotFoundError):
                return  # a deleted log takes its files along
            raise log.directory.judge(error) from error
        self._apply(plan)

    def _take_back(self, plan: _FlushPlan) -> None:
        """A flush that failed has done nothing that the next one could leave out."""
        self.folder_changed = True
        self._snapshots_due = [*plan.snapshots, *self._snapshots_due]
        if not self._log.is_closed:
            self.begin_dirty(self._log.directory.clock.now_ms())

    def _plan(self) -> _FlushPlan:
        log = self._log
        epochs = self._epochs_to_store()
        wanted = self._snapshots.offsets  # without those of segments deleted meanwhile
        plan = _FlushPlan(
            end_offset=log.log_end_offset,
            disturbances=self._reader.disturbances,
            segments=log.segments[self._first_unflushed() :],
            epochs=None if epochs == self._stored_epochs else epochs,
            snapshots=tuple(due for due in self._snapshots_due if due[0] in wanted),
            sync_folder=self.folder_changed,
        )
        self.folder_changed = False
        self._snapshots_due = []
        self.dirty_since_ms = None
        log.directory.dirty.pop(log, None)
        return plan

    def _first_unflushed(self) -> int:
        """The segment that was active has had its indexes completed since, if another one is."""
        return segment_index(self._log.segments, min(self.recovery_point, self._unflushed_from))

    def _epochs_to_store(self) -> EpochCache:
        """An epoch in which nothing was written yet begins anew with its leader."""
        return self._log.epochs.truncate_from_end(self._log.log_end_offset)

    def _execute(self, plan: _FlushPlan) -> None:
        """Blocks: runs in a worker."""
        log = self._log
        for segment in plan.segments:
            segment.sync()
        if plan.epochs is not None:
            write_epochs(log.directory.files, log.folder / LEADER_EPOCHS_FILE, plan.epochs)
        for offset, entries in plan.snapshots:
            self._snapshots.write(offset, entries)
        if plan.sync_folder:
            log.directory.files.sync_folder(log.folder)
            log.directory.files.sync_folder(log.folder.parent)

    def _apply(self, plan: _FlushPlan) -> None:
        if plan.epochs is not None:
            self._stored_epochs = plan.epochs
        if plan.disturbances == self._reader.disturbances:
            reached = min(plan.end_offset, self._kept_end())
            self.recovery_point = max(self.recovery_point, reached)
            if self.recovery_point > self._log.log_end_offset:
                raise InvariantViolation(f"LOG-2: {self._log!r} was flushed up to {reached}")
            self._unflushed_from = plan.segments[-1].base_offset
        else:
            self.resume()
