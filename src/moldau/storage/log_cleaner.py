"""The log cleaner: compacts the logs whose `cleanup.policy` names compact, the dirtiest first.

`LogCleaner` decides which log is next and how fast the cleaner reads and writes, and leaves alone
the logs that it cannot read. A `CompactionRound` compacts one log: it learns the last offset of
each key, then rewrites segments. The rules are in `rules.log_cleaner`. A round goes group by
group, so that a crash at any step leaves a folder from which the next start makes the old
segments or the new one, and never a mixture:

1. The new segment is written as `.cleaned` files, which a start removes. They are synced, and what
   was compared is noted in the folder (`compaction-offsets`).
2. They are renamed to `.swap`, which a start puts in the place of what they were made from. Synced.
3. The log changes over, and the files of the old segments become `.deleted`. Synced.
4. The new files get their lasting names.

A shell. It belongs to the event loop, which does the renames, since readers open files there; what
reads and writes runs in workers, a slice at a time. One log is cleaned at a time. Whatever happens
to the log meanwhile takes precedence: a group whose segments were deleted under the round is given
up. After a truncation all of the round is: what was compared may be among what went, and a record
that was to go for the sake of it is the last one of its key now.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import urandom
from typing import NamedTuple, TypeVar

from moldau.clock import Clock
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import CorruptBatchError, KafkaError, StorageError
from moldau.metrics.history import EventKind
from moldau.model import Offset, TopicPartition
from moldau.records.batch_header import HEADER_BYTES, BatchHeader, read_header, read_size
from moldau.records.codec import LATEST_KEY_BYTES
from moldau.storage.checkpoint_files import CompactionOffsets, write_compaction_offsets
from moldau.storage.files import NO_ROOM, STEP_BYTES
from moldau.storage.indexes import OFFSET_ENTRY_BYTES as OFFSET_ENTRY_BYTES
from moldau.storage.indexes import TIME_ENTRY_BYTES as TIME_ENTRY_BYTES
from moldau.storage.local_log import find_aborted
from moldau.storage.log import Log
from moldau.storage.log_directory import Throttler
from moldau.storage.rules.file_names import CLEANED_SUFFIX, SWAP_SUFFIX
from moldau.storage.rules.log_cleaner import (
    AbortedRanges,
    Cleanable,
    CleaningTerms,
    CompactionTerms,
    DirtyLog,
    DirtySegment,
    KeyMap,
    TransactionData,
    compact_batch,
    explain_cleaning,
    find_dirtiest,
    find_fencing_markers,
    find_producer_ends,
    group_segments,
    is_due,
    is_past_horizon,
    map_batch,
    max_keys,
    survey,
)
from moldau.storage.segment import Segment

_log = logging.getLogger("moldau.storage.cleaner")

_NEVER_MS = 365 * 24 * 3600 * 1000
"""A `max.compaction.lag.ms` of a year or more needs no look at the age of segments."""

_SMALLEST_SLICE_BYTES = 4096


class LogSurvey(NamedTuple):
    """A log as it was measured."""

    log: Log
    segments: tuple[Segment, ...]
    truncations: int
    """How often the log had been truncated by then."""
    facts: tuple[DirtySegment, ...]
    cleanable: Cleanable
    terms: CleaningTerms


class LogCleaner:
    """Compacts logs when it is told to."""

    def __init__(self, clock: Clock, options: Callable[[], BrokerOptions]) -> None:
        self._clock = clock
        self._options = options
        self._uncleanable: set[Log] = set()  # damaged; until the broker is started again
        self._pace = Throttler(clock, lambda: options().log_cleaner_io_max_bytes_per_second)

    async def clean_dirtiest(
        self, logs: Mapping[TopicPartition, Log], high_watermarks: Mapping[TopicPartition, Offset]
    ) -> bool:
        """Compact the log that needs it most; False when none does, or it has to wait."""
        self._uncleanable.intersection_update(logs.values())
        surveys = {
            key: found
            for key, log in tuple(logs.items())
            if key in high_watermarks and self._may_be_dirty(log)
            if (found := await self._survey(log, high_watermarks[key])) is not None
        }
        dirtiest = find_dirtiest({key: found.cleanable for key, found in surveys.items()})
        if dirtiest is None or logs.get(dirtiest) is not surveys[dirtiest].log:
            return False  # there may be another topic's of the same name
        return await self._clean(surveys[dirtiest])

    def _may_be_dirty(self, log: Log) -> bool:
        """Cheap, and enough to pass over most of the logs."""
        return (
            "compact" in log.options.cleanup_policy
            and not log.options.cleanup_suspended
            and log.segments[-1].base_offset > log.cleaned_offset
            and len(log.segments) > 1
            and not log.is_closed
            and not log.is_moving
            and log.directory.failure is None
            and log not in self._uncleanable
        )

    async def _survey(self, log: Log, high_watermark: int) -> LogSurvey | None:
        """Measure a log; None when there is nothing to do yet."""
        offsets = DirtyLog(
            log.log_start_offset,
            log.log_end_offset,
            log.last_stable_offset(Offset(high_watermark)),
            log.recovery_point,
            log.cleaned_offset,
        )
        segments, truncations, terms = log.segments, log.truncations, _terms_of(log.options)
        try:
            facts = await log.directory.workers.run(lambda: _gather(segments, terms))
        except OSError as error:
            if segments is log.segments and not log.is_closed:
                log.directory.judge(error)
            return None
        cleanable = survey(facts, offsets, terms, self._clock.now_ms())
        if not is_due(cleanable, terms.min_cleanable_dirty_ratio):
            return None
        return LogSurvey(log, segments, truncations, facts, cleanable, terms)

    async def _clean(self, found: LogSurvey) -> bool:
        log = found.log
        before_bytes, before_count = log.size_bytes, len(log.segments)
        figures, began = log.directory.figures, self._clock.monotonic()
        try:
            await CompactionRound(found, self._round_terms()).run()
        except DisturbedError:
            return False
        except StorageError as error:
            _log.warning("%s was not compacted: %s", log.topic_partition, error)
            return False
        except KafkaError as error:
            _log.error("%s cannot be compacted: %s", log.topic_partition, error)
            self._uncleanable.add(log)
            figures.uncleanable = len(self._uncleanable)
            return True
        figures.cleaner_runs += 1
        figures.cleaner_seconds += self._clock.monotonic() - began
        figures.cleaned_bytes_before += before_bytes
        figures.cleaned_bytes_after += log.size_bytes
        first_offset, end_offset = found.cleanable.first_dirty_offset, log.cleaned_offset
        message = (
            f"compacted from offset {first_offset} to {end_offset - 1}, {log.size_bytes} bytes in "
            f"{len(log.segments)} segments are left of {before_bytes} in {before_count}: "
            f"{explain_cleaning(found.cleanable, found.terms)}"
        )
        _log.info("%s: %s", log.topic_partition, message)
        log.directory.history.note(
            EventKind.COMPACTION,
            str(log.topic_partition),
            message,
            first_offset=first_offset,
            end_offset=end_offset,
        )
        return True

    def _round_terms(self) -> RoundTerms:
        options = self._options()
        return RoundTerms(
            now_ms=self._clock.now_ms(),
            max_keys=max_keys(
                options.log_cleaner_dedupe_buffer_size,
                options.log_cleaner_io_buffer_load_factor,
                LATEST_KEY_BYTES,
            ),
            slice_bytes=max(_SMALLEST_SLICE_BYTES, options.log_cleaner_io_buffer_size),
            pace=self._pace.wait,
        )


def _terms_of(options: TopicOptions) -> CleaningTerms:
    return CleaningTerms(
        options.min_cleanable_dirty_ratio,
        options.min_compaction_lag_ms,
        options.max_compaction_lag_ms,
        options.segment_bytes,
        options.segment_index_bytes,
    )


def _gather(segments: tuple[Segment, ...], terms: CleaningTerms) -> tuple[DirtySegment, ...]:
    """Blocks: it may read the ends of indexes."""
    asks_age = terms.max_compaction_lag_ms < _NEVER_MS
    return tuple(
        DirtySegment(
            segment.base_offset,
            segment.size_bytes,
            segment.find_first_timestamp() if asks_age else -1,
            segment.largest_timestamp(),
            len(segment.offset_index) * OFFSET_ENTRY_BYTES,
            len(segment.time_index) * TIME_ENTRY_BYTES,
        )
        for segment in segments
    )


T = TypeVar("T")

_SECRET_BYTES = 16
_AGAIN_SECONDS = 1.0

_ProcessBatch = Callable[[memoryview, BatchHeader, bool], bool]
"""Gets a batch, its header and whether it is the last one of its segment; False to stop."""


class DisturbedError(Exception):
    """The log changed under the round; what it has done so far stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTerms:
    """What a round may use."""

    now_ms: int
    max_keys: int
    slice_bytes: int
    """How much is read before others have their turn."""
    pace: Callable[[int], Awaitable[None]]
    """Told of the bytes read and written; waits when they are too many."""


