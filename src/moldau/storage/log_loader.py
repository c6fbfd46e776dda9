"""Opens the log in a partition's folder, and repairs it when the broker did not stop cleanly.

Kafka's `LogLoader`. After a clean stop this is a look at names, sizes and the end of the last
segment. Otherwise each segment from the recovery point on is read to its end: damage is cut off,
the indexes, the table of producers and the leader epochs are rebuilt. What to scan and which files
are left over is planned in `rules.recovery_plan`.

A shell. It blocks: run it in a worker.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Sequence
from itertools import zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from moldau.config.topic_options import TopicOptions
from moldau.errors import DamagedFileError, StorageError
from moldau.model import Offset, TopicId, TopicPartition
from moldau.records.batch_header import LOG_OVERHEAD_BYTES, BatchHeader
from moldau.storage.checkpoint_files import (
    AbortedBySegment,
    ClosedSegments,
    CompactionOffsets,
    describe_segments,
    read_compaction_offsets,
    read_epochs,
    read_log_start,
    read_partition_metadata,
)
from moldau.storage.file_records import walk_batches, walk_valid_batches
from moldau.storage.files import Files
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.producer_snapshots import (
    ProducerSnapshots,
    apply_stored,
    rebuild_producers,
    replay_marker,
)
from moldau.storage.rules.epoch_cache import EpochCache
from moldau.storage.rules.file_names import (
    CLEANED_SUFFIX,
    COMPACTION_OFFSETS_FILE,
    INCOMPLETE_FILE,
    LEADER_EPOCHS_FILE,
    LOG_START_OFFSETS_FILE,
    LOG_SUFFIX,
    LOSS_FILE,
    PARTITION_METADATA_FILE,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from moldau.storage.rules.producer_state import ProducerState
from moldau.storage.rules.recovery_plan import (
    FolderPlan,
    find_swap_segments,
    fits_behind,
    plan_folder,
    plan_scan,
)
from moldau.storage.rules.roll import MAX_RELATIVE_OFFSET
from moldau.storage.segment import Segment, SegmentTooLargeError
from moldau.storage.transaction_index import EMPTY_DIGEST

_log = logging.getLogger("moldau.storage.recovery")


class LoadTerms(NamedTuple):
    """What is known about a log before its folder is opened."""

    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    producer_expiration_ms: int
    is_start_known: bool = True
    """Whether there is a checkpoint of log start offsets: else the folder of the log may tell."""
    cleaned_offset: int = 0
    """Compaction has been up to here, by Kafka's checkpoint of it."""
    dropped_offset: int = 0
    """Behind the last tombstone that compaction has dropped (REP-9)."""
    high_watermark: int = 0
    """What is below it was committed, by Kafka's checkpoint of it."""
    may_have_lost: bool = False
    """The folder says that a sync failed, or that a log lost something nobody was told of."""
    aborted: AbortedBySegment = MappingProxyType({})
    """What the indexes of aborted transactions should hold."""
    closed: ClosedSegments | None = None
    """What it was like at the clean stop, if that is known."""


def load_log(
    directory: LogDirectory,
    folder: Path,
    topic_partition: TopicPartition,
    options: TopicOptions,
    terms: LoadTerms,
) -> Log:
    """Open the log in a folder; an empty folder gives an empty log."""
    while True:
        try:
            return _LogLoader(directory, folder, topic_partition, options, terms).load()
        except SegmentTooLargeError as found:
            cleaned = split_segment(directory, found.segment, options.index_interval_bytes)
            cleaned = max(terms.cleaned_offset, cleaned)
            terms = terms._replace(cleaned_offset=cleaned, closed=None)


def create_log(
    directory: LogDirectory,
    folder: Path,
    topic_partition: TopicPartition,
    topic_id: TopicId | None,
    options: TopicOptions,
    producer_expiration_ms: int,
) -> Log:
    """Make the files of a new log in a folder that has no segment yet.

    It counts as a replica from here on, so it is there after a power loss, too (LOG-10). Blocks.
    """
    created_ms = directory.clock.now_ms()
    segment = Segment.create(directory.open_files, folder, 0, created_ms)
    directory.files.sync_folder(folder)
    directory.files.sync_folder(folder.parent)
    return Log(
        topic_partition,
        topic_id,
        folder,
        directory,
        options,
        segments=(segment,),
        producers=ProducerState(producer_expiration_ms),
        snapshots=ProducerSnapshots(directory.files, folder),
        is_durable=True,
    )


