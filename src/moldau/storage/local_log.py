"""The segments of one log: where its batches lie, from the oldest to the one that comes next.

Kafka's `LocalLog`. It is responsible for the tuple of segments, which is replaced and never
changed (LOG-4), for the offset at which the log ends, and for appending to, reading from,
searching, rolling and removing segments. What the batches mean (producers, epochs, the log's
start) is kept by `log`, and what has reached the disk by `log_flush`: both build on this, and it
knows neither.

Belongs to the event loop, except the search functions and `look_up`: these may run in a worker,
while the segments are truncated, deleted or replaced. So these are counted as disturbances, at
their beginning and at their end: the count is odd while one is under way. A shell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple, TypeAlias

from moldau.config.topic_options import TopicOptions
from moldau.errors import InvariantViolation, KafkaError, StorageError
from moldau.model import Offset, TopicPartition
from moldau.records.batch_header import LOG_OVERHEAD_BYTES, BatchHeader
from moldau.records.codec import decode_columns, find_first_at_or_after
from moldau.records.columns import source_of
from moldau.records.record_batch import payload_of
from moldau.storage.file_records import walk_batches
from moldau.storage.files import NO_ROOM, FileSlice
from moldau.storage.indexes import TIME_ENTRY_BYTES as TIME_ENTRY_BYTES
from moldau.storage.log_directory import LogDirectory
from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET, jitter_bound_ms, limits_for
from moldau.storage.segment import Boundary, Segment
from moldau.storage.transaction_index import AbortedTransaction
from moldau.tasks import finish_first


class LocalLog:
    """The segments of one log. Invariant: only `active`, the last one, is appended to."""

    __slots__ = (
        "_hints",
        "_index_interval_bytes",
        "_max_index_entries",
        "active",
        "directory",
        "disturbances",
        "end_offset",
        "folder",
        "index_is_full",
        "is_closed",
        "options",
        "remember",
        "roll_limits",
        "segments",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        folder: Path,
        directory: LogDirectory,
        options: TopicOptions,
        *,
        segments: tuple[Segment, ...],
        end_offset: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.folder = folder
        self.directory = directory
        self.segments = segments  # oldest first
        self.active = segments[-1]
        self.end_offset = Offset(end_offset)  # of the record that comes next
        self.is_closed = False
        self.disturbances = 0
        self._hints = PositionHints()
        self.remember = self._hints.remember
        self.update_options(options)

    def __repr__(self) -> str:
        return f"LocalLog({self.topic_partition}, to {self.end_offset}, {self.segments})"

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def require_usable(self) -> None:
        if self.is_closed or self.directory.failure is not None:
            raise self.refusal()

    def refusal(self) -> StorageError:
        if self.directory.failure is not None:
            return self.directory.refusal()
        return StorageError(f"the log of {self.topic_partition} is closed")

    def close(self) -> None:
        """Nothing is flushed; what was written stays written."""
        self.is_closed = True
        for segment in self.segments:
            segment.let_go()

    # Appending

    def append(
        self,
        batch: memoryview | bytearray,
        size_bytes: int,
        base_offset: int,
        last_offset: int,
        max_timestamp: int,
    ) -> Segment:
        """Write one stamped batch behind all others; returns its segment."""
        segment = self.active
        position = segment.size_bytes
        if segment.append(
            batch, size_bytes, last_offset, max_timestamp, self._index_interval_bytes
        ):
            self.index_is_full = len(segment.offset_index) >= self._max_index_entries
        self.remember(base_offset, (segment, position))
        self.end_offset = Offset(last_offset + 1)
        return segment

    def update_options(self, options: TopicOptions) -> None:
        self.options = options
        self._index_interval_bytes = options.index_interval_bytes
        self._set_limits()

    def _set_limits(self) -> None:
        """What depends on the active segment and the options together."""
        options = self.options
        segment_ms = options.segment_ms
        if "compact" in options.cleanup_policy and options.max_compaction_lag_ms > 0:
            segment_ms = min(segment_ms, options.max_compaction_lag_ms)  # only old ones are cleaned
        bound_ms = jitter_bound_ms(options.segment_jitter_ms, segment_ms)
        jitter_ms = self.directory.random.randrange(bound_ms) if bound_ms else 0
        self.roll_limits = limits_for(options.segment_bytes, segment_ms, jitter_ms)
        # The time index is full first, and one of its entries is kept for the roll.
        self._max_index_entries = max(1, options.segment_index_bytes // TIME_ENTRY_BYTES - 1)
        self.index_is_full = len(self.active.offset_index) >= self._max_index_entries

    def roll(self, base_offset: int, last_offset: int, now_ms: int) -> bool:
        """Begin a new segment for a batch; False when there is an empty one for it already.

        It begins at the log's end, whatever gap is before the batch. So a segment that does not
        begin where the one before it ends has been compacted, or that one has lost its end.
        """
        old, end_offset = self.active, self.end_offset
        start = end_offset if last_offset - end_offset <= MAX_RELATIVE_OFFSET else base_offset
        if not old.size_bytes and old.base_offset == start:
            return False
        if start < end_offset or start <= old.base_offset:
            raise InvariantViolation(
                f"LOG-5: a segment from {start} on behind {old!r}, and "
                f"{self.topic_partition} ends at {end_offset}"
            )
        old.seal()
        new = Segment.create(self.directory.open_files, self.folder, start, now_ms)
        self.segments = (*self.segments, new)
        self._set_active(new)
        self.remember(start, (new, 0))
        return True

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Go on at an offset behind the log's end, in a segment that begins there."""
        old = self.active
        if old.size_bytes:
            old.seal()
        new = Segment.create(self.directory.open_files, self.folder, offset, now_ms)
        if old.size_bytes:
            self.segments = (*self.segments, new)
        else:
            self.segments = (*self.segments[:-1], new)
            self.remove_files((old,))
        self.end_offset = Offset(offset)
        self._set_active(new)
        self.remember(offset, (new, 0))

    def _set_active(self, active: Segment) -> None:
        self.active = active
        self._set_limits()

    # Reading

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> LogRead:
        """From the batch that holds an offset, which is below `end_offset`, within one segment;
        mostly without a search."""
        segment, start = self._find_place(offset)
        end, next_offset = self._find_end(segment, end_offset)
        if end - start > max_bytes:
            cut = segment, start, max_bytes, min_one
            boundary = self._hints.find_cut(cut)
            if boundary is None:
                boundary = cut_range(segment, start, max_bytes, min_one)
                if boundary is None:
                    return LogRead(None, offset)
                self._hints.remember_cut(cut, boundary)
            end, next_offset = boundary
        if end <= start:
            return LogRead(None, offset)
        self.remember(next_offset, (segment, end))
        return LogRead(FileSlice(segment.opened(), start, end - start), next_offset)

    def _find_place(self, offset: int) -> BatchPlace:
        place = self._hints.find(offset)
        if place is not None:
            segment, position = place
            if position < segment.size_bytes or segment is self.active:
                return place
            # It went on in the next segment.
        place = find_place(self.segments, offset)
        self.remember(offset, place)  # many may begin there
        return place

    def _find_end(self, segment: Segment, end_offset: int) -> tuple[int, int]:
        """Position and offset at which reading in a segment has to stop."""
        segments = self.segments
        if end_offset == self.end_offset:
            if segment is segments[-1]:
                return segment.size_bytes, end_offset
        else:
            last, position = self._find_place(end_offset)
            if last is segment:
                return position, end_offset
        following = segment_index(segments, segment.base_offset) + 1
        return segment.size_bytes, segments[following].base_offset

    def look_up(
        self, find: Callable[[Sequence[Segment]], TimestampedOffset | None]
    ) -> TimestampedOffset | None:
        """Search in the segments; again when they were disturbed meanwhile. Any thread."""
        while True:
            self.require_usable()
            segments, disturbances = self.segments, self.disturbances
            try:
                found = find(segments)
            except FileNotFoundError as error:
                if segments is self.segments and self._is_undisturbed(disturbances):
                    self.require_usable()  # a deleted log takes its files along
                    raise self.directory.fail(error) from error
            except OSError as error:
                raise self.directory.judge(error) from error
            except KafkaError:  # what was read may be half of one batch and half of another
                if self._is_undisturbed(disturbances):
                    raise
            else:
                if self._is_undisturbed(disturbances):
                    return found

    def _is_undisturbed(self, disturbances: int) -> bool:
        return disturbances == self.disturbances and disturbances % 2 == 0

    # Moving

    def take_over(self, moved: LocalLog, folder: Path, directory: LogDirectory) -> None:
        """Go on with the segments of a copy, in another directory; ours are done with.

        The copy has every batch of this log. Its folder has this name now.
        """
        old = self.segments
        for segment in moved.segments:
            segment.follow_folder(folder)
        self.folder, self.directory = folder, directory
        self.segments = moved.segments
        self._hints.clear()
        self._set_active(moved.active)
        for segment in old:
            segment.retire()

    # Removing

    def drop_oldest(self, count: int) -> Sequence[Segment]:
        """Take segments out of the log; their files are still there."""
        old, self.segments = self.segments[:count], self.segments[count:]
        return old

    def remove_files(self, segments: Sequence[Segment]) -> None:
        """Rename the files of segments; they go when `file.delete.delay.ms` is over."""
        for segment in segments:
            paths = segment.mark_deleted()
            segment.let_go()
            self.directory.remove_later(paths, self.options.file_delete_delay_ms)

    def holds(self, segments: Sequence[Segment]) -> bool:
        """Whether these are neighbours in the log, and none of them is appended to."""
        first = segment_index(self.segments, segments[0].base_offset)
        found = self.segments[first : first + len(segments)]
        return found == tuple(segments) and found[-1] is not self.active

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a segment in the place of those it was made from, which the log holds."""
        first = segment_index(self.segments, old[0].base_offset)
        self.segments = (*self.segments[:first], new, *self.segments[first + len(old) :])
        self._hints.clear()
        self.remove_files(old)

    async def unshare_before_truncation(self, offset: int) -> None:
        """Copy in a worker what a branch shares of the segment that a truncation is about to cut
        (BRA-1): it may be a gigabyte, and `truncate_to` would copy it on the event loop.

        Nobody else truncates meanwhile. A full disk costs this truncation, and not the directory.
        """
        if not self.segments[0].base_offset <= offset < self.end_offset:
            return
        segment = self.segments[segment_index(self.segments, offset)]
        if segment is self.active:  # which is never shared
            return
        # Who is cancelled waits: the next truncation would write the same copy, and nobody would
        # take or remove what was copied until then.
        await finish_first(self._unshare(segment))

    async def _unshare(self, segment: Segment) -> None:
        try:
            copies = await self.directory.workers.run(segment.copy_shared)
            if copies and not self.is_closed:
                segment.take_copies(copies)
        except OSError as error:
            if segment.is_deleted or self.is_closed:
                return  # who deletes or replaces files was faster
            if error.errno in NO_ROOM:
                message = f"no room to truncate {self.topic_partition}: {error}"
                raise StorageError(message) from error
            raise self.directory.judge(error) from error

    def truncate_to(self, offset: int) -> Sequence[Segment]:
        """Remove the batch that holds an offset and all behind it; returns segments that went."""
        kept = self.segments[: segment_index(self.segments, offset) + 1]
        old, self.segments = self.segments[len(kept) :], kept
        self.remove_files(old)
        self.end_offset = Offset(kept[-1].truncate_to(offset))
        self._hints.clear()
        self._set_active(kept[-1])
        return old

    def start_anew(self, offset: int) -> Sequence[Segment]:
        """Remove everything; the log goes on at an offset. Returns the segments that went."""
        old = self.segments
        self.remove_files(old)  # lookups may go on in them until they are replaced
        created_ms = self.directory.clock.now_ms()
        new = Segment.create(self.directory.open_files, self.folder, offset, created_ms)
        self.segments = (new,)
        self.end_offset = Offset(offset)
        self._hints.clear()
        self._set_active(new)
        return old


GENERATION_SIZE = 32
MOST_CUTS = 32

BatchPlace: TypeAlias = tuple[Segment, int]
"""A segment and a position in it, at which a batch begins or will begin."""

Cut: TypeAlias = tuple[Segment, int, int, bool]
"""A segment, where a range begins in it, its limit in bytes, and whether one batch may exceed it.
What lies before the limit does not change but by a truncation, whatever is appended."""


class PositionHints:
    """Offsets of batch boundaries and their places."""

    __slots__ = ("_cuts", "_old", "_young")

    def __init__(self) -> None:
        self._young: dict[int, BatchPlace] = {}
        self._old: dict[int, BatchPlace] = {}
        self._cuts: dict[Cut, Boundary] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def remember(self, offset: int, place: BatchPlace) -> None:
        if len(self._young) >= GENERATION_SIZE:
            self._old = self._young
            self._young = {}
        self._young[offset] = place

    def find(self, offset: int) -> BatchPlace | None:
        place = self._young.get(offset)
        if place is None:
            place = self._old.get(offset)
            if place is not None:
                self.remember(offset, place)
        return place

    def remember_cut(self, cut: Cut, boundary: Boundary) -> None:
        if len(self._cuts) >= MOST_CUTS:
            self._cuts.clear()
        self._cuts[cut] = boundary

    def find_cut(self, cut: Cut) -> Boundary | None:
        return self._cuts.get(cut)

    def clear(self) -> None:
        """Positions have changed."""
        self._cuts.clear()
        self._young = {}
        self._old = {}


_base_offset_of = attrgetter("base_offset")


class LogRead(NamedTuple):
    """What a fetch gets of one log."""

    slice: FileSlice | None
    """Whole batches; None when there is nothing to send."""
    end_offset: int
    """Where the reader goes on: all records before it, from the asked offset, are in the slice."""


class TimestampedOffset(NamedTuple):
    """A record found by its timestamp."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def segment_index(segments: Sequence[Segment], offset: int) -> int:
    """Which segment an offset belongs to; the first one when it is before all."""
    return max(0, bisect_right(segments, offset, key=_base_offset_of) - 1)


