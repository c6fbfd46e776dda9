"""Keeps the offset checkpoints of one log directory: written when something changed, in a worker.

A shell, owned by the event loop; one checkpoint of a folder is written at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from moldau.model import Offset, TopicPartition
from moldau.storage.checkpoints import write_offsets
from moldau.storage.log_directory import LogDirectory
from moldau.storage.rules.file_names import (
    CLEANER_OFFSETS_FILE,
    HIGH_WATERMARKS_FILE,
    LOG_START_OFFSETS_FILE,
    RECOVERY_POINTS_FILE,
)

Offsets = Mapping[TopicPartition, Offset]


class CheckpointWriter:
    """The four checkpoint files of a folder."""

    def __init__(
        self,
        directory: LogDirectory,
        recovery_points: Offsets,
        log_start_offsets: Offsets,
        cleaned_offsets: Offsets,
    ) -> None:
        """The offsets are what the files hold now."""
        self._directory = directory
        self._written: dict[str, Offsets] = {
            RECOVERY_POINTS_FILE: recovery_points,
            LOG_START_OFFSETS_FILE: log_start_offsets,
            CLEANER_OFFSETS_FILE: cleaned_offsets,
        }
        self._writing = asyncio.Lock()

    def mentions(self, topic_partition: TopicPartition) -> bool:
        """Whether a file still says something about a partition."""
        return any(topic_partition in offsets for offsets in self._written.values())

    async def write_recovery_points(self, offsets: Offsets) -> None:
        await self._write(RECOVERY_POINTS_FILE, offsets)

    async def write_log_start_offsets(self, offsets: Offsets) -> None:
        await self._write(LOG_START_OFFSETS_FILE, offsets)

    async def write_cleaned_offsets(self, offsets: Offsets) -> None:
        await self._write(CLEANER_OFFSETS_FILE, offsets)

    async def write_high_watermarks(self, offsets: Offsets) -> None:
        await self._write(HIGH_WATERMARKS_FILE, offsets)

    async def _write(self, name: str, offsets: Offsets) -> None:
        async with self._writing:
            if self._directory.failure is not None or self._written.get(name, {}) == offsets:
                return
            path: Path = self._directory.folder / name
            files = self._directory.files
            try:
                await self._directory.workers.run(lambda: write_offsets(files, path, offsets))
            except OSError as error:
                raise self._directory.judge(error) from error
            self._written[name] = offsets