class _LogLoader:
    """One opening of one log; used once."""

    def __init__(
        self,
        directory: LogDirectory,
        folder: Path,
        topic_partition: TopicPartition,
        options: TopicOptions,
        terms: LoadTerms,
    ) -> None:
        self._directory = directory
        self._files = directory.files
        self._folder = folder
        self._topic_partition = topic_partition
        self._options = options
        self._terms = terms
        self._now_ms = directory.clock.now_ms()
        self._producers = ProducerState(terms.producer_expiration_ms)
        self._epochs = RecoveredEpochs(self._files, folder / LEADER_EPOCHS_FILE)
        self._snapshots = ProducerSnapshots(self._files, folder)
        self._segments: list[Segment] = []
        self._producers_are_built = False
        self._has_recovered = False  # some segment was read to its end
        self._has_lost_its_end = terms.may_have_lost  # batches that had been written are gone
        self._is_incomplete = False  # sealed segments are not as they were when it was closed
        self._cut_off: list[Segment] = []  # they had more at their end
        self._scanned_from: int | None = None  # where the first segment begins that was checked

    def load(self) -> Log:
        names = self._files.list_folder(self._folder)
        plan = tidy_folder(self._files, self._folder, names)
        if plan.removals or plan.renames:
            names = self._files.list_folder(self._folder)
        self._snapshots = ProducerSnapshots(self._files, self._folder, plan.snapshots)
        self._segments = [self._open(base_offset) for base_offset in plan.segments]
        self._find_start()
        self._compare_with_stop(names, plan)
        for segment, following in zip_longest(self._segments, plan.segments[1:]):
            require_describable(segment, following)
        self._epochs.read()
        self._complete_indexes(frozenset(names))
        self._scan()
        end_offset = self._prepare_end()
        log_start_offset = max(self._terms.log_start_offset, self._segments[0].base_offset)
        clean = self._terms.clean_shutdown
        epochs = self._epochs.finish(self._segments, log_start_offset, end_offset, clean=clean)
        self._load_producers(log_start_offset, end_offset)
        self._look_for_loss(end_offset)
        self._make_durable()
        for segment in self._segments:
            segment.let_go()  # most logs of a large broker are idle
        log = Log(
            self._topic_partition,
            self._read_topic_id(),
            self._folder,
            self._directory,
            self._options,
            segments=tuple(self._segments),
            log_start_offset=log_start_offset,
            log_end_offset=end_offset,
            recovery_point=end_offset if clean else min(self._terms.recovery_point, end_offset),
            producers=self._producers,
            epochs=epochs,
            snapshots=self._snapshots,
            stored_epochs=self._epochs.stored,
            has_aborted=self._has_aborted(names),
            is_durable=clean and not plan.renames,
            unflushed_from=self._scanned_from,
        )
        log.cleaned_offset = Offset(min(self._terms.cleaned_offset, end_offset))
        noted = self._read_compaction_offsets(names)
        dropped_offset = max(self._terms.dropped_offset, noted.dropped_offset)
        log.compared_offset = Offset(min(noted.compared_offset, end_offset))
        log.dropped_offset = Offset(min(dropped_offset, end_offset))
        log.has_loss_note = LOSS_FILE in names
        log.has_lost_its_end = self._has_lost_its_end or log.has_loss_note
        log.is_incomplete = self._is_incomplete
        return log

    # The folder

    def _find_start(self) -> None:
        """What DeleteRecords has taken is not there again because a checkpoint is lost (LOG-12)."""
        if not self._terms.is_start_known:
            noted = read_log_start(self._files, self._folder)
            if noted > self._terms.log_start_offset:
                _log.warning(
                    "%s begins at offset %d, as its own folder says: %s is lost",
                    self._folder,
                    noted,
                    LOG_START_OFFSETS_FILE,
                )
                self._terms = self._terms._replace(log_start_offset=noted)

    def _compare_with_stop(self, names: Sequence[str], plan: FolderPlan) -> None:
        """Files may have been lost since a clean stop. Then what is left is checked (LOG-13).

        Only the end of a log can be fetched again. Sealed segments that are gone or short leave a
        hole inside, which is noted in the folder until the cluster knows of it. Nothing behind it
        is given up: it was flushed, and may be the only copy.
        """
        found = [(segment.base_offset, segment.size_bytes) for segment in self._segments]
        closed = self._terms.closed if not plan.renames else None
        has_lost_active = closed is not None and closed.has_lost_active(found)
        has_lost_sealed = closed is not None and closed.has_lost_sealed(found)
        self._is_incomplete = has_lost_sealed or INCOMPLETE_FILE in names
        if has_lost_active or has_lost_sealed:
            _log.error(
                "%s is not as it was left. It had %s; now it has %s",
                self._folder,
                closed,
                describe_segments(found) if found else "no segment",
            )
        if self._is_incomplete:
            self._has_lost_its_end = True
            self._files.replace(self._folder / INCOMPLETE_FILE, b"")
        if closed is not None and closed.has_lost_end(found):
            self._has_lost_its_end = True  # the checkpoints that tell it may be lost, too
        if has_lost_active or self._is_incomplete:
            self._terms = self._terms._replace(clean_shutdown=False)

    def _open(self, base_offset: int) -> Segment:
        path = self._folder / segment_file_name(base_offset, LOG_SUFFIX)
        return Segment(
            self._directory.open_files,
            self._folder,
            base_offset,
            size_bytes=self._files.size(path),
            created_ms=self._now_ms,
        )

    def _read_topic_id(self) -> TopicId | None:
        path = self._folder / PARTITION_METADATA_FILE
        try:
            return read_partition_metadata(self._files, path)
        except DamagedFileError as error:
            _log.warning("%s is passed over: %s", path, error)
            return None

    def _read_compaction_offsets(self, names: Sequence[str]) -> CompactionOffsets:
        if COMPACTION_OFFSETS_FILE not in names:
            return CompactionOffsets()
        return read_compaction_offsets(self._files, self._folder)

    def _has_aborted(self, names: Sequence[str]) -> bool:
        if self._has_recovered:
            names = self._files.list_folder(self._folder)  # it may have found some
        return any(TRANSACTION_INDEX_SUFFIX in name for name in names)

    # Segments

    def _complete_indexes(self, names: Collection[str]) -> None:
        """A segment before the recovery point that has lost an index is read to rebuild it."""
        scanned = self._plan_scan()
        for number, segment in enumerate(self._segments):
            if segment.base_offset in scanned or not self._lacks_index(segment, names):
                continue
            if not segment.size_bytes:
                segment.start_empty_indexes()
                continue
            _log.warning("%s is scanned and its indexes are rebuilt", segment.path)
            producers = ProducerState(self._terms.producer_expiration_ms)
            self._rebuild_until(producers, self._segments[:number], segment.base_offset)
            cut_bytes = self._recover(segment, producers)
            segment.sync()  # no later flush looks at it again
            if cut_bytes:
                _log.warning("cut %d damaged bytes off %s", cut_bytes, segment.path)
                self._end_with(number)
                return

    def _lacks_index(self, segment: Segment, names: Collection[str]) -> bool:
        indexes = (segment.offset_index, segment.time_index)
        if any(index.path.name not in names for index in indexes):
            return True
        return self._is_damaged(segment) or self._has_other_aborted(segment, names)

    def _has_other_aborted(self, segment: Segment, names: Collection[str]) -> bool:
        """Whether the index of aborted transactions is not what it was, or cannot be one."""
        index, expected = segment.transaction_index, self._terms.aborted.get(segment.base_offset)
        if index.path.name not in names:
            index.assume_absent()
        if expected is not None or index.path.name not in names:
            return index.digest != (expected or EMPTY_DIGEST)
        following = self._segments[self._segments.index(segment) + 1 :]
        end_offset = following[0].base_offset if following else None
        return not index.is_sound(segment.base_offset, end_offset)

    def _is_damaged(self, segment: Segment) -> bool:
        """Only the active segment is looked at: the others were sealed long ago.

        A copy of the folder may be cut short though it has the marker of a clean stop; what is
        appended behind that could never be read, and a later recovery would cut it off.
        """
        if segment is not self._segments[-1] or not segment.size_bytes:
            return False
        return segment.is_damaged()

    def _plan_scan(self) -> tuple[int, ...]:
        starts = [segment.base_offset for segment in self._segments]
        terms = self._terms
        recovery_point = terms.recovery_point
        if self._is_incomplete:
            recovery_point = 0
        elif terms.closed is not None:
            recovery_point = min(recovery_point, terms.closed.active_offset)
        return plan_scan(starts, recovery_point, terms.clean_shutdown)

    def _scan(self) -> None:
        """Check the batches of all segments that may not have reached the disk."""
        scanned = self._plan_scan()
        if not scanned:
            return
        self._last_epoch = -1
        self._scanned_from = scanned[0]
        first = len(self._segments) - len(scanned)
        self._rebuild_until(self._producers, self._segments[:first], scanned[0])
        for number in range(first, len(self._segments)):
            if not self._recover_in_order(number):
                self._end_with(number)
                break
        self._producers_are_built = True

    def _end_with(self, number: int) -> None:
        """What is behind a segment is not part of the log."""
        is_last = number + 1 == len(self._segments)
        if self._segments[number].has_lost_batches or not is_last:
            self._has_lost_its_end = True
        self._segments[number].unshare(self._segments[number].size_bytes)
        self._remove(self._segments[number + 1 :])
        del self._segments[number + 1 :]

    def _recover_in_order(self, number: int) -> bool:
        """Check one segment; False when what is behind it cannot be part of the log."""
        segment = self._segments[number]
        cut_bytes = self._recover(segment, self._producers, self._last_epoch)
        if cut_bytes:
            _log.warning("cut %d damaged bytes off %s", cut_bytes, segment.path)
            self._cut_off.append(segment)
            return self._is_incomplete and number + 1 < len(self._segments)
        if number + 1 == len(self._segments):
            return True
        end_offset = max(self._producers.end_offset, segment.base_offset)
        start_offset = self._segments[number + 1].base_offset
        terms = self._terms
        if self._is_incomplete:
            return True
        if fits_behind(end_offset, start_offset, terms.cleaned_offset, terms.recovery_point):
            return True
        _log.warning(
            "%s ends at offset %d, and the next segment begins at %d: what is behind it is not "
            "part of the log",
            segment.path,
            end_offset,
            start_offset,
        )
        return False

    def _recover(self, segment: Segment, producers: ProducerState, leader_epoch: int = -1) -> int:
        self._has_recovered = True

        def on_batch(position: int, header: BatchHeader) -> None:
            marker = apply_stored(producers, segment, position, header, self._now_ms)
            if marker is not None:
                replay_marker(producers, segment, header, header.base_offset, marker, self._now_ms)
            self._epochs.note(header)
            self._last_epoch = header.leader_epoch

        return segment.recover(
            on_batch,
            self._options.index_interval_bytes,
            leader_epoch,
            known_end=self._find_known_end(segment),
            rewrite=self._terms.may_have_lost,
        )

    def _find_known_end(self, segment: Segment) -> int:
        """Up to there the log has reached in a segment, whatever its batches say."""
        behind = self._segments[self._segments.index(segment) + 1 :]
        if behind:
            return behind[0].base_offset
        terms = self._terms
        return max(terms.recovery_point, terms.cleaned_offset, terms.high_watermark)

    def _remove(self, segments: Sequence[Segment]) -> None:
        for segment in segments:
            _log.warning("%s is deleted", segment.path)
            segment.let_go()
            for path in segment.mark_deleted():
                self._files.remove(path)
        self._snapshots.remove([segment.base_offset for segment in segments])

    def _prepare_end(self) -> int:
        """The log's end; there is a segment to append to afterwards."""
        end_offset = self._segments[-1].prepare_to_append() if self._segments else -1
        if self._segments:
            require_describable(self._segments[-1], end_offset)
        start_offset = self._terms.log_start_offset
        if end_offset >= start_offset:
            return end_offset
        if self._segments:
            _log.warning(
                "%s ends at %d, before its start offset %d: all of it is deleted",
                self._folder,
                end_offset,
                start_offset,
            )
            self._has_lost_its_end = True
            self._remove(self._segments)
        new = Segment.create(self._directory.open_files, self._folder, start_offset, self._now_ms)
        self._segments = [new]
        self._producers_are_built = False
        return start_offset

    def _look_for_loss(self, end_offset: int) -> None:
        """What was flushed or committed and is not there is a hole (REP-6)."""
        promised = max(self._terms.recovery_point, self._terms.high_watermark)
        if end_offset < promised:
            _log.warning(
                "%s ends at offset %d; it was flushed up to %d and committed up to %d",
                self._folder,
                end_offset,
                self._terms.recovery_point,
                self._terms.high_watermark,
            )
            self._has_lost_its_end = True

    def _make_durable(self) -> None:
        """What was cut off must not come back behind what is written in its place (LOG-9)."""
        if self._has_lost_its_end and not self._terms.may_have_lost:
            self._directory.note_loss(f"{self._topic_partition} has lost its end")
        for segment in self._cut_off:
            segment.sync()
        if self._cut_off or self._has_lost_its_end:
            self._files.sync_folder(self._folder)

    # What is beside the segments

    def _load_producers(self, log_start_offset: int, end_offset: int) -> None:
        starts = [segment.base_offset for segment in self._segments]
        self._snapshots.remove([at for at in self._snapshots.offsets if at > end_offset])
        self._snapshots.remove_strays(starts)
        if not self._producers_are_built:
            self._rebuild_until(self._producers, self._segments, end_offset, log_start_offset)

    def _rebuild_until(
        self,
        producers: ProducerState,
        segments: Sequence[Segment],
        end_offset: int,
        log_start_offset: int | None = None,
    ) -> None:
        if log_start_offset is None:
            log_start_offset = self._terms.log_start_offset
        rebuild_producers(
            producers, self._snapshots, segments, log_start_offset, end_offset, self._now_ms
        )