def find_place(segments: Sequence[Segment], offset: int) -> BatchPlace:
    """Where the first batch begins that ends at or after an offset; the end when there is none."""
    for segment in segments[segment_index(segments, offset) :]:
        boundary = segment.find_batch(offset)
        if boundary is not None:
            return segment, boundary.position
    return segments[-1], segments[-1].size_bytes


def cut_range(segment: Segment, start: int, max_bytes: int, min_one: bool) -> Boundary | None:
    """Where a range that is too long for the limit has to end: on a batch boundary before it.

    When not even one batch fits, the first one is the range if `min_one` asks for it (KIP-74);
    otherwise there is none.
    """
    boundary = segment.find_boundary(start, start + max(0, max_bytes))
    if boundary is None and min_one:
        return segment.find_end_of_batch(start)
    return boundary


def find_aborted(
    segments: Sequence[Segment], start_offset: int, end_offset: int
) -> tuple[AbortedTransaction, ...]:
    """The aborted transactions with a record in a range; one may end in a later segment."""
    found: list[AbortedTransaction] = []
    for segment in segments[segment_index(segments, start_offset) :]:
        found += segment.transaction_index.find_overlapping(start_offset, end_offset)
        if segment.transaction_index.covers(end_offset):
            break
    return tuple(found)


