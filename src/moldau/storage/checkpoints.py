"""What the checkpoints say of the logs: read from the logs, written when it has changed.

Each log directory has files (`checkpoint_files`) with recovery points, log start offsets, how far
compaction has been, high watermarks, and what is in the indexes of aborted transactions. A
truncation has to be known to them before it begins and after it has ended (LOG-9). The entries of
a log whose folder is gone stay in the files until the log is made again: only they tell that there
was one (LOG-14).

A shell, owned by the event loop. One file of a folder is written at a time, and a task that writes
several has read the logs in its turn: what the disk was too slow for must not come late, into the
files of another topic's log.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeAlias

from moldau.model import Offset, TopicPartition
from moldau.storage.checkpoint_files import (
    AbortedBySegment,
    CheckpointedOffsets,
    OffsetsByPartition,
    encode_aborted,
    encode_offsets,
    write_log_start,
)
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.rules.file_names import (
    ABORTED_TRANSACTIONS_FILE,
    CLEANER_OFFSETS_FILE,
    DROPPED_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    RECOVERY_POINTS_FILE,
    name_when_deleted,
)
from moldau.tasks import finish_first

_SHORTEST_CUT_NAME: Final = 200
"""Shorter names of topics are whole in the name of a folder."""

_ByPartition: TypeAlias = OffsetsByPartition | Mapping[TopicPartition, AbortedBySegment]


class Checkpoints:
    """The checkpoints of all log directories of a broker."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        """`logs` are those in service; the mapping changes as they come and go."""
        self._logs = logs
        self._files: dict[LogDirectory, _CheckpointFiles] = {}
        self._known_high_watermarks: dict[TopicPartition, Offset] = {}  # while nobody serves them
        self.missed: set[TopicPartition] = set()  # had records, and their folders are gone
        # Until somebody serves the logs nobody knows more than the checkpoint: a broker that does
        # not come up must not take the ends of its logs for committed.
        self.high_watermarks: Callable[[], OffsetsByPartition] = dict

    def add(self, directory: LogDirectory, offsets: CheckpointedOffsets) -> None:
        """Keep the checkpoints of a directory, which say this now."""
        self._files[directory] = _CheckpointFiles(directory, offsets)

    def note_high_watermarks(
        self, offsets: CheckpointedOffsets, partitions: Iterable[TopicPartition]
    ) -> None:
        """Take over what a directory knows of the logs that are in it: it may still speak of others
        that have moved to another one."""
        found = offsets.high_watermarks
        self._known_high_watermarks |= {key: found[key] for key in partitions if key in found}

    # Logs whose folders are gone

    def keep_missed(self, directory: LogDirectory, missed: Iterable[TopicPartition]) -> None:
        """Go on to say what the files of a directory say of these."""
        for key in missed:
            self.missed.add(key)
            self._files[directory].keep_missed(key)

    def forget_missed(self, topic_partition: TopicPartition) -> None:
        """It is there, or is made again, or nobody wants it any more."""
        if topic_partition in self.missed:
            self.missed.discard(topic_partition)
            for files in self._files.values():
                files.drop_missed(topic_partition)

    # High watermarks of logs that nobody serves

    def note_high_watermark(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """What was committed of a log that nobody serves just now, for when somebody does."""
        self._known_high_watermarks[topic_partition] = offset

    def take_high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """What was committed when it was last written down or noted, 0 when nothing is known.

        Asked for once: a partition that is made again has no past.
        """
        return self._known_high_watermarks.pop(topic_partition, Offset(0))

    def find_high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """What is committed of a log, as far as it is known; 0 when nothing is."""
        known = self._known_high_watermarks.get(topic_partition, Offset(0))
        return self.high_watermarks().get(topic_partition, known)

    # Writing

    @contextlib.asynccontextmanager
    async def hold_writes(self, directory: LogDirectory) -> AsyncIterator[None]:
        """Write no file of a directory inside: each says what it did before."""
        async with self._files[directory].writing:
            yield

    async def forget(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Return when no file of a directory speaks of a partition whose log was deleted, or is
        gone, nor is about to."""
        self.forget_missed(topic_partition)
        files = self._files[directory]
        if files.mentions(topic_partition) or files.turn.locked():
            await self.write(directory)
            await self.write_high_watermarks()

    async def forget_deleted(self, name: TopicPartition, directory: LogDirectory) -> None:
        """As `forget`, before the folder of a deleted log goes, which has this name: what speaks of
        it then would be taken for a log that is gone though nobody asked for it (LOG-14)."""
        files = self._files.get(directory)
        known = () if files is None else files.find_deleted(name)
        if any(key not in self._logs and key not in self.missed for key in known):
            await self.write(directory)
            await self.write_high_watermarks()

    async def write(self, directory: LogDirectory) -> None:
        """Write down recovery points, log start offsets and how far compaction has been.

        Only where they have changed. Compaction stays below the recovery point, and so it does in
        the files, at every moment: all is read at once, and recovery points are written first.
        Before them comes what the indexes hold: nobody looks at batches below a recovery point.
        """
        files = self._files[directory]
        async with files.turn:
            await self._write(directory, files)

    async def _write(self, directory: LogDirectory, files: _CheckpointFiles) -> None:
        logs = self._logs_in(directory)
        recovery_points = {log.topic_partition: log.recovery_point for log in logs}
        log_start_offsets = {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }
        cleaned_offsets = {
            log.topic_partition: log.cleaned_offset for log in logs if log.cleaned_offset
        }
        dropped_offsets = {
            log.topic_partition: log.dropped_offset for log in logs if log.dropped_offset
        }
        aborted = {log.topic_partition: found for log in logs if (found := log.digest_aborted())}
        await files.write(ABORTED_TRANSACTIONS_FILE, aborted, lambda: encode_aborted(aborted))
        await files.write_offsets(RECOVERY_POINTS_FILE, recovery_points)
        await files.write_starts(
            log_start_offsets, {log.topic_partition: log.folder for log in logs}
        )
        await files.write_offsets(CLEANER_OFFSETS_FILE, cleaned_offsets)
        await files.write_offsets(DROPPED_OFFSETS_FILE, dropped_offsets)

    async def write_all(self) -> None:
        for directory in self._online():
            await self.write(directory)

    async def write_high_watermarks(self, offsets: OffsetsByPartition | None = None) -> None:
        """Write down what is committed, where it has changed."""
        for directory in self._online():
            files = self._files[directory]
            async with files.turn:
                present = self.high_watermarks() if offsets is None else offsets
                known = {**self._known_high_watermarks, **present}
                here = {
                    log.topic_partition: known[log.topic_partition]
                    for log in self._logs_in(directory)
                    if log.topic_partition in known
                }
                await files.write_offsets(HIGH_WATERMARKS_FILE, here)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._files if directory.failure is None]

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for log in self._logs.values() if log.directory is directory]

    # Truncations

    async def prepare_truncation(self, log: Log, offset: int) -> None:
        """Return when no checkpoint vouches for what a truncation to an offset takes away.

        A power loss in the middle of it may leave some of that behind a hole, and the next start
        has to look for it (LOG-9). What the truncation cuts is the log's own then (BRA-1).
        """
        if offset < log.log_end_offset:
            await log.unshare_before_truncation(offset)
            log.flushing.announce_truncation(offset)
            await self.write(log.directory)

    async def complete_truncation(self, log: Log) -> None:
        """Return when a truncation would survive a power loss, and the checkpoints know of it.

        Nothing is appended before (LOG-9).
        """
        flushing = log.flushing
        if flushing.has_pending_truncation:
            await flushing.flush_truncation()
            await self.write(log.directory)
            flushing.has_pending_truncation = False