# The file of leader epochs may be gone, damaged, or older than a truncation; each batch bears the
# epoch under which it was written. So the epochs of batches that are read anyway are noted, and
# where the file is of no use all batches are read.


class RecoveredEpochs:
    """Of one opening of one log: `read`, then `note` of batches in order, then `finish`."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._is_damaged = False  # the file is there but cannot be read
        self._found = EpochCache()
        self.stored = EpochCache()
        """What the file says."""

    def read(self) -> None:
        try:
            self._found = self.stored = read_epochs(self._files, self._path)
        except DamagedFileError as error:
            _log.warning("%s is rebuilt: %s", self._path, error)
            self._is_damaged = True

    def note(self, header: BatchHeader) -> None:
        known = self._found.find_epoch_at(header.base_offset)
        if known is not None and 0 <= header.leader_epoch < known:
            # The file is older than a truncation, and what that epoch had written is gone.
            self._found = self._found.truncate_from_end(header.base_offset)
        latest_epoch = self._found.latest_epoch
        if header.leader_epoch > (-1 if latest_epoch is None else latest_epoch):
            self._found = self._found.assign(header.leader_epoch, header.base_offset)

    def finish(
        self, segments: Sequence[Segment], log_start_offset: int, end_offset: int, *, clean: bool
    ) -> EpochCache:
        """The epochs of a log that has these segments."""
        if self._is_damaged or self._is_lacking(segments):
            self._rebuild(segments)
        if not clean:
            self._complete(segments, log_start_offset)
        return self._found.truncate_from_end(end_offset).truncate_from_start(log_start_offset)

    def _is_lacking(self, segments: Sequence[Segment]) -> bool:
        """Whether no epoch is known though the batches have some: the file is gone."""
        if self._found.entries:
            return False
        last = next((one for one in reversed(segments) if one.size_bytes), None)
        if last is None:
            return False
        _, header = next(walk_batches(last.opened(), 0, last.size_bytes), (0, None))
        return header is not None and header.leader_epoch >= 0

    def _rebuild(self, segments: Sequence[Segment]) -> None:
        self._found = EpochCache()
        for segment in segments:
            for _, header in walk_batches(segment.opened(), 0, segment.size_bytes):
                self.note(header)

    def _complete(self, segments: Sequence[Segment], log_start_offset: int) -> None:
        """Records whose deletion was not written down are there again: their epochs, too."""
        known = self._found.entries
        if not known or known[0].start_offset <= log_start_offset:
            return
        found = EpochCache()
        for segment in segments:
            for _, header in walk_batches(segment.opened(), 0, segment.size_bytes):
                if header.base_offset >= known[0].start_offset:
                    break
                if found.latest_epoch is None and header.leader_epoch >= 0:
                    found = found.assign(header.leader_epoch, log_start_offset)
                elif found.latest_epoch is not None and header.leader_epoch > found.latest_epoch:
                    found = found.assign(header.leader_epoch, header.base_offset)
        if found.latest_epoch is None:  # compaction has left no batch there
            found = found.assign(known[0].epoch, log_start_offset)
        for entry in known:
            if entry.epoch != found.latest_epoch:
                found = found.assign(entry.epoch, entry.start_offset)
        self._found = found


# Compaction puts its results into the log by renaming files, one after the other. A broker that
# ends in the middle leaves files of both; `rules.recovery_plan` says which of them go and which
# take another's place.


def tidy_folder(files: Files, folder: Path, names: Sequence[str]) -> FolderPlan:
    """Remove what is left over and put what was ready in its place; returns what was done."""
    if any(name.endswith(SWAP_SUFFIX) for name in names):
        names = _without_damaged_swaps(files, folder, names)
    swaps = find_swap_segments(names)
    plan = plan_folder(names, _end_of_swap(files, folder, swaps[-1]) if swaps else None)
    for name in plan.removals:
        files.remove(folder / name)
    if plan.renames:
        # What they were made from must not come back beside them.
        files.sync_folder(folder)
    for name, target in plan.renames:
        files.rename(folder / name, folder / target)
    return plan


def empty_folder(files: Files, folder: Path) -> None:
    """Give back the room of a log that was deleted; its folder still says that it was."""
    with contextlib.suppress(OSError):  # whoever removes the folder says what is wrong
        for name in files.list_folder(folder):
            files.remove(folder / name)


def _without_damaged_swaps(files: Files, folder: Path, names: Sequence[str]) -> Sequence[str]:
    """What compaction had ready takes nobody's place if it is not whole any more."""
    for base_offset in find_swap_segments(names):
        name = segment_file_name(base_offset, LOG_SUFFIX)
        if name in names and not _is_whole(files, folder / (name + SWAP_SUFFIX)):
            _log.warning("%s is damaged and removed", folder / (name + SWAP_SUFFIX))
            start = segment_file_name(base_offset, ".")
            going = {one for one in names if one.startswith(start) and one.endswith(SWAP_SUFFIX)}
            for one in sorted(going):
                files.remove(folder / one)
            names = [one for one in names if one not in going]
    return names