def find_offset_by_timestamp(
    segments: Sequence[Segment], log_start_offset: int, timestamp_ms: int, unpacked_bytes: int
) -> TimestampedOffset | None:
    """The first record, from the log's start on, that is not older than a timestamp."""
    for segment in segments:
        if segment.largest_timestamp() >= timestamp_ms:
            found = _find_in_segment(segment, log_start_offset, timestamp_ms, unpacked_bytes)
            if found is not None:
                return found
    return None


def find_max_timestamp(
    segments: Sequence[Segment], log_start_offset: int, unpacked_bytes: int
) -> TimestampedOffset | None:
    """The first of the youngest records from the log's start on."""
    timestamp_ms = max(segment.largest_timestamp() for segment in segments)
    if timestamp_ms < 0:
        return None
    found = find_offset_by_timestamp(segments, log_start_offset, timestamp_ms, unpacked_bytes)
    if found is not None:
        return found
    # Rare: the youngest record was there, but it is before the log's start or was compacted away.
    timestamp_ms = max(_timestamps_from(segments, log_start_offset, unpacked_bytes), default=-1)
    if timestamp_ms < 0:
        return None
    return find_offset_by_timestamp(segments, log_start_offset, timestamp_ms, unpacked_bytes)


def _timestamps_from(
    segments: Sequence[Segment], log_start_offset: int, unpacked_bytes: int
) -> Iterator[int]:
    """The largest timestamp of each batch, as far as it is not before the log's start."""
    for segment in segments:
        file = segment.opened()
        for position, header in walk_batches(file, 0, segment.size_bytes):
            if header.last_offset < log_start_offset or not header.record_count:
                continue
            if header.base_offset >= log_start_offset or header.is_log_append_time:
                yield header.max_timestamp
            else:
                batch = file.read_at(position, header.batch_length + LOG_OVERHEAD_BYTES)
                for _, timestamp_ms in _times_from(batch, header, log_start_offset, unpacked_bytes):
                    yield timestamp_ms


