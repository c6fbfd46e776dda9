"""Opens the log in a partition's folder, and repairs it when the broker did not stop cleanly.

After a clean stop this is a look at names, sizes and the end of the last segment. Otherwise each
segment from the recovery point on is read to its end: damage is cut off, the indexes, the table of
producers and the leader epochs are rebuilt. What to scan and which files are left over is planned
in `rules.recovery_plan`.

A shell. It blocks: run it in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moldau.config.topic_options import TopicOptions
from moldau.errors import DamagedFileError
from moldau.model import Offset, TopicId, TopicPartition
from moldau.records.batch_header import BatchHeader
from moldau.storage.batch_scan import walk_batches
from moldau.storage.leader_epoch_file import read_epochs
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.partition_metadata import read_partition_metadata
from moldau.storage.producer_replay import apply_stored, rebuild_producers, replay_marker
from moldau.storage.producer_state import ProducerState
from moldau.storage.rules.epoch_cache import EpochCache
from moldau.storage.rules.file_names import (
    LEADER_EPOCHS_FILE,
    LOG_SUFFIX,
    PARTITION_METADATA_FILE,
    SWAP_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from moldau.storage.rules.recovery_plan import (
    FolderPlan,
    find_swap_segments,
    fits_behind,
    plan_folder,
    plan_scan,
)
from moldau.storage.segment import Segment
from moldau.storage.snapshot_files import SnapshotFiles

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTerms:
    """What is known about a log before its folder is opened."""

    clean_shutdown: bool
    recovery_point: int
    log_start_offset: int
    producer_expiration_ms: int
    cleaned_offset: int = 0
    """Compaction has been up to here, by Kafka's checkpoint of it."""
    high_watermark: int = 0
    """What is below it was committed, by Kafka's checkpoint of it."""
    may_have_lost: bool = False
    """The folder says that a sync failed, or that a log lost something nobody was told of."""


def load_log(
    directory: LogDirectory,
    folder: Path,
    topic_partition: TopicPartition,
    options: TopicOptions,
    terms: LoadTerms,
) -> Log:
    """Open the log in a folder; an empty folder gives an empty log."""
    return _Loader(directory, folder, topic_partition, options, terms).load()


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
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        producers=ProducerState(producer_expiration_ms),
        epochs=EpochCache(),
        snapshots=SnapshotFiles(directory.files, folder),
        is_durable=True,
    )