class _CheckpointFiles:
    """The files of a folder."""

    def __init__(self, directory: LogDirectory, offsets: CheckpointedOffsets) -> None:
        self._directory = directory
        self._found = offsets
        self._kept: dict[str, dict[TopicPartition, Offset]] = {}  # of logs that are missed
        self._written: dict[str, _ByPartition] = {
            RECOVERY_POINTS_FILE: offsets.recovery_points,
            LOG_START_OFFSETS_FILE: offsets.log_start_offsets,
            CLEANER_OFFSETS_FILE: offsets.cleaned_offsets,
            DROPPED_OFFSETS_FILE: offsets.dropped_offsets,
            HIGH_WATERMARKS_FILE: offsets.high_watermarks,
        }
        self._unsure: set[str] = set()  # what is in these files is not known: a write has failed
        self.turn = asyncio.Lock()  # held while somebody writes what he has read of the logs
        self.writing = asyncio.Lock()  # held while a file is written

    def mentions(self, topic_partition: TopicPartition) -> bool:
        """Whether a file still says something about a partition, or may do so."""
        is_in = any(topic_partition in offsets for offsets in self._written.values())
        return is_in or bool(self._unsure)

    def find_deleted(self, name: TopicPartition) -> Iterable[TopicPartition]:
        """Who of those that a file speaks of has a folder of this name once it is deleted."""
        if self.mentions(name):
            return (name,)
        if len(name.topic) < _SHORTEST_CUT_NAME:
            return ()
        known = {key for offsets in self._written.values() for key in offsets}
        return [key for key in known if name_when_deleted(key) == name]

    def keep_missed(self, topic_partition: TopicPartition) -> None:
        found = self._found
        for name, offsets in (
            (RECOVERY_POINTS_FILE, found.recovery_points),
            (LOG_START_OFFSETS_FILE, found.log_start_offsets),
            (CLEANER_OFFSETS_FILE, found.cleaned_offsets),
            (HIGH_WATERMARKS_FILE, found.high_watermarks),
        ):
            if topic_partition in offsets:
                self._kept.setdefault(name, {})[topic_partition] = offsets[topic_partition]

    def drop_missed(self, topic_partition: TopicPartition) -> None:
        for offsets in self._kept.values():
            offsets.pop(topic_partition, None)

    async def write_offsets(
        self, name: str, offsets: OffsetsByPartition, before: Callable[[], None] | None = None
    ) -> None:
        kept = self._kept.get(name)
        if kept:
            offsets = {**kept, **offsets}
        await self.write(name, offsets, lambda: encode_offsets(offsets), before)

    async def write_starts(
        self, offsets: OffsetsByPartition, folders: Mapping[TopicPartition, Path]
    ) -> None:
        """As `write_offsets`. The folders of the logs say it too, in case that file is lost."""
        name, files = LOG_START_OFFSETS_FILE, self._directory.files

        def write_changed() -> None:
            former = self._written[name]
            for key, folder in folders.items():
                if offsets.get(key) != former.get(key):
                    with contextlib.suppress(FileNotFoundError):  # deleted or moved meanwhile
                        write_log_start(files, folder, offsets.get(key))

        await self.write_offsets(name, offsets, before=write_changed)

    async def write(
        self,
        name: str,
        values: _ByPartition,
        encode: Callable[[], bytes],
        before: Callable[[], None] | None = None,
    ) -> None:
        """Unless it says so already; `before` is called in the worker then."""
        directory = self._directory
        path = directory.folder / name

        def replace() -> None:
            if before is not None:
                before()
            directory.files.replace(path, encode())

        async def write_file() -> None:
            self._unsure.add(name)
            await directory.workers.run(replace)
            self._unsure.discard(name)
            self._written[name] = values

        async with self.writing:
            is_told = self._written.get(name, {}) == values and name not in self._unsure
            if directory.failure is not None or is_told:
                return
            try:
                # Who is cancelled waits: two that write the same file would spoil it.
                await finish_first(write_file())
            except OSError as error:
                raise directory.judge(error) from error