def _times_from(
    batch: bytes, header: BatchHeader, start_offset: int, unpacked_bytes: int
) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record from an offset on; of millions, if a batch has them."""
    payload = payload_of(batch, header, unpacked_bytes)
    source = source_of(header, payload, start_offset)
    columns = decode_columns([source], keys=False, values=False, headers=False)
    yield from zip(
        memoryview(columns.offsets).cast("B").cast("q"),
        memoryview(columns.timestamps).cast("B").cast("q"),
        strict=True,
    )


def _find_in_segment(
    segment: Segment, log_start_offset: int, timestamp_ms: int, unpacked_bytes: int
) -> TimestampedOffset | None:
    first_offset = max(log_start_offset, segment.base_offset)
    entry = segment.time_index.find_by_timestamp(timestamp_ms)
    if entry is not None and segment.bears_out(entry):
        first_offset = max(first_offset, entry.offset)
    file = segment.opened()
    for position, header in segment.walk_from(segment.offset_index.find_by_offset(first_offset)):
        if not header.record_count:
            continue  # what compaction leaves of a batch has the timestamp and no record of it
        if header.max_timestamp >= timestamp_ms and header.last_offset >= log_start_offset:
            if header.is_log_append_time:
                first_offset = max(header.base_offset, log_start_offset)
                return TimestampedOffset(first_offset, header.max_timestamp, header.leader_epoch)
            batch = file.read_at(position, header.batch_length + LOG_OVERHEAD_BYTES)
            found = _find_in_batch(batch, header, log_start_offset, timestamp_ms, unpacked_bytes)
            if found is not None:
                return TimestampedOffset(*found, header.leader_epoch)
    return None


def _find_in_batch(
    batch: bytes, header: BatchHeader, log_start_offset: int, timestamp_ms: int, unpacked_bytes: int
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record in a batch that is late enough in both."""
    if header.base_offset >= log_start_offset:
        return find_first_at_or_after(
            payload_of(batch, header, unpacked_bytes),
            header.record_count,
            header.base_offset,
            header.base_timestamp,
            timestamp_ms,
        )
    for offset, found_ms in _times_from(batch, header, log_start_offset, unpacked_bytes):
        if found_ms >= timestamp_ms:
            return offset, found_ms
    return None
