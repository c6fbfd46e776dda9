"""One segment of a log: a file of batches and the indexes beside it.

A segment is named by its base offset, which no record in it is below. Only the last segment of a
log, the active one, is appended to. This module answers for the files of one segment: appending,
finding positions, recovering after a crash, truncating, renaming. What is in the log as a whole,
when to roll and what to delete are for `log` and the rules.

The batches are the truth, the indexes are hints (IDX-4): an entry is believed when the batch that
it names bears it out. A disk that turns a bit in an index must not hide a record from a reader, or
make retention take a segment for older than it is.

A shell. One task changes a segment; lookups may run in any thread at the same time, and see the
batches up to the size that they read first.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

from moldau.errors import MoldauError
from moldau.records.batch_header import LOG_OVERHEAD_BYTES, BatchHeader
from moldau.storage.file_records import is_unfinished_write, walk_batches, walk_valid_batches
from moldau.storage.files import Buffer, FailedSyncError, File, OpenFiles, copy_shared, unshare
from moldau.storage.indexes import IndexedBatch, IndexedTime, OffsetIndex, TimeIndex
from moldau.storage.rules.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET
from moldau.storage.transaction_index import TransactionIndex

_log = logging.getLogger("moldau.storage")

UNKNOWN = -1
_REWRITE_BYTES = 1024 * 1024


class Boundary(NamedTuple):
    """Where a batch begins or ends."""

    position: int
    next_offset: int
    """Base offset of the batch that begins here, or the offset after the batch that ends here."""


class SegmentTooLargeError(MoldauError):
    """A segment has more bytes or offsets than its indexes can describe; it has to be split."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(f"{segment.path} has more bytes or offsets than its indexes can describe")
        self.segment = segment


class _Part(Protocol):
    """What a segment has a file for."""

    path: Path


class SharedCopy(NamedTuple):
    """A copy of one of a segment's files, under a name of its own."""

    part: _Part
    copy: Path