class _Loader:
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
        self._epochs = self._stored_epochs = EpochCache()
        self._snapshots = SnapshotFiles(self._files, folder)
        self._segments: list[Segment] = []
        self._producers_are_built = False
        self._has_lost_its_end = terms.may_have_lost  # batches that had been written are gone
        self._cut_off: list[Segment] = []  # they had more at their end
        self._scanned_from: int | None = None  # where the first segment begins that was checked

    def load(self) -> Log:
        names = self._files.list_folder(self._folder)
        plan = self._tidy(names)
        if plan.removals or plan.renames:
            names = self._files.list_folder(self._folder)
        self._snapshots = SnapshotFiles(self._files, self._folder, plan.snapshots)
        self._segments = [self._open(base_offset) for base_offset in plan.segments]
        epochs_are_damaged = self._read_epochs()
        self._complete_indexes(names)
        self._scan()
        end_offset = self._prepare_end()
        log_start_offset = max(self._terms.log_start_offset, self._segments[0].base_offset)
        if epochs_are_damaged:
            self._rebuild_epochs()
        self._complete_epochs(log_start_offset)
        self._epochs = self._epochs.truncate_from_end(end_offset)
        self._epochs = self._epochs.truncate_from_start(log_start_offset)
        self._load_producers(log_start_offset, end_offset)
        self._look_for_loss(end_offset)
        self._make_durable()
        clean = self._terms.clean_shutdown
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
            epochs=self._epochs,
            snapshots=self._snapshots,
            stored_epochs=self._stored_epochs,
            has_aborted=self._has_aborted(names),
            is_durable=clean and not plan.renames,
            unflushed_from=self._scanned_from,
        )
        log.cleaned_offset = Offset(min(self._terms.cleaned_offset, end_offset))
        log.has_lost_its_end = self._has_lost_its_end
        return log

    # The folder

    def _tidy(self, names: Sequence[str]) -> FolderPlan:
        """Finish what was under way when the broker stopped."""
        swaps = find_swap_segments(names)
        plan = plan_folder(names, self._end_of_swap(swaps[-1]) if swaps else None)
        for name in plan.removals:
            self._files.remove(self._folder / name)
        if plan.renames:
            # What they were made from must not come back beside them.
            self._files.sync_folder(self._folder)
        for name, target in plan.renames:
            self._files.rename(self._folder / name, self._folder / target)
        return plan

    def _end_of_swap(self, base_offset: int) -> int:
        path = self._folder / (segment_file_name(base_offset, LOG_SUFFIX) + SWAP_SUFFIX)
        file = self._files.open(path)
        end_offset = base_offset
        for _, header in walk_batches(file, 0, file.size()):
            end_offset = header.next_offset
        file.close()
        return end_offset

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

    def _has_aborted(self, names: Sequence[str]) -> bool:
        if not self._terms.clean_shutdown:
            names = self._files.list_folder(self._folder)  # recovery may have found some
        return any(TRANSACTION_INDEX_SUFFIX in name for name in names)

    # Segments

    def _complete_indexes(self, names: Sequence[str]) -> None:
        """A segment before the recovery point that has lost an index is read to rebuild it."""
        scanned = self._plan_scan()
        for number, segment in enumerate(self._segments):
            if segment.base_offset in scanned or not self._lacks_index(segment, names):
                continue
            if not segment.size_bytes:
                segment.start_empty_indexes()
                continue
            _log.warning("the indexes of %s are rebuilt", segment.path)
            producers = ProducerState(self._terms.producer_expiration_ms)
            self._rebuild_until(producers, self._segments[:number], segment.base_offset)
            cut_bytes = self._recover(segment, producers)
            segment.sync()  # no later flush looks at it again
            if cut_bytes:
                _log.warning("cut %d damaged bytes off %s", cut_bytes, segment.path)
                self._end_with(number)
                return

    def _lacks_index(self, segment: Segment, names: Sequence[str]) -> bool:
        indexes = (segment.offset_index, segment.time_index)
        return any(index.path.name not in names for index in indexes) or self._is_damaged(segment)

    def _is_damaged(self, segment: Segment) -> bool:
        """Only the active segment's index is looked at: the others were sealed long ago."""
        if segment is not self._segments[-1] or not segment.size_bytes:
            return False
        return segment.offset_index.find_fault(segment.size_bytes) is not None

    def _plan_scan(self) -> tuple[int, ...]:
        starts = [segment.base_offset for segment in self._segments]
        return plan_scan(starts, self._terms.recovery_point, self._terms.clean_shutdown)

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
        self._remove(self._segments[number + 1 :])
        del self._segments[number + 1 :]

    def _recover_in_order(self, number: int) -> bool:
        """Check one segment; False when what is behind it cannot be part of the log."""
        segment = self._segments[number]
        cut_bytes = self._recover(segment, self._producers, self._last_epoch)
        if cut_bytes:
            _log.warning("cut %d damaged bytes off %s", cut_bytes, segment.path)
            self._cut_off.append(segment)
            return False
        if number + 1 == len(self._segments):
            return True
        end_offset = max(self._producers.end_offset, segment.base_offset)
        start_offset = self._segments[number + 1].base_offset
        terms = self._terms
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
        def on_batch(position: int, header: BatchHeader) -> None:
            marker = apply_stored(producers, segment, position, header)
            if marker is not None:
                replay_marker(producers, segment, header, header.base_offset, marker)
            self._note_epoch(header)
            self._last_epoch = header.leader_epoch

        return segment.recover(
            on_batch,
            self._options.index_interval_bytes,
            leader_epoch,
            rewrite=self._terms.may_have_lost,
        )

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

    def _read_epochs(self) -> bool:
        """True when the file is there but cannot be read."""
        path = self._folder / LEADER_EPOCHS_FILE
        try:
            self._epochs = self._stored_epochs = read_epochs(self._files, path)
        except DamagedFileError as error:
            _log.warning("%s is rebuilt: %s", path, error)
            return True
        return False

    def _rebuild_epochs(self) -> None:
        self._epochs = EpochCache()
        for segment in self._segments:
            for _, header in walk_batches(segment.opened(), 0, segment.size_bytes):
                self._note_epoch(header)

    def _complete_epochs(self, log_start_offset: int) -> None:
        """Records whose deletion was not written down are there again: their epochs, too."""
        known = self._epochs.entries
        if self._terms.clean_shutdown or not known or known[0].start_offset <= log_start_offset:
            return
        found = EpochCache()
        for segment in self._segments:
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
        self._epochs = found

    def _note_epoch(self, header: BatchHeader) -> None:
        known = self._epochs.find_epoch_at(header.base_offset)
        if known is not None and 0 <= header.leader_epoch < known:
            # The file is older than a truncation, and what that epoch had written is gone.
            self._epochs = self._epochs.truncate_from_end(header.base_offset)
        latest_epoch = self._epochs.latest_epoch
        if header.leader_epoch > (-1 if latest_epoch is None else latest_epoch):
            self._epochs = self._epochs.assign(header.leader_epoch, header.base_offset)

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