def _is_whole(files: Files, path: Path) -> bool:
    with contextlib.closing(files.open(path)) as file:
        end, size_bytes = 0, file.size()
        for position, header in walk_valid_batches(file, size_bytes):
            end = position + header.size_bytes
    return 0 < end == size_bytes


def _end_of_swap(files: Files, folder: Path, base_offset: int) -> int:
    path = folder / (segment_file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX)
    end_offset = base_offset
    with contextlib.closing(files.open(path)) as file:
        for _, header in walk_batches(file, 0, file.size()):
            end_offset = header.next_offset
    return end_offset


# Index entries have 31 bits for an offset relative to the segment's first, and as many for a
# position. Moldau writes nothing beyond that; but Kafka before 2.0 could let compaction put offsets
# too far apart into one segment, and a file may come from anywhere. Such a segment is sound, so it
# is neither cut off nor refused: as in Kafka (`splitOverflowedSegment`), its batches are copied
# into segments that keep the limits, and these take its place. After a crash the copies count when
# all of them are whole (`rules.recovery_plan`).


MAX_SEGMENT_BYTES = 0x7FFFFFFF
_COPIED_BYTES = 1024 * 1024


def require_describable(segment: Segment, end_offset: int | None) -> None:
    """Raise unless the indexes can describe a segment, which ends at an offset or before it.

    For most that is enough to know. None while nobody knows where the last one of a log ends.
    """
    if segment.size_bytes > MAX_SEGMENT_BYTES:
        raise SegmentTooLargeError(segment)
    furthest = segment.base_offset + MAX_RELATIVE_OFFSET
    if end_offset is None or end_offset - 1 <= furthest:
        return
    for _, header in segment.walk_from(segment.offset_index.last_entry()):
        if header.last_offset > furthest:
            raise SegmentTooLargeError(segment)


