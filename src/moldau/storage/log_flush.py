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
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from moldau.errors import InvariantViolation
from moldau.storage.checkpoint_files import LeaderEpochs, write_epochs
from moldau.storage.local_log import LocalLog, segment_index
from moldau.storage.log_directory import LogDirectory
from moldau.storage.producer_snapshots import ProducerSnapshots
from moldau.storage.rules.epoch_cache import EpochCache
from moldau.storage.rules.file_names import LEADER_EPOCHS_FILE
from moldau.storage.rules.producer_state import ProducerEntry
from moldau.storage.segment import Segment

_NEVER_MS = 365 * 24 * 3600 * 1000
"""A `flush.ms` of a year or more, as by default, leaves flushing to the operating system."""


class _FlushPlan(NamedTuple):
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
        local: LocalLog,
        epochs: LeaderEpochs,
        snapshots: ProducerSnapshots,
        *,
        recovery_point: int,
        is_durable: bool,
        unflushed_from: int,
    ) -> None:
        """`is_durable` says that the names in the folder would survive a power loss.

        `unflushed_from` is where the first segment begins whose indexes may not survive one.
        """
        self.recovery_point = recovery_point
        self.dirty_since_ms: int | None = None  # None when the recovery point is the log's end
        self.folder_changed = not is_durable
        self.has_pending_truncation = False  # one that is not known to be on disk
        self._unflushed_from = unflushed_from  # mostly the segment that the last flush ended in
        self._doomed_from: int | None = None  # a truncation to this offset was announced
        self._local = local
        self._epochs = epochs
        self._snapshots = snapshots
        self._snapshots_due: list[tuple[int, tuple[ProducerEntry, ...]]] = []
        self._running: asyncio.Future[None] | None = None
        self._held: asyncio.Future[None] | None = None  # no flush begins until it is done

    @property
    def is_truncating(self) -> bool:
        """Whether a truncation was announced, or is not known to be on disk."""
        return self.has_pending_truncation or self._doomed_from is not None

    def begin_dirty(self, now_ms: int) -> None:
        """Take note of the first batch that is not flushed."""
        directory, flush_ms = self._local.directory, self._local.options.flush_ms
        self.dirty_since_ms = now_ms
        directory.dirty[self] = None
        if flush_ms < _NEVER_MS:
            directory.flush_later(self, flush_ms)

    def resume(self) -> None:
        """Take note of what was not flushed before the log was opened."""
        if self.recovery_point < self._local.end_offset:
            self.begin_dirty(self._local.directory.clock.now_ms())

    def snapshot_due(self, offset: int, entries: tuple[ProducerEntry, ...]) -> None:
        """Have a snapshot of the producers written with the next flush."""
        if offset > (self._snapshots.latest or 0):  # there is nothing to tell about offset 0
            self._snapshots.add(offset)
            self._snapshots_due.append((offset, entries))

    def begin_truncation(self) -> None:
        """What a running flush or lookup finds is void from here on."""
        self._local.disturbances += 1

    def announce_truncation(self, offset: int) -> None:
        """Say nothing any more of what lies behind an offset: it is about to be taken away."""
        self._local.require_usable()
        self.recovery_point = min(self.recovery_point, offset)
        self._doomed_from = offset

    def withdraw_truncation(self) -> None:
        """What was announced has happened, or will not."""
        if self._doomed_from is not None:
            self._doomed_from = None
            self.resume()

    def begin_pending_truncation(self) -> None:
        """Batches are being taken away at the log's end."""
        self.has_pending_truncation = True
        self.folder_changed = True
        self._doomed_from = None

    def end_truncation(self) -> None:
        end_offset = self._local.end_offset
        self._local.disturbances += 1
        self.recovery_point = min(self.recovery_point, end_offset)
        self._unflushed_from = min(self._unflushed_from, self._local.segments[-1].base_offset)
        self._snapshots_due = [due for due in self._snapshots_due if due[0] <= end_offset]

    async def flush(self) -> None:
        target = self._local.end_offset
        while self.recovery_point < min(target, self._kept_end()):
            await self._next_flush()

    def _kept_end(self) -> int:
        end_offset = self._local.end_offset
        return end_offset if self._doomed_from is None else min(end_offset, self._doomed_from)

    async def flush_all(self) -> None:
        """Flush, with everything that waits for a flush, even if no batch does."""
        await self.flush()
        epochs = self._epochs.to_store(self._local.end_offset)
        if self._snapshots_due or epochs is not None or self.folder_changed:
            await self._next_flush()

    async def flush_truncation(self) -> None:
        """Return when what was taken away would stay away after a power loss."""
        while self.folder_changed or self._running is not None:
            await self._next_flush()

    @contextlib.asynccontextmanager
    async def hold_flushes(self) -> AsyncIterator[None]:
        """Begin no flush inside: the recovery point stays where it is, appends go on.

        For whoever puts files in the place of ours and has to promise as much of them as we do of
        ours (MOV-2). Who asks for a flush meanwhile waits, and is served afterwards.
        """
        while self._running is not None and not self._running.done():
            await asyncio.wait([self._running])
        held = self._held = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._held = None
            held.set_result(None)

    def take_over(self, moved: LogFlush, former: LogDirectory) -> None:
        """The log goes on in another directory, with the files of a copy: what was flushed of that
        one is flushed. Hold this one, and let none of that one's run."""
        self.recovery_point = moved.recovery_point
        self._unflushed_from = moved._unflushed_from
        self._snapshots = moved._snapshots
        self._snapshots_due = moved._snapshots_due
        self._epochs.stored = moved._epochs.stored
        self.folder_changed = True  # its name is not known to be durable
        self.dirty_since_ms = None
        former.dirty.pop(self, None)
        if self in former.to_flush:
            del former.to_flush[self]
            self._local.directory.flush_soon(self)
        self.resume()

    async def _next_flush(self) -> None:
        while self._held is not None:
            await asyncio.shield(self._held)
        self._local.require_usable()
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
        local = self._local
        plan = self._plan()
        began = local.directory.clock.monotonic()
        try:
            for segment in plan.segments:
                segment.write_out_indexes()
            await local.directory.workers.run(lambda: self._execute(plan))
        except OSError as error:
            self._take_back(plan)
            if local.is_closed and isinstance(error, FileNotFoundError):
                return  # a deleted log takes its files along
            raise local.directory.judge(error) from error
        local.directory.figures.flushes.note(local.directory.clock.monotonic() - began)
        self._apply(plan)

    def _take_back(self, plan: _FlushPlan) -> None:
        """A flush that failed has done nothing that the next one could leave out."""
        self.folder_changed = True
        self._snapshots_due = [*plan.snapshots, *self._snapshots_due]
        if not self._local.is_closed:
            self.begin_dirty(self._local.directory.clock.now_ms())

    def _plan(self) -> _FlushPlan:
        local = self._local
        wanted = self._snapshots.offsets  # without those of segments deleted meanwhile
        plan = _FlushPlan(
            end_offset=local.end_offset,
            disturbances=self._local.disturbances,
            segments=local.segments[self._first_unflushed() :],
            epochs=self._epochs.to_store(local.end_offset),
            snapshots=tuple(due for due in self._snapshots_due if due[0] in wanted),
            sync_folder=self.folder_changed,
        )
        self.folder_changed = False
        self._snapshots_due = []
        self.dirty_since_ms = None
        local.directory.dirty.pop(self, None)
        return plan

    def _first_unflushed(self) -> int:
        """The segment that was active has had its indexes completed since, if another one is."""
        return segment_index(self._local.segments, min(self.recovery_point, self._unflushed_from))

    def _execute(self, plan: _FlushPlan) -> None:
        """Blocks: runs in a worker."""
        local = self._local
        for segment in plan.segments:
            segment.sync()
        if local.is_closed:  # while the disk worked: its folder may be another log's by now
            return
        if plan.epochs is not None:
            write_epochs(local.directory.files, local.folder / LEADER_EPOCHS_FILE, plan.epochs)
        for offset, entries in plan.snapshots:
            self._snapshots.write(offset, entries)
        if plan.sync_folder:
            local.directory.files.sync_folder(local.folder)
            local.directory.files.sync_folder(local.folder.parent)

    def _apply(self, plan: _FlushPlan) -> None:
        if plan.epochs is not None:
            self._epochs.stored = plan.epochs
        if plan.disturbances == self._local.disturbances:
            reached = min(plan.end_offset, self._kept_end())
            self.recovery_point = max(self.recovery_point, reached)
            if self.recovery_point > self._local.end_offset:
                raise InvariantViolation(f"LOG-2: {self._local!r} was flushed up to {reached}")
            self._unflushed_from = plan.segments[-1].base_offset
        else:
            self.resume()
