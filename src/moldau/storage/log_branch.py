"""A log made of another one's files: what a replica of a branched topic begins with.

A branch ends at an offset up to which all is committed and every transaction has ended. Closed
segments before it get a second name instead of a copy; of the segment that holds it the batches
before it are copied; and what is written to the branch goes into a new segment, so that no shared
one is appended to. The branch knows no producers: whoever writes to it has never written to it
before. Its folder is made under a name that a start of the broker clears away, and gets its own
when all in it is durable, with a note of what the checkpoints do not know yet. A crash leaves
nothing, or a whole log.

While the files are linked, retention and compaction of the original go on. They count what they
disturb, and then it is done again, up to the end that the original has by then: compaction removes
a record for the sake of a later one, which must not be left out.

A shell, owned by the event loop; what links and copies runs in a worker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import StorageError
from moldau.model import Offset, TopicId, TopicPartition
from moldau.storage.checkpoint_files import (
    CompactionOffsets,
    LogNote,
    drop_note,
    write_compaction_offsets,
    write_epochs,
    write_note,
    write_partition_metadata,
)
from moldau.storage.checkpoints import Checkpoints
from moldau.storage.files import NO_ROOM, copy_file, link_or_copy
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.log_loader import LoadTerms, load_log
from moldau.storage.log_table import LogTable, clear_folder
from moldau.storage.producer_snapshots import ProducerSnapshots
from moldau.storage.rules.epoch_cache import EpochCache
from moldau.storage.rules.file_names import (
    LEADER_EPOCHS_FILE,
    PARTITION_METADATA_FILE,
    PRODUCER_SNAPSHOT_SUFFIX,
    deleted_folder_name,
    partition_folder_name,
    segment_file_name,
)
from moldau.storage.segment import Segment

_TRIES = 20
"""Retention or compaction may come in between."""


class LogBranches:
    """Makes branches of the logs in a store."""

    def __init__(
        self,
        table: LogTable,
        checkpoints: Checkpoints,
        options: Callable[[], BrokerOptions],
        unique_id: Callable[[], str],
    ) -> None:
        self._table = table
        self._checkpoints = checkpoints
        self._options = options
        self._unique_id = unique_id

    async def create_branch(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        options: TopicOptions,
        source: Log,
        find_end: Callable[[], int],
    ) -> Log:
        """Make a log of what is in another one up to an offset, in the directory of that one.

        The two share files. `find_end` says where it ends, and is asked again for every try. A
        disk that is full costs the branch, and not the directory.
        """
        directory = source.directory
        branch = partial(self._branch, topic_partition, topic_id, options, source)
        with self._table.making(topic_partition):
            try:
                await self._checkpoints.forget(topic_partition, directory)
                log, note = await _try_often(source, find_end, branch)
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise StorageError(
                        f"no room for a branch in {directory.folder}: {error}"
                    ) from error
                raise directory.judge(error) from error
        self._checkpoints.note_high_watermark(topic_partition, Offset(note.high_watermark))
        self._table.add(log)
        await self._checkpoints.write(log.directory)
        await self._checkpoints.write_high_watermarks()
        await drop_note(log.directory, log.folder)
        return log

    def _branch(
        self,
        topic_partition: TopicPartition,
        topic_id: TopicId | None,
        options: TopicOptions,
        source: Log,
        stable_offset: int,
        disturbances: int,
    ) -> tuple[Log, LogNote] | None:
        name = deleted_folder_name(topic_partition, self._unique_id())
        built = _build_branch(source, name, topic_id, stable_offset, disturbances)
        if built is None:
            return None
        directory, made, note = built
        folder = directory.folder / partition_folder_name(topic_partition)
        clear_folder(directory.files, folder, topic_partition, self._unique_id)
        directory.files.rename(made, folder)
        directory.files.sync_folder(directory.folder)
        terms = LoadTerms(
            clean_shutdown=True,
            recovery_point=note.log_end_offset,
            log_start_offset=note.log_start_offset,
            producer_expiration_ms=self._options().producer_id_expiration_ms,
            cleaned_offset=note.cleaned_offset,
        )
        return load_log(directory, folder, topic_partition, options, terms), note


async def _try_often(
    source: Log,
    find_end: Callable[[], int],
    branch: Callable[[int, int], tuple[Log, LogNote] | None],
) -> tuple[Log, LogNote]:
    for _ in range(_TRIES):
        disturbances = source.disturbances  # first: what is compacted later is too late
        end_offset = find_end()
        await source.flush()
        made = await source.directory.workers.run(partial(branch, end_offset, disturbances))
        if made is not None:
            return made
    raise StorageError(f"{source.topic_partition} changed {_TRIES} times while it was branched")


def _build_branch(
    source: Log, name: str, topic_id: TopicId | None, stable_offset: int, disturbances: int
) -> tuple[LogDirectory, Path, LogNote] | None:
    """Make a folder with what is in a log up to an offset; all of it was flushed (BRA-3).

    Returns the directory of the log, which may move; the folder of this name in it; and what the
    note in that says. None when the log was disturbed since `disturbances` was read, which was
    before the offset was. Raises `OSError`, or `StorageError` when the log is closed.
    """
    source.require_usable()
    directory, segments, epochs = source.directory, source.segments, source.epochs
    bases = [segment.base_offset for segment in segments]
    plan = plan_branch(bases, source.log_start_offset, source.log_end_offset, stable_offset)
    cleaned_offset = min(source.cleaned_offset, plan.end_offset)
    branch = _Branch(source, directory, directory.folder / name, topic_id)
    try:
        note = branch.fill(segments, plan, epochs, cleaned_offset)
    except FileNotFoundError:  # retention or compaction was faster
        branch.remove()
        return None
    except OSError:
        branch.remove()
        raise
    is_even = disturbances % 2 == 0
    is_same = source.segments[: len(segments) - 1] == segments[:-1]
    if is_even and is_same and source.disturbances == disturbances:
        return directory, branch.folder, note
    branch.remove()
    return None


class _Branch:
    """One try."""

    def __init__(
        self, source: Log, directory: LogDirectory, folder: Path, topic_id: TopicId | None
    ) -> None:
        self.folder = folder
        self._source = source
        self._topic_id = topic_id
        self._open_files = directory.open_files
        self._files = directory.files
        self._now_ms = directory.clock.now_ms()

    def fill(
        self,
        segments: tuple[Segment, ...],
        plan: BranchPlan,
        epochs: EpochCache,
        cleaned_offset: int,
    ) -> LogNote:
        files, folder = self._files, self.folder
        files.make_folder(folder)
        for number in plan.shared:
            self._share(segments[number])
        if plan.copied is not None:
            self._copy(segments[plan.copied], plan.end_offset)
        last = Segment.create(self._open_files, folder, plan.end_offset, self._now_ms)
        last.sync()
        last.let_go()
        self._forget_producers(plan.end_offset)
        kept = epochs.truncate_from_end(plan.end_offset).truncate_from_start(plan.start_offset)
        write_epochs(files, folder / LEADER_EPOCHS_FILE, kept)
        if self._topic_id is not None:
            path = folder / PARTITION_METADATA_FILE
            write_partition_metadata(files, path, self._topic_id)
        note = LogNote(
            log_start_offset=plan.start_offset,
            log_end_offset=plan.end_offset,
            cleaned_offset=cleaned_offset,
            high_watermark=plan.end_offset,
        )
        write_note(files, folder, note)
        compacted = CompactionOffsets(
            *(min(offset, plan.end_offset) for offset in self._source.compaction_offsets)
        )
        if any(compacted):
            write_compaction_offsets(files, folder, compacted)
        files.sync_folder(folder)
        return note

    def _forget_producers(self, end_offset: int) -> None:
        """An empty table; unlike others it must not be rebuilt from the batches before it."""
        ProducerSnapshots(self._files, self.folder).write(end_offset, ())
        path = self.folder / segment_file_name(end_offset, PRODUCER_SNAPSHOT_SUFFIX)
        with contextlib.closing(self._files.open(path)) as file:
            file.sync()

    def _share(self, segment: Segment) -> None:
        for path in (segment.path, segment.offset_index.path, segment.time_index.path):
            link_or_copy(self._files, path, self.folder / path.name)
        with contextlib.suppress(FileNotFoundError):  # most have no aborted transactions
            path = segment.transaction_index.path
            link_or_copy(self._files, path, self.folder / path.name)

    def _copy(self, segment: Segment, end_offset: int) -> None:
        """The batches before an offset; the indexes are made anew."""
        found = segment.find_batch(end_offset)
        size_bytes = segment.size_bytes if found is None else found.position
        copy_file(self._files, segment.path, self.folder / segment.path.name, size_bytes)
        copy = Segment(
            self._open_files,
            self.folder,
            segment.base_offset,
            size_bytes=size_bytes,
            created_ms=self._now_ms,
        )
        copy.recover(lambda position, header: None, self._source.options.index_interval_bytes)
        for aborted in segment.transaction_index.entries():
            if aborted.last_offset < end_offset:
                copy.transaction_index.append(aborted)
        copy.sync()
        copy.let_go()
        if copy.size_bytes != size_bytes:
            raise FileNotFoundError(f"{segment.path} was cut while it was copied")

    def remove(self) -> None:
        with contextlib.suppress(OSError):  # the next start does it
            self._files.remove_folder(self.folder)


class BranchPlan(NamedTuple):
    """Numbers of segments, and where the branch begins and ends."""

    shared: range
    copied: int | None
    """The one of which a part is copied."""
    start_offset: int
    end_offset: int


def plan_branch(
    base_offsets: Sequence[int], start_offset: int, end_offset: int, stable_offset: int
) -> BranchPlan:
    """Segments by their base offsets, ascending; the log has them up to `end_offset`.

    What is before its start is left out; `stable_offset` is where the branch ends.
    """
    end = max(start_offset, min(stable_offset, end_offset))
    ends = (*base_offsets[1:], end_offset)
    last = len(base_offsets) - 1
    first = sum(1 for each in ends[:last] if each <= start_offset)
    # The last segment is appended to, even where all of it is before the end.
    whole = max(first, sum(1 for each in ends[:last] if each <= end))
    is_cut = base_offsets[whole] < end and start_offset < end
    return BranchPlan(range(first, whole), whole if is_cut else None, start_offset, end)


def stable_end(epochs: EpochCache, newest_epoch: int, end_offset: int, stable_offset: int) -> int:
    """Where a branch may end that has nothing of an epoch later than `newest_epoch` (BRA-2)."""
    if epochs.latest_epoch is None or epochs.latest_epoch <= newest_epoch:
        return stable_offset
    return min(stable_offset, epochs.end_offset_for(newest_epoch, end_offset).end_offset)
