"""The log of one partition: an ordered, append-only sequence of batches in segments.

It answers for offsets, segments, producers and leader epochs of one partition: appending, reading,
flushing, truncating, deleting what is old. It does not know who may write, what is committed, or
who waits; that is the replication room. Whether a client's batch is sound was checked before it
comes here (`rules.log_validator`); sequences of producers are checked here, against the table that
belongs to the log.

A shell, owned by the event loop: a change of state has no `await` in its middle. Where the batches
lie is known to `local_log`, what would survive a power loss to `log_flush`. What would block
(fsync, snapshots, removing files) runs in a worker. `find_offset_by_timestamp` and
`max_timestamp_offset` may be called from a worker.

Invariants (docs/invariants.md): offsets grow with every batch (LOG-1); log start offset <= log end
offset, recovery point <= log end offset (LOG-2); the tuple of segments is replaced, never changed
(LOG-4); no segment but the last is appended to; what is in the file behind a segment's size is not
part of the log (LOG-8).
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from moldau.config.topic_options import TopicOptions
from moldau.errors import InvariantViolation, OffsetOutOfRangeError, StorageError
from moldau.metrics.history import EventKind
from moldau.model import NO_TIMESTAMP, Offset, TopicId, TopicPartition
from moldau.records.batch_header import CONTROL_FLAG, LOG_OVERHEAD_BYTES, BatchHeader, stamp
from moldau.records.record_batch import DEFAULT_LIMIT_BYTES, EndTransactionMarker
from moldau.storage.checkpoint_files import AbortedBySegment, CompactionOffsets, LeaderEpochs
from moldau.storage.files import File
from moldau.storage.local_log import (
    LocalLog,
    LogRead,
    TimestampedOffset,
    find_aborted,
    find_max_timestamp,
    find_offset_by_timestamp,
)
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_flush import LogFlush
from moldau.storage.producer_snapshots import (
    ProducerSnapshots,
    read_marker,
    rebuild_producers,
    replay_marker,
)
from moldau.storage.rules.epoch_cache import EpochCache, EpochEnd
from moldau.storage.rules.log_validator import check_replicated, set_log_append_time
from moldau.storage.rules.producer_state import Duplicate, ProducerEntry, ProducerState
from moldau.storage.rules.retention import Deletion, LogFacts, SegmentFacts, plan_deletions
from moldau.storage.rules.roll import should_roll
from moldau.storage.segment import Segment
from moldau.storage.transaction_index import AbortedTransaction

_log = logging.getLogger("moldau.storage")

NO_EPOCHS = EpochCache()
MOST_DELETED_AT_ONCE = 50
"""Each deletion of a segment renames a few files on the event loop; after so many, others have
their turn."""
_FILES_AT_ONCE = 4
"""As many as a truncation has open at the same time: a log, the log and the copy of a file that a
branch shares, or an index; and one to spare for a worker that opens one meanwhile."""
_new = tuple.__new__


class AppendResult(NamedTuple):
    """Where a batch went."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic uses LogAppendTime."""
    log_start_offset: int
    duplicate: bool
    """The batch was in the log already; nothing was written."""