class _Slice(NamedTuple):
    read_bytes: int
    wants_more: bool


class CompactionRound:
    """Used once."""

    def __init__(self, found: LogSurvey, terms: RoundTerms) -> None:
        self._log = log = found.log
        self._segments = segments = found.segments
        self._truncations = found.truncations
        self._facts = found.facts
        self._cleanable = found.cleanable
        self._cleaning = found.terms
        self._terms = terms
        first_dirty, end_offset, *_ = found.cleanable
        self._keys = KeyMap(
            terms.max_keys, first_dirty, end_offset - first_dirty, urandom(_SECRET_BYTES)
        )
        self._last_dirty_offsets: dict[int, int] = {}  # by producer id
        self._aborted = AbortedRanges(())
        self._transactions = TransactionData(self._aborted)
        self._dropped_offset = 0  # behind the last batch past its horizon that lost something
        self._noted: CompactionOffsets | None = None  # in the folder, by this round
        self._reading: Sequence[Segment] = segments
        self._disturbances = log.disturbances

    async def run(self) -> None:
        """Raises `DisturbedError`, `StorageError`, or another `KafkaError` for damaged batches."""
        await self._in_worker(self._remove_left_over)
        await self._map_keys()
        groups = group_segments(self._facts, self._keys.end_offset, self._cleaning)
        for group in groups:
            await self._clean_group(self._segments[group.start : group.stop])
        await self._in_worker(self._keys.latest.clear)  # for the loop it would take too long
        self._require_untruncated()
        self._log.cleaned_offset = Offset(self._keys.end_offset)
        self._log.directory.checkpoint_soon()

    # Reading the dirty part

    async def _map_keys(self) -> None:
        first_dirty, end_offset, *_ = self._cleanable
        starts = [segment.base_offset for segment in self._segments]
        self._aborted = await self._in_worker(lambda: self._find_aborted(end_offset))
        self._transactions = TransactionData(self._aborted)

        def process_batch(batch: memoryview, header: BatchHeader, is_last: bool) -> bool:
            if header.last_offset < first_dirty:
                return True
            if not map_batch(self._keys, batch, header, self._aborted, first_dirty):
                return False
            if header.producer_id >= 0 and not header.is_control:
                self._last_dirty_offsets[header.producer_id] = header.last_offset
            return True

        for number, segment in enumerate(self._segments[:-1]):
            if starts[number + 1] > first_dirty and starts[number] < end_offset:
                if not await self._read_through(segment, process_batch):
                    return
                # Behind its last batch there may be nothing, up to the next segment.
                self._keys.end_offset = max(self._keys.end_offset, starts[number + 1])

    def _find_aborted(self, end_offset: int) -> AbortedRanges:
        found = find_aborted(self._segments, self._segments[0].base_offset, end_offset)
        return AbortedRanges(
            (each.producer_id, each.first_offset, each.last_offset) for each in found
        )

    # Rewriting

    async def _clean_group(self, old: Sequence[Segment]) -> None:
        self._require_untruncated()
        self._reading, self._disturbances = old, self._log.disturbances
        new = await self._in_worker(lambda: self._create(old[0].base_offset))
        try:
            if await self._fill(new, old) or len(old) > 1:
                await self._swap_in(new, old)
            else:
                self._give_up(new)  # nothing was left out
                self._log.require_usable()
        except DisturbedError:
            self._give_up(new)
            await self._sync_at_last()  # a start must not take up the files that are gone
            raise
        except BaseException:
            self._give_up(new)
            raise

    def _give_up(self, new: Segment) -> None:
        """Remove files which never came into the log: the log's last, see `recovery_plan`."""
        log = self._log
        if new in log.segments or log.is_closed or log.directory.failure is not None:
            return
        try:
            new.remove_files()
        except OSError as error:
            log.directory.fail(error)

    def _remove_left_over(self) -> None:
        """Of a round that ended with its log: a worker may have made files when another topic's log
        had the folder. Behind such a file a start believes no `.swap` file."""
        files, folder = self._log.directory.files, self._log.folder
        for name in files.list_folder(folder):
            if name.endswith(CLEANED_SUFFIX):
                files.remove(folder / name)

    def _create(self, base_offset: int) -> Segment:
        log = self._log
        if log.is_closed:
            raise DisturbedError  # its folder may be another log's by now
        return Segment.create(
            log.directory.open_files, log.folder, base_offset, self._terms.now_ms, CLEANED_SUFFIX
        )

    async def _fill(self, new: Segment, old: Sequence[Segment]) -> bool:
        """Write what stays; False when that is all."""
        log, options = self._log, self._log.options
        terms = CompactionTerms(self._terms.now_ms, options.delete_retention_ms)
        last_offsets = find_producer_ends(
            log.active_producers(), self._last_dirty_offsets, self._keys.end_offset
        )
        self._transactions.fencing = find_fencing_markers(log.active_producers())
        last = next((segment for segment in reversed(old) if segment.size_bytes), old[-1])
        changed, handed_over = False, 0

        def process_batch(batch: memoryview, header: BatchHeader, is_last: bool) -> bool:
            nonlocal changed
            left = compact_batch(
                batch,
                header,
                self._keys,
                self._aborted,
                terms,
                last_offsets=last_offsets,
                ends_segment=is_last and segment is last,
                transactions=self._transactions,
            )
            changed = changed or left is not batch
            if left is not batch and is_past_horizon(header, terms):
                self._dropped_offset = max(self._dropped_offset, header.next_offset)
            if left is not None:
                youngest_ms = read_header(left).max_timestamp
                interval = options.index_interval_bytes
                new.append(left, len(left), header.last_offset, youngest_ms, interval)
            return True

        def process_and_write_back(batch: memoryview, header: BatchHeader, is_last: bool) -> bool:
            """So that the sync at the end does not hand the disk all of it at once."""
            nonlocal handed_over
            wants_more = process_batch(batch, header, is_last)
            if new.size_bytes - handed_over >= STEP_BYTES:
                new.write_back()
                handed_over = new.size_bytes
            return wants_more

        for segment in old:
            await self._read_through(segment, process_and_write_back, written=new)
        await self._in_worker(lambda: self._complete(new, old))
        return changed

    def _complete(self, new: Segment, old: Sequence[Segment]) -> None:
        """Blocks. Of an aborted transaction that has nothing left, readers are not told any more:
        its marker may be gone, and they would skip the records behind it."""
        with_data = self._transactions.aborted_with_data
        for segment in old:
            for aborted in segment.transaction_index.entries():
                if (aborted.producer_id, aborted.first_offset) in with_data:
                    new.transaction_index.append(aborted)
        new.seal()
        new.sync()
        self._log.directory.files.sync_folder(self._log.folder)

    async def _swap_in(self, new: Segment, old: Sequence[Segment]) -> None:
        self._require_undisturbed(old)
        offsets = self._offsets_after_swap()
        if offsets != self._noted:
            folder, files = self._log.folder, self._log.directory.files
            await self._in_worker(lambda: write_compaction_offsets(files, folder, offsets))
            self._noted = offsets
            self._require_undisturbed(old)
        with self._log.directory.failing():
            new.enter_stage(SWAP_SUFFIX)
        await self._sync_folder()
        self._require_undisturbed(old)
        # Before anything is gone: a follower that comes now must not go on from before it (REP-9).
        self._log.compared_offset = Offset(offsets.compared_offset)
        self._log.dropped_offset = Offset(offsets.dropped_offset)
        self._log.replace_segments(old, new)
        # Till its files have their lasting names, no other round may begin: over the new segment
        # it would put its own files in their place, and take those for the old ones.
        await self._sync_at_last()
        self._log.finish_swap(new)

    async def _sync_at_last(self) -> None:
        """What was renamed or removed has to stay so, before the log goes on: a folder that cannot
        be opened for the moment (too many files are open) is tried again."""
        log = self._log
        is_told = False
        while True:
            self._reading, self._disturbances = (), log.disturbances
            try:
                await self._sync_folder()
            except (StorageError, DisturbedError) as error:
                if log.is_closed or log.directory.failure is not None:
                    raise
                if not is_told:
                    _log.warning("%s: a compaction waits: %s", log.topic_partition, error)
                    is_told = True
            else:
                return
            await log.directory.clock.sleep(_AGAIN_SECONDS)

    def _offsets_after_swap(self) -> CompactionOffsets:
        known = self._log.compaction_offsets
        return CompactionOffsets(
            max(known.compared_offset, self._keys.end_offset),
            max(known.dropped_offset, self._dropped_offset),
        )

    def _require_undisturbed(self, old: Sequence[Segment]) -> None:
        log = self._log
        log.require_usable()
        self._require_untruncated()
        if log.is_moving or log.disturbances != self._disturbances or not log.holds_segments(old):
            raise DisturbedError

    def _require_untruncated(self) -> None:
        if self._log.truncations != self._truncations:
            raise DisturbedError

    async def _sync_folder(self) -> None:
        log = self._log
        if not log.is_closed:
            await self._in_worker(lambda: log.directory.files.sync_folder(log.folder))

    # In workers

    async def _read_through(
        self, segment: Segment, process: _ProcessBatch, written: Segment | None = None
    ) -> bool:
        """Hand every batch of a segment on, slice by slice, until it wants no more: then False."""
        position, end = 0, segment.size_bytes
        while position < end:
            before = written.size_bytes if written is not None else 0
            work = partial(self._read_slice, segment, position, end, process)
            done = await self._in_worker(work)
            if not done.wants_more:
                return False
            after = written.size_bytes if written is not None else 0
            await self._terms.pace(done.read_bytes + after - before)
            position += done.read_bytes
        return True

    def _read_slice(self, segment: Segment, start: int, end: int, process: _ProcessBatch) -> _Slice:
        """Blocks. Reads at least one batch, however large."""
        data = _read_whole_batches(segment, start, min(self._terms.slice_bytes, end - start))
        position = 0
        while position + HEADER_BYTES <= len(data):
            size_bytes = read_size(data, position)
            if size_bytes < HEADER_BYTES:
                raise CorruptBatchError(f"{segment} is damaged at byte {start + position}")
            if position + size_bytes > len(data):
                break
            header = read_header(data, position)
            batch = data[position : position + size_bytes]
            position += size_bytes
            if not process(batch, header, start + position == end):
                return _Slice(position, False)
        if not position:
            raise CorruptBatchError(f"{segment} is cut short at byte {start}")
        return _Slice(position, True)

    async def _in_worker(self, work: Callable[[], T]) -> T:
        log = self._log
        try:
            return await log.directory.workers.run(work)
        except OSError as error:
            if log.is_closed or self._was_disturbed():
                raise DisturbedError from error  # files were renamed under the work
            if error.errno in NO_ROOM:  # the next round may have more luck
                raise StorageError(f"there is no room for a compacted segment: {error}") from error
            raise log.directory.judge(error) from error
        except StorageError:
            raise
        except KafkaError as error:
            if log.is_closed or self._was_disturbed():
                raise DisturbedError from error  # half of one batch and half of another
            raise

    def _was_disturbed(self) -> bool:
        log = self._log
        return log.disturbances != self._disturbances or any(
            segment.is_deleted for segment in self._reading
        )


def _read_whole_batches(segment: Segment, start: int, length: int) -> memoryview:
    file = segment.opened()
    data = file.read_at(start, length)
    if len(data) >= HEADER_BYTES and read_size(data) > len(data):
        data = file.read_at(start, read_size(data))
    return memoryview(data)
