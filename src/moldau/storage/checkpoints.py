"""What the checkpoints say of the logs: read from the logs, written when it has changed.

Each log directory has four files (`checkpoint_files`): recovery points, log start offsets, how far
compaction has been, and high watermarks. A truncation has to be known to them before it begins and
after it has ended (LOG-9). A shell, owned by the event loop; one file of a folder is written at a
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from moldau.model import Offset, TopicPartition
from moldau.storage.checkpoint_files import CheckpointedOffsets, OffsetsByPartition, write_offsets
from moldau.storage.log import Log
from moldau.storage.log_directory import LogDirectory
from moldau.storage.rules.file_names import (
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    RECOVERY_POINTS_FILE,
)


class Checkpoints:
    """The checkpoints of all log directories of a broker."""

    def __init__(self, logs: Mapping[TopicPartition, Log]) -> None:
        """`logs` are those in service; the mapping changes as they come and go."""
        self._logs = logs
        self._files: dict[LogDirectory, _CheckpointFiles] = {}
        self._known_high_watermarks: dict[TopicPartition, Offset] = {}  # while nobody serves them
        # Until somebody serves the logs nobody knows more than the checkpoint: a broker that does
        # not come up must not take the ends of its logs for committed.
        self.high_watermarks: Callable[[], OffsetsByPartition] = dict

    def add(self, directory: LogDirectory, offsets: CheckpointedOffsets) -> None:
        """Keep the checkpoints of a directory, which say this now."""
        self._files[directory] = _CheckpointFiles(directory, offsets)
        self._known_high_watermarks.update(offsets.high_watermarks)

    # High watermarks of logs that nobody serves

    def note_high_watermark(self, topic_partition: TopicPartition, offset: Offset) -> None:
        """What was committed of a log that nobody serves just now, for when somebody does."""
        self._known_high_watermarks[topic_partition] = offset

    def take_high_watermark(self, topic_partition: TopicPartition) -> Offset:
        """What was committed when it was last written down or noted, 0 when nothing is known.

        Asked for once: a partition that is made again has no past.
        """
        return self._known_high_watermarks.pop(topic_partition, Offset(0))

    # Writing

    async def forget(self, topic_partition: TopicPartition, directory: LogDirectory) -> None:
        """Return when no file of a directory speaks of a partition whose log was deleted."""
        if self._files[directory].mentions(topic_partition):
            await self.write(directory)

    async def write(self, directory: LogDirectory) -> None:
        """Write down recovery points, log start offsets and how far compaction has been.

        Only where they have changed. Compaction stays below the recovery point, and so it does in
        the files, at every moment: all is read at once, and recovery points are written first.
        """
        logs = self._logs_in(directory)
        files = self._files[directory]
        recovery_points = {log.topic_partition: log.recovery_point for log in logs}
        log_start_offsets = {
            log.topic_partition: log.log_start_offset
            for log in logs
            if log.log_start_offset > log.segments[0].base_offset
        }
        cleaned_offsets = {
            log.topic_partition: log.cleaned_offset for log in logs if log.cleaned_offset
        }
        await files.write(RECOVERY_POINTS_FILE, recovery_points)
        await files.write(LOG_START_OFFSETS_FILE, log_start_offsets)
        await files.write(CLEANER_OFFSETS_FILE, cleaned_offsets)

    async def write_all(self) -> None:
        for directory in self._online():
            await self.write(directory)

    async def write_high_watermarks(self, offsets: OffsetsByPartition | None = None) -> None:
        """Write down what is committed, where it has changed."""
        if offsets is None:
            offsets = self.high_watermarks()
        for directory in self._online():
            known = {**self._known_high_watermarks, **offsets}
            here = {
                log.topic_partition: known[log.topic_partition]
                for log in self._logs_in(directory)
                if log.topic_partition in known
            }
            await self._files[directory].write(HIGH_WATERMARKS_FILE, here)

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._files if directory.failure is None]

    def _logs_in(self, directory: LogDirectory) -> list[Log]:
        return [log for log in self._logs.values() if log.directory is directory]

    # Truncations

    async def prepare_truncation(self, log: Log, offset: int) -> None:
        """Return when no checkpoint vouches for what a truncation to an offset takes away.

        A power loss in the middle of it may leave some of that behind a hole, and the next start
        has to look for it (LOG-9).
        """
        if offset < log.log_end_offset:
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
    """The four files of a folder."""

    def __init__(self, directory: LogDirectory, offsets: CheckpointedOffsets) -> None:
        self._directory = directory
        self._written: dict[str, OffsetsByPartition] = {
            RECOVERY_POINTS_FILE: offsets.recovery_points,
            LOG_START_OFFSETS_FILE: offsets.log_start_offsets,
            CLEANER_OFFSETS_FILE: offsets.cleaned_offsets,
        }
        self._writing = asyncio.Lock()

    def mentions(self, topic_partition: TopicPartition) -> bool:
        """Whether a file still says something about a partition."""
        return any(topic_partition in offsets for offsets in self._written.values())

    async def write(self, name: str, offsets: OffsetsByPartition) -> None:
        directory = self._directory
        async with self._writing:
            if directory.failure is not None or self._written.get(name, {}) == offsets:
                return
            path = directory.folder / name
            try:
                await directory.workers.run(lambda: write_offsets(directory.files, path, offsets))
            except OSError as error:
                raise directory.judge(error) from error
            self._written[name] = offsets