class Log:
    """One partition's log. See the module for who may call what."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        folder: Path,
        directory: LogDirectory,
        options: TopicOptions,
        *,
        segments: tuple[Segment, ...],
        producers: ProducerState,
        snapshots: ProducerSnapshots,
        log_start_offset: int = 0,
        log_end_offset: int = 0,
        recovery_point: int = 0,
        epochs: EpochCache = NO_EPOCHS,
        stored_epochs: EpochCache = NO_EPOCHS,
        has_aborted: bool = False,
        is_durable: bool = False,
        unflushed_from: int | None = None,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.folder = folder
        self.directory = directory
        self.log_start_offset = Offset(log_start_offset)
        self.producers = producers
        self.cleaned_offset = Offset(0)  # compaction has been up to here
        self.dropped_offset = Offset(0)  # behind the last tombstone or end marker that it dropped
        self.compared_offset = Offset(0)  # what a round has left out was replaced before this
        self.truncations = 0  # how often batches were taken away at its end
        self.on_start_moved: Callable[[], None] | None = None  # told when the log start has moved
        self.on_truncated: Callable[[], None] | None = None  # told when its end has gone back
        self.is_moving = False  # to another directory: compaction leaves it alone (MOV-1)
        self.was_closed = False  # in good order, before this broker opened it
        self.is_incomplete = False  # found when it was opened: sealed segments are not as they were
        self.has_lost_its_end = False  # found when it was opened: batches that had been written
        self.has_loss_note = False  # its folder says so, until the cluster knows
        self._snapshots = snapshots
        self._has_aborted = has_aborted  # False: no segment has an index of aborted transactions
        self._epochs = LeaderEpochs(epochs, stored_epochs)
        self._local = LocalLog(
            topic_partition,
            folder,
            directory,
            options,
            segments=segments,
            end_offset=log_end_offset,
        )
        self.flushing = LogFlush(  # what would survive a power loss
            self._local,
            self._epochs,
            snapshots,
            recovery_point=recovery_point,
            is_durable=is_durable,
            unflushed_from=segments[-1].base_offset if unflushed_from is None else unflushed_from,
        )
        self._cache_options()

    def __repr__(self) -> str:
        return (
            f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset}, "
            f"{len(self.segments)} segments)"
        )

    # Facts

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Oldest first; the last one is appended to."""
        return self._local.segments

    @property
    def log_end_offset(self) -> Offset:
        """The offset of the record that comes next."""
        return self._local.end_offset

    @property
    def epochs(self) -> EpochCache:
        return self._epochs.cache

    @property
    def options(self) -> TopicOptions:
        return self._local.options

    @property
    def is_closed(self) -> bool:
        return self._local.is_closed

    @property
    def size_bytes(self) -> int:
        return self._local.size_bytes

    @property
    def recovery_point(self) -> Offset:
        """What is below it would survive a power loss; recovery begins here."""
        return Offset(self.flushing.recovery_point)

    @property
    def flush_is_due(self) -> bool:
        """Whether `flush.messages` asks for a flush before the last append is answered."""
        return self._local.end_offset - self.flushing.recovery_point >= self._flush_messages

    @property
    def latest_epoch(self) -> int | None:
        return self.epochs.latest_epoch

    def end_offset_for_epoch(self, epoch: int) -> EpochEnd:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: Offset) -> Offset:
        """Up to here every transaction is decided, and every record committed (HW-4)."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        return min(max(Offset(unstable), self.log_start_offset), high_watermark)

    def active_producers(self) -> tuple[ProducerEntry, ...]:
        return tuple(self.producers)

    def update_options(self, options: TopicOptions) -> None:
        """Go on with other options; they hold from the next call on."""
        self._local.update_options(options)
        self._cache_options()
        if self.flushing.dirty_since_ms is not None:
            self.flushing.begin_dirty(self.flushing.dirty_since_ms)  # flush.ms may be shorter now

    def _cache_options(self) -> None:
        self._log_append_time = self.options.message_timestamp_type == "LogAppendTime"
        self._flush_messages = self.options.flush_messages

    # Appending

    def append(
        self, batch: memoryview | bytearray, header: BatchHeader, *, leader_epoch: int, now_ms: int
    ) -> AppendResult:
        """Append one whole, checked batch as the leader; offsets and epoch are written into it.

        The buffer must not change until this returns. Raises what a producer did wrong, or
        `StorageError`; nothing has been appended then.
        """
        local, epochs = self._local, self._epochs
        if local.is_closed or self.directory.failure is not None:
            raise local.refusal()
        if header.producer_id >= 0:
            checked = self._check_producer(batch, header)
            if checked is not None:
                return checked
        base_offset = local.end_offset
        last_offset = base_offset + header.last_offset_delta
        log_append_time_ms = NO_TIMESTAMP
        if self._log_append_time:
            log_append_time_ms = now_ms
            header = set_log_append_time(batch, now_ms)
        # The last change of a batch's bytes (LOG-3).
        stamp(batch, base_offset, leader_epoch)
        self._write(batch, header, base_offset, now_ms)
        if leader_epoch != epochs.cache.latest_epoch:
            epochs.cache = epochs.cache.assign(leader_epoch, base_offset)
        return _new(  # a third of the time of the class's own way; it is on every produce's path
            AppendResult,
            (base_offset, last_offset, log_append_time_ms, self.log_start_offset, False),
        )

    def append_replicated(self, records: memoryview, newest_epoch: int | None = None) -> Offset:
        """Append batches that have their offsets, as the leader wrote them; returns the new end.

        All are checked before the first is written; none may be of a later epoch than
        `newest_epoch`. A batch that is cut short at the end of the records is left for the next
        fetch.
        """
        self.require_usable()
        if self.flushing.has_pending_truncation:
            raise StorageError(f"a truncation of {self.topic_partition} is not on disk yet")
        epochs, now_ms = self._epochs, self.directory.clock.now_ms()
        batches = check_replicated(records, self.log_end_offset, self.topic_partition, newest_epoch)
        for position, header in batches:
            size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
            batch = records[position : position + size_bytes]
            self._write(batch, header, header.base_offset, now_ms)
            if header.leader_epoch >= 0 and header.leader_epoch != epochs.cache.latest_epoch:
                epochs.cache = epochs.cache.assign(header.leader_epoch, header.base_offset)
        return self.log_end_offset

    def skip_to(self, offset: int) -> None:
        """Go on at a later offset, as a log does that this one copies: it ends in a gap."""
        self.require_usable()
        now_ms = self.directory.clock.now_ms()
        with self.directory.judging():
            self._local.skip_to(offset, now_ms)
        self.flushing.snapshot_due(offset, self.producers.to_store())
        self.flushing.folder_changed = True
        if self.flushing.dirty_since_ms is None:
            self.flushing.begin_dirty(now_ms)

    def begin_epoch(self, leader_epoch: int) -> None:
        """Note that a leader begins at the log's end, before it has written anything."""
        self._epochs.cache = self.epochs.assign(leader_epoch, self.log_end_offset)

    def _check_producer(
        self, batch: memoryview | bytearray, header: BatchHeader
    ) -> AppendResult | None:
        """The answer to a batch that is in the log already (SEQ-2); None for one to be appended."""
        if header.attributes & CONTROL_FLAG:
            marker = read_marker(batch, header)
            if marker is not None:
                self.producers.check_marker(header, marker)
            return None
        checked = self.producers.check(header)
        return self._repeat(checked) if isinstance(checked, Duplicate) else None

    def _repeat(self, duplicate: Duplicate) -> AppendResult:
        return AppendResult(
            duplicate.first_offset,
            duplicate.last_offset,
            duplicate.timestamp_ms if self._log_append_time else NO_TIMESTAMP,
            self.log_start_offset,
            True,
        )

    def _write(
        self, batch: memoryview | bytearray, header: BatchHeader, base_offset: int, now_ms: int
    ) -> None:
        """Put one stamped batch into the active segment and take note of it everywhere."""
        local, flushing = self._local, self.flushing
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        last_offset = base_offset + header.last_offset_delta
        if not local.end_offset <= base_offset <= last_offset:
            raise InvariantViolation(
                f"LOG-1: a batch from {base_offset} to {last_offset} at the end "
                f"{local.end_offset} of {self.topic_partition}"
            )
        max_timestamp = header.max_timestamp
        marker = read_marker(batch, header) if header.attributes & CONTROL_FLAG else None
        try:
            if should_roll(
                local.active,
                local.roll_limits,
                size_bytes,
                last_offset,
                max_timestamp,
                local.index_is_full,
                now_ms,
            ):
                self._roll(base_offset, last_offset, now_ms)
            if marker is None:
                local.append(batch, size_bytes, base_offset, last_offset, max_timestamp)
                self.producers.apply(header, base_offset, now_ms)
            else:
                self._write_marker(batch, header, base_offset, marker, now_ms)
        except OSError as error:
            local.active.trim_file()
            raise self.directory.judge(error) from error
        if flushing.dirty_since_ms is None:
            flushing.begin_dirty(now_ms)
        if last_offset + 1 - flushing.recovery_point >= self._flush_messages:
            self.directory.flush_soon(flushing)

    def _write_marker(
        self,
        batch: memoryview | bytearray,
        header: BatchHeader,
        base_offset: int,
        marker: EndTransactionMarker,
        now_ms: int,
    ) -> None:
        """All files are opened first: with too many open ones, nothing has been changed."""
        local, size_bytes = self._local, header.batch_length + LOG_OVERHEAD_BYTES
        segment, last_offset = local.active, base_offset + header.last_offset_delta
        with contextlib.ExitStack() as stack:
            index_file: File | None = None
            if self.producers.is_aborted_by(header, marker):
                segment.opened()
                index_file = segment.transaction_index.open_to_append()
                stack.callback(index_file.close)
            local.append(batch, size_bytes, base_offset, last_offset, header.max_timestamp)
            replay_marker(self.producers, segment, header, base_offset, marker, now_ms, index_file)
        self._has_aborted = True

    def _roll(self, base_offset: int, last_offset: int, now_ms: int) -> None:
        """Begin a new segment for a batch; the old one is flushed soon."""
        end_offset = self.log_end_offset
        if self._local.roll(base_offset, last_offset, now_ms):
            self.flushing.snapshot_due(end_offset, self.producers.to_store())
            self.flushing.folder_changed = True
            self.directory.flush_soon(self.flushing)

    # Reading

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one: bool) -> LogRead:
        """Whole batches from the one that holds an offset, up to `end_offset` and `max_bytes`.

        The range is within one segment. `min_one` asks for at least one batch, however large.
        """
        local = self._local
        if local.is_closed or self.directory.failure is not None:
            raise local.refusal()
        log_end_offset = local.end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is not within "
                f"[{self.log_start_offset}, {log_end_offset}]"
            )
        if end_offset > log_end_offset:
            end_offset = log_end_offset
        if offset >= end_offset:
            if offset == log_end_offset:
                local.remember(offset, (local.active, local.active.size_bytes))
            return LogRead(None, offset)
        try:
            return local.read(offset, max_bytes, end_offset, min_one)
        except OSError as error:
            raise self.directory.judge(error) from error

    def require_offset(self, offset: int) -> None:
        """Raise unless an offset is in the log, or its end."""
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is outside "
                f"{self.log_start_offset} to {self.log_end_offset}"
            )

    def find_offset_by_timestamp(
        self, timestamp_ms: int, unpacked_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> TimestampedOffset | None:
        """The first record that is not older than a timestamp. Any thread; may read files.

        Unpacks one batch at a time, of so many bytes at most, here and below.
        """

        def find(segments: Sequence[Segment]) -> TimestampedOffset | None:
            start = self.log_start_offset
            return find_offset_by_timestamp(segments, start, timestamp_ms, unpacked_bytes)

        return self._local.look_up(find)

    def max_timestamp_offset(
        self, unpacked_bytes: int = DEFAULT_LIMIT_BYTES
    ) -> TimestampedOffset | None:
        """The first of the youngest records. Any thread; may read files."""

        def find(segments: Sequence[Segment]) -> TimestampedOffset | None:
            return find_max_timestamp(segments, self.log_start_offset, unpacked_bytes)

        return self._local.look_up(find)

    def aborted_transactions(
        self, start_offset: int, end_offset: int
    ) -> tuple[AbortedTransaction, ...]:
        """What a `read_committed` reader of a range has to skip (TXP-4). May read files."""
        if not self._has_aborted:
            return ()
        with self.directory.judging():
            return find_aborted(self.segments, start_offset, end_offset)

    def digest_aborted(self) -> AbortedBySegment:
        """What the index of each segment with aborted transactions holds."""
        if not self._has_aborted:
            return {}
        found = {each.base_offset: each.transaction_index.digest for each in self.segments}
        return {base_offset: digest for base_offset, digest in found.items() if digest.entries}

    # Flushing

    async def flush(self) -> None:
        """Return when all that is in the log now would survive a power loss."""
        await self.flushing.flush()

    # Deleting

    def advance_start(self, offset: int) -> None:
        """Make an offset the log's first (LOG-12); the next retention takes segments before it."""
        self.require_usable()
        if offset > self.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is past its end {self.log_end_offset}"
            )
        if offset > self.log_start_offset:
            self.log_start_offset = Offset(offset)
            self._epochs.cache = self.epochs.truncate_from_start(offset)
            if offset > self.segments[0].base_offset:  # otherwise the files tell
                self.directory.checkpoint_soon()
            if self.on_start_moved is not None:
                self.on_start_moved()

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> int:
        """Delete what retention no longer keeps, oldest first; returns the number of segments.

        Not more than a few dozen at a time: call it again until nothing is left to delete.
        """
        self.require_usable()
        with self.directory.judging():
            log = LogFacts(self.log_start_offset, high_watermark, self.log_end_offset)
            policies = self.directory.retention_policies(self.options)
            facts = [self._facts_of(segment) for segment in self.segments]
            plan = plan_deletions(facts, log, policies, now_ms, MOST_DELETED_AT_ONCE)
            count = sum(deletion.count for deletion in plan)
            if count == len(self.segments):
                self._roll(self.log_end_offset, self.log_end_offset, now_ms)
            if count:
                self._report_deletions(plan)
                old = self._local.drop_oldest(count)
                self.advance_start(self.segments[0].base_offset)
                self._local.remove_files(old)
                self._remove_snapshots(old)
        return count

    def _facts_of(self, segment: Segment) -> SegmentFacts:
        timestamp = segment.largest_timestamp()
        modified_ms = self.directory.files.modified_ms(segment.path) if timestamp < 0 else 0
        return SegmentFacts(segment.base_offset, segment.size_bytes, timestamp, modified_ms)

    def _report_deletions(self, plan: Sequence[Deletion]) -> None:
        """A line for each reason, however many segments go for it."""
        segments, figures, first = self.segments, self.directory.figures, 0
        for deletion in plan:
            count = deletion.count
            going = segments[first : first + count]
            first += count
            begin_offset, end_offset = going[0].base_offset, segments[first].base_offset
            size_bytes = sum(segment.size_bytes for segment in going)
            message = (
                f"deleted offsets {begin_offset} to {end_offset - 1}, {size_bytes} bytes in "
                f"{count} segment{'' if count == 1 else 's'}: {deletion.reason}"
            )
            _log.info("%s: %s", self.topic_partition, message)
            figures.deleted_segments += count
            figures.deleted_bytes += size_bytes
            self.directory.history.note(
                EventKind.DELETION,
                str(self.topic_partition),
                message,
                first_offset=begin_offset,
                end_offset=end_offset,
                reason=deletion.reason,
            )

    def _remove_snapshots(self, segments: Sequence[Segment]) -> None:
        self._snapshots.remove([segment.base_offset for segment in segments])

    # Compacting

    @property
    def compaction_offsets(self) -> CompactionOffsets:
        """What has to be known of a log before it is truncated, or followed."""
        return CompactionOffsets(self.compared_offset, self.dropped_offset)

    @property
    def disturbances(self) -> int:
        """Changes when segments are truncated or replaced: what was read of them is void then."""
        return self._local.disturbances

    def holds_segments(self, segments: Sequence[Segment]) -> bool:
        """Whether these are neighbours in the log, and none of them is appended to."""
        return self._local.holds(segments)

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a segment in the place of those it was made from, which the log holds.

        Its files are complete and durable, and the first start after a crash would do the same.
        """
        self.require_usable()
        with self._disturbing():
            self._local.replace(old, new)
            self._remove_snapshots(old[1:])  # where the first one began, a segment still does

    def finish_swap(self, segment: Segment) -> None:
        """Give the files of a segment that was put in the place of others their lasting names."""
        self.require_usable()
        if not segment.is_deleted:
            with self._disturbing():
                segment.enter_stage("")

    @contextlib.contextmanager
    def _disturbing(self) -> Iterator[None]:
        """Flushes and lookups that are under way find nothing valid."""
        self.flushing.begin_truncation()
        try:
            with self.directory.failing():
                yield
        finally:
            self.flushing.end_truncation()

    # Moving

    def take_over(self, moved: Log, folder: Path, directory: LogDirectory) -> None:
        """Go on in another directory, with the files of a copy that has every batch of this log.

        Its folder has this name now. What is known of the batches (producers, epochs, the log's
        start) stays as it is; flushes are held.
        """
        if moved.log_end_offset != self.log_end_offset:
            raise InvariantViolation(f"MOV-1: {moved!r} is no copy of {self!r}")
        former = self.directory
        self.flushing.begin_truncation()
        moved._snapshots.follow_folder(folder)
        self._local.take_over(moved._local, folder, directory)
        self._snapshots = moved._snapshots
        self._has_aborted = self._has_aborted or moved._has_aborted
        self.folder, self.directory = folder, directory
        self.flushing.take_over(moved.flushing, former)
        self.flushing.end_truncation()

    # Truncating

    async def unshare_before_truncation(self, offset: int) -> None:
        self.require_usable()
        await self._local.unshare_before_truncation(offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the batch that holds an offset and all behind it; `complete_truncation` is next.

        Not on any hot path: it reads the segment's headers again to learn about its producers.
        """
        self.require_usable()
        if offset >= self.log_end_offset:
            self._epochs.cache = self.epochs.truncate_from_end(offset)
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully(offset)
            return
        self._require_files()
        local = self._local
        self.truncations += 1
        with self.directory.failing():
            self.flushing.begin_truncation()
            self.flushing.begin_pending_truncation()
            self._remove_snapshots(local.truncate_to(offset))
            # The batch may begin before the log's start, whose offsets are not given again.
            local.end_offset = max(local.end_offset, min(Offset(offset), self.log_start_offset))
            self._finish_truncation()

    def truncate_fully(self, start_at: int) -> None:
        """Remove everything; the log goes on at an offset, which is its first then.

        `complete_truncation` is next.
        """
        self.require_usable()
        self._require_files()
        self.truncations += 1
        with self.directory.failing():
            self.flushing.begin_truncation()
            self.flushing.begin_pending_truncation()
            self._local.start_anew(start_at)
            self._snapshots.remove(self._snapshots.offsets)
            self._epochs.cache = NO_EPOCHS
            self.log_start_offset = Offset(start_at)
            self._finish_truncation()

    def _require_files(self) -> None:
        """A truncation opens files when it has changed others: too few handles have to be noticed
        before it begins."""
        with self.directory.judging():
            self.directory.open_files.require_room(self._local.active.path, _FILES_AT_ONCE)

    def _finish_truncation(self) -> None:
        end_offset = self.log_end_offset
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self.compared_offset = min(self.compared_offset, end_offset)
        self.dropped_offset = min(self.dropped_offset, end_offset)
        self._epochs.cache = self.epochs.truncate_from_end(end_offset)
        self._snapshots.remove([at for at in self._snapshots.offsets if at > end_offset])
        rebuild_producers(
            self.producers,
            self._snapshots,
            self.segments,
            self.log_start_offset,
            end_offset,
            self.directory.clock.now_ms(),
        )
        self.flushing.end_truncation()
        self.directory.checkpoint_soon()
        if self.on_truncated is not None:
            self.on_truncated()

    # Ending

    async def shut_down(self) -> None:
        """Flush and close so that the next start has nothing to recover."""
        self.require_usable()
        with self.directory.judging():
            self._local.active.seal()
            self.flushing.snapshot_due(self.log_end_offset, self.producers.to_store())
        await self.flushing.flush_all()
        self.close()

    def close(self) -> None:
        """Refuse every later call. Nothing is flushed; what was written stays written."""
        if self.is_closed:
            return
        self.directory.dirty.pop(self.flushing, None)
        self.directory.to_flush.pop(self.flushing, None)
        self._local.close()

    def require_usable(self) -> None:
        self._local.require_usable()