class Segment:
    """Files of one segment. See the module for who may call what."""

    __slots__ = (
        "_bytes_since_entry",
        "_damage_is_reported",
        "_max_timestamp_known",
        "_open_files",
        "base_offset",
        "created_ms",
        "file",
        "first_timestamp",
        "has_lost_batches",
        "is_deleted",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "path",
        "recently_used",
        "size_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        open_files: OpenFiles,
        folder: Path,
        base_offset: int,
        *,
        size_bytes: int,
        created_ms: int,
        stage: str = "",
    ) -> None:
        files = open_files.files

        def path_of(suffix: str) -> Path:
            return folder / (segment_file_name(base_offset, suffix) + stage)

        self.base_offset = base_offset
        self.size_bytes = size_bytes  # what readers may see; the file may be longer for a moment
        self.created_ms = created_ms
        self.path = path_of(LOG_SUFFIX)
        self.offset_index = OffsetIndex(files, path_of(OFFSET_INDEX_SUFFIX), base_offset)
        self.time_index = TimeIndex(files, path_of(TIME_INDEX_SUFFIX), base_offset)
        self.transaction_index = TransactionIndex(files, path_of(TRANSACTION_INDEX_SUFFIX))
        self.file: File | None = None  # open while in use, see OpenFiles
        self.recently_used = False
        self.has_lost_batches = False  # recovery has cut off more than an unfinished write
        self.is_deleted = False  # its files have other names, or are gone
        self.first_timestamp = UNKNOWN  # max timestamp of the first batch; ages the segment
        self.max_timestamp = UNKNOWN
        self.max_timestamp_offset = UNKNOWN  # last offset of the batch that has it
        self._max_timestamp_known = size_bytes == 0
        self._bytes_since_entry = 0
        self._damage_is_reported = False
        self._open_files = open_files

    @classmethod
    def create(
        cls, open_files: OpenFiles, folder: Path, base_offset: int, created_ms: int, stage: str = ""
    ) -> Segment:
        """Make the files of a new, empty segment; a stage is at the end of their names."""
        segment = cls(
            open_files, folder, base_offset, size_bytes=0, created_ms=created_ms, stage=stage
        )
        try:
            with contextlib.closing(open_files.files.open(segment.path, create=True)) as file:
                if file.size():
                    file.truncate(0)  # left over from before a crash
            segment.start_empty_indexes()
        except OSError:
            # The log may go on in the segment before: the next start would find this one behind it.
            with contextlib.suppress(OSError):
                segment.remove_files()
            raise
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size_bytes} bytes)"

    def opened(self) -> File:
        """The log file, open."""
        self.recently_used = True
        return self.file or self._open_files.open(self, self.path)

    # Writing: the owner only

    def append(
        self,
        batches: Buffer,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> bool:
        """Write one batch behind the last. True when it got an entry in the indexes."""
        position = self.size_bytes
        self.recently_used = True
        (self.file or self._open_files.open(self, self.path)).write_at(position, batches)
        indexed = self._note(position, size_bytes, last_offset, max_timestamp, index_interval_bytes)
        self.size_bytes = position + size_bytes
        return indexed

    def _note(
        self,
        position: int,
        size_bytes: int,
        last_offset: int,
        max_timestamp: int,
        index_interval_bytes: int,
    ) -> bool:
        """What Kafka's `LogSegment.append` does for each batch after writing it."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if self._bytes_since_entry <= index_interval_bytes:
            self._bytes_since_entry += size_bytes
            return False
        self.offset_index.add(last_offset, position)
        self.time_index.maybe_add(self.max_timestamp, self.max_timestamp_offset)
        self._bytes_since_entry = size_bytes
        return True

    def start_empty_indexes(self) -> None:
        """Begin the indexes anew; their files exist after this."""
        self.offset_index.start_empty()
        self.time_index.start_empty()
        self.transaction_index.start_empty()

    def write_out_indexes(self) -> None:
        """Put what waits in memory into the files, so that `sync` covers it."""
        self.offset_index.write_out()
        self.time_index.write_out()

    def seal(self) -> None:
        """Nothing more will be appended: note the youngest timestamp and write the indexes out."""
        if self.max_timestamp > UNKNOWN:
            self.time_index.maybe_add(self.max_timestamp, self.max_timestamp_offset)
        self.write_out_indexes()

    def write_back(self) -> None:
        """Have the disk take the batches, so that `sync` has less to do. Blocks; any thread."""
        file = self.opened()
        with self._failing_sync():
            file.write_back(self.size_bytes)

    def sync(self) -> None:
        """Make what was written before the call survive a power loss. Blocks; any thread."""
        try:
            self._sync_batches()
            self.offset_index.sync()
            self.time_index.sync()
            self.transaction_index.sync()
        except FileNotFoundError:
            if not self.is_deleted:  # in that case there is nothing left to keep
                raise

    def _sync_batches(self) -> None:
        file = self.opened()
        with self._failing_sync():
            file.sync()

    @contextlib.contextmanager
    def _failing_sync(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FailedSyncError(error.errno, error.strerror, str(self.path)) from error

    def prepare_to_append(self) -> int:
        """Learn what appending needs to know of a segment that exists; returns its next offset."""
        if not self.size_bytes:
            return self._prepare_empty()
        last_entry = self.offset_index.last_entry()
        last_time = self.time_index.last_entry()
        start = last_entry.position if last_entry is not None else 0
        self.max_timestamp, self.max_timestamp_offset = last_time or (UNKNOWN, UNKNOWN)
        self._bytes_since_entry = self.size_bytes - start
        self._max_timestamp_known = True
        next_offset = self.base_offset
        for position, header in walk_batches(self.opened(), start, self.size_bytes):
            next_offset = header.next_offset
            if position == 0:
                self.first_timestamp = header.max_timestamp
            if header.max_timestamp > self.max_timestamp:
                self.max_timestamp = header.max_timestamp
                self.max_timestamp_offset = header.last_offset
        if start:
            self.first_timestamp = self.find_first_timestamp()
        return next_offset

    def _prepare_empty(self) -> int:
        """Most partitions of a large broker are idle: they cost no look into a file."""
        self.offset_index.assume_empty()
        self.time_index.assume_empty()
        self._forget_timestamps()
        return self.base_offset

    def _forget_timestamps(self) -> None:
        self.max_timestamp = self.max_timestamp_offset = self.first_timestamp = UNKNOWN
        self._max_timestamp_known = True
        self._bytes_since_entry = 0

    def recover(
        self,
        on_batch: Callable[[int, BatchHeader], None],
        index_interval_bytes: int,
        leader_epoch: int = -1,
        *,
        known_end: int = -1,
        rewrite: bool = False,
    ) -> int:
        """Check every batch, cut the file behind the last sound one, rebuild the indexes (IDX-3).

        `leader_epoch` is that of the batch before this segment, if it is known. A batch too far
        from the segment's base offset is damage (offsets are outside of the CRC), unless it is
        below `known_end`, up to which the log is known to have reached: then the segment is whole
        and too large, and that is raised. After a sync has failed, `rewrite` is asked for: what is
        read is written again, so that the next sync has something to do. Returns the number of
        bytes cut off. Blocks.
        """
        file = self.opened()
        found_bytes = file.size()
        self.start_empty_indexes()
        self._forget_timestamps()
        valid_bytes = 0
        for position, header in walk_valid_batches(file, found_bytes, leader_epoch):
            if not self._holds(header):
                if self.base_offset <= header.base_offset <= header.last_offset < known_end:
                    raise SegmentTooLargeError(self)
                break
            size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
            self._note(
                position, size_bytes, header.last_offset, header.max_timestamp, index_interval_bytes
            )
            on_batch(position, header)
            valid_bytes = position + size_bytes
        if valid_bytes < found_bytes:
            self.has_lost_batches = not is_unfinished_write(file, valid_bytes, found_bytes)
            self.unshare(valid_bytes)
            file = self.opened()
            file.truncate(valid_bytes)
        if rewrite:
            for position in range(0, valid_bytes, _REWRITE_BYTES):
                chunk = file.read_at(position, min(_REWRITE_BYTES, valid_bytes - position))
                file.write_at(position, chunk)
        self.size_bytes = valid_bytes
        self.seal()
        return found_bytes - valid_bytes

    def _holds(self, header: BatchHeader) -> bool:
        """Whether a batch's offsets can be in a segment of this base offset (LOG-5)."""
        relative = header.last_offset - self.base_offset
        return header.base_offset >= self.base_offset and relative <= MAX_RELATIVE_OFFSET

    def truncate_to(self, offset: int) -> int:
        """Remove the batch that holds an offset and all behind it; returns the next offset."""
        boundary = self.find_batch(offset)
        self.unshare(self.size_bytes if boundary is None else boundary.position)
        if boundary is None:
            return self.prepare_to_append()
        self.size_bytes = boundary.position
        self.opened().truncate(boundary.position)
        self.offset_index.truncate_to_offset(boundary.next_offset)
        self.time_index.truncate_to_offset(boundary.next_offset)
        self.transaction_index.truncate_to_offset(offset)
        self.first_timestamp = UNKNOWN
        return max(self.prepare_to_append(), min(offset, boundary.next_offset))

    def unshare(self, size_bytes: int) -> None:
        """It is cut or appended to next: what it shares with a branch stays as it is (BRA-1).

        `size_bytes` of the batches are needed.
        """
        files = self._open_files.files
        for part in self._parts():
            if unshare(files, part.path, size_bytes if part is self else None):
                self.let_go()

    def copy_shared(self) -> list[SharedCopy]:
        """Copies of the files that a branch shares. Whole ones: what is cut off next is still read.

        Takes as long as the disk does. For any thread, while the segment is not appended to.
        """
        copies: list[SharedCopy] = []
        try:
            for part in self._parts():
                copy = copy_shared(self._open_files.files, part.path)
                if copy is not None:
                    copies.append(SharedCopy(part, copy))
        except OSError:
            for _, copy in copies:  # they may have taken the room that is missing
                with contextlib.suppress(OSError):
                    self._open_files.files.remove(copy)
            raise
        return copies

    def take_copies(self, copies: Iterable[SharedCopy]) -> None:
        """Have these files instead of those that are shared, or remove them if it is too late."""
        files = self._open_files.files
        for part, copy in copies:
            if self.is_deleted:
                files.remove(copy)
            else:
                files.rename(copy, part.path)
        self.let_go()

    def trim_file(self) -> None:
        """Remove what a failed write may have left behind the last batch."""
        with contextlib.suppress(OSError):
            self.opened().truncate(self.size_bytes)

    def mark_deleted(self) -> tuple[Path, ...]:
        """Rename the files so that a restart would remove them; returns their new paths."""
        self.is_deleted = True
        return self._rename(DELETED_SUFFIX, may_be_absent=self._parts())

    def enter_stage(self, stage: str) -> None:
        """Rename the files on the segment's way from compaction into the log; the log's last."""
        self._rename(stage, may_be_absent=(self.transaction_index,))

    def follow_folder(self, folder: Path) -> None:
        """The folder of the log was renamed: its files are found under its new name."""
        for part in self._parts():
            part.path = folder / part.path.name

    def retire(self) -> None:
        """Another segment has its place now, in another folder; whoever reads this one goes on."""
        self.is_deleted = True
        self.let_go()

    def remove_files(self) -> None:
        """Give up a segment that never came into the log."""
        self.is_deleted = True
        self.let_go()
        for part in self._parts():
            self._open_files.files.remove(part.path)

    def _parts(self) -> tuple[_Part, ...]:
        return (self.offset_index, self.time_index, self.transaction_index, self)

    def _rename(self, stage: str, may_be_absent: tuple[_Part, ...]) -> tuple[Path, ...]:
        suffixes = (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, LOG_SUFFIX)
        parts = self._parts()
        for part, suffix in zip(parts, suffixes, strict=True):
            target = part.path.with_name(segment_file_name(self.base_offset, suffix) + stage)
            try:
                self._open_files.files.rename(part.path, target)
            except FileNotFoundError:
                if part not in may_be_absent:
                    raise
            part.path = target
        return tuple(part.path for part in parts)

    def let_go(self) -> None:
        """Keep no file open; slices being sent keep theirs."""
        self._open_files.let_go(self)

    # Lookups: any thread

    def largest_timestamp(self) -> int:
        """The youngest timestamp, or -1 when there is none."""
        if not self._max_timestamp_known:
            self._load_max_timestamp()
        return self.max_timestamp

    def find_first_timestamp(self) -> int:
        """The max timestamp of the first batch, or -1 when there is none."""
        if self.first_timestamp != UNKNOWN:
            return self.first_timestamp
        for _, header in walk_batches(self.opened(), 0, self.size_bytes):
            return header.max_timestamp
        return UNKNOWN

    def _load_max_timestamp(self) -> None:
        """A sealed segment ends its time index with its youngest timestamp."""
        last = self.time_index.last_entry()
        found = last or IndexedTime(UNKNOWN, UNKNOWN)
        if not self._is_youngest(found) or (last is not None and not self.bears_out(last)):
            found = IndexedTime(UNKNOWN, UNKNOWN)
            for _, header in walk_batches(self.opened(), 0, self.size_bytes):
                if header.max_timestamp > found.timestamp_ms:
                    found = IndexedTime(header.max_timestamp, header.last_offset)
        self.max_timestamp, self.max_timestamp_offset = found
        self._max_timestamp_known = True

    def bears_out(self, entry: IndexedTime) -> bool:
        """Whether the batch that an entry of the time index names is as young as it says."""
        for _, header in self.walk_from(self.offset_index.find_by_offset(entry.offset)):
            if header.last_offset >= entry.offset:
                is_of_batch = header.base_offset <= entry.offset
                return is_of_batch and header.max_timestamp == entry.timestamp_ms
        return False

    def _is_youngest(self, last: IndexedTime) -> bool:
        """Whether no batch at the end is younger: a time index that was cut off ends too early."""
        at_end = self.walk_from(self.offset_index.last_entry())
        return all(header.max_timestamp <= last.timestamp_ms for _, header in at_end)

    def find_batch(self, offset: int) -> Boundary | None:
        """The first batch that ends at or after an offset, or None when all end before."""
        for position, header in self.walk_from(self.offset_index.find_by_offset(offset)):
            if header.last_offset >= offset:
                return Boundary(position, header.base_offset)
        return None

    def walk_from(
        self, entry: IndexedBatch | None, otherwise: int = 0
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from an indexed one on.

        From the boundary `otherwise` where there is no entry, or none that is borne out.
        """
        if entry is not None:
            batches = walk_batches(self.opened(), entry.position, self.size_bytes)
            first = next(batches, None)
            if first is not None and entry.is_of(first[1]):
                return chain((first,), batches)
            if entry.position < self.size_bytes:  # it was not truncated meanwhile
                self._report_damage()
        return walk_batches(self.opened(), otherwise, self.size_bytes)

    def is_damaged(self) -> bool:
        """Whether its end is not as a clean stop leaves it.

        The last batch ends with the file, and each index with an entry that a batch bears out.
        """
        entry, last_time = self.offset_index.last_entry(), self.time_index.last_entry()
        if entry is not None and not self._has_batch_of(entry):
            return True
        end = 0
        for position, header in self.walk_from(entry):
            end = position + header.batch_length + LOG_OVERHEAD_BYTES
        if end != self.size_bytes:
            return True
        return last_time is not None and not self.bears_out(last_time)

    def _has_batch_of(self, entry: IndexedBatch) -> bool:
        if not 0 < entry.position < self.size_bytes:  # the first batch never gets an entry
            return False
        first = next(walk_batches(self.opened(), entry.position, self.size_bytes), None)
        return first is not None and entry.is_of(first[1])

    def _report_damage(self) -> None:
        if not self._damage_is_reported:
            self._damage_is_reported = True
            _log.warning(
                "%s does not fit its log, which is read without it; it is made anew if the file is "
                "removed while the broker is stopped",
                self.offset_index.path,
            )

    def find_boundary(self, start: int, limit: int) -> Boundary | None:
        """The last batch boundary behind `start` and not behind `limit`.

        `start` is a boundary, and `limit` is before the segment's end.
        """
        entry = self.offset_index.find_by_position(limit)
        if entry is not None and entry.position <= start:
            entry = None
        found = None
        for position, header in self.walk_from(entry, otherwise=start):
            if position > start:
                found = Boundary(position, header.base_offset)
            if position + header.batch_length + LOG_OVERHEAD_BYTES > limit:
                break
        return found

    def find_end_of_batch(self, position: int) -> Boundary | None:
        """The boundary behind the batch at a position; None when no batch begins there."""
        for _, header in walk_batches(self.opened(), position, self.size_bytes):
            end = position + header.batch_length + LOG_OVERHEAD_BYTES
            return Boundary(end, header.next_offset)
        return None