def split_segment(
    directory: LogDirectory,
    segment: Segment,
    index_interval_bytes: int,
    max_bytes: int = MAX_SEGMENT_BYTES,
) -> int:
    """Have copies ready, which take the place of a segment when the folder is tidied.

    What is behind the last sound batch is copied as it is: it is for recovery to judge. Returns up
    to where compaction must have been, since nothing else leaves gaps so wide that no segment spans
    them; 0 when there is none.
    """
    copies: list[Segment] = []
    next_offset, cleaned_offset, end = segment.base_offset, 0, 0
    source = segment.opened()
    for position, header in walk_valid_batches(source, segment.size_bytes):
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        if not copies or not _has_room(copies[-1], header.last_offset, size_bytes, max_bytes):
            start = next_offset
            if header.last_offset - start > MAX_RELATIVE_OFFSET:
                start = cleaned_offset = header.base_offset
            copies.append(_create(directory, segment, start))
        batch = source.read_at(position, size_bytes)
        copies[-1].append(
            batch, size_bytes, header.last_offset, header.max_timestamp, index_interval_bytes
        )
        next_offset, end = header.next_offset, position + size_bytes
    if len(copies) < 2:
        raise StorageError(
            f"{segment.path} has more bytes or offsets than its indexes can describe, and is "
            f"damaged at byte {end}: move it away, with all that is behind it"
        )
    for position in range(end, segment.size_bytes, _COPIED_BYTES):
        rest = source.read_at(position, min(_COPIED_BYTES, segment.size_bytes - position))
        copies[-1].opened().write_at(copies[-1].size_bytes + position - end, rest)
    _divide_aborted(segment, copies)
    _make_ready(directory, copies)
    segment.let_go()
    _log.warning(
        "%s has more bytes or offsets than its indexes can describe: %d segments take its place",
        segment.path,
        len(copies),
    )
    return cleaned_offset


def _has_room(copy: Segment, last_offset: int, size_bytes: int, max_bytes: int) -> bool:
    is_near = last_offset - copy.base_offset <= MAX_RELATIVE_OFFSET
    return is_near and copy.size_bytes + size_bytes <= max_bytes


def _divide_aborted(segment: Segment, copies: Sequence[Segment]) -> None:
    """A transaction is in the index of the segment that has its marker."""
    for aborted in segment.transaction_index.entries():
        holding = [copy for copy in copies if copy.base_offset <= aborted.last_offset]
        holding[-1].transaction_index.append(aborted)


def _make_ready(directory: LogDirectory, copies: Sequence[Segment]) -> None:
    """As `rules.recovery_plan` takes them up: all, or none."""
    folder = copies[0].path.parent
    for copy in copies:
        copy.seal()
        copy.sync()
    directory.files.sync_folder(folder)
    for copy in reversed(copies):
        copy.enter_stage(SWAP_SUFFIX)
        copy.let_go()
    directory.files.sync_folder(folder)


def _create(directory: LogDirectory, segment: Segment, base_offset: int) -> Segment:
    return Segment.create(
        directory.open_files, segment.path.parent, base_offset, segment.created_ms, CLEANED_SUFFIX
    )
