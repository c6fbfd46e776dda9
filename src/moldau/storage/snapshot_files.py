"""The producer snapshots in a partition's folder: which there are, the best one, the useless ones.

A snapshot spares reading the log again. It is written without waiting for the disk, since its CRC
tells whether it arrived: a damaged one is passed over, and the log is read from an older one on.

A shell. `write` may run in a worker; the rest belongs to the log's owner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.storage.files import Files
from moldau.storage.producer_snapshots import encode_snapshot, read_snapshot
from moldau.storage.rules.file_names import PRODUCER_SNAPSHOT_SUFFIX, segment_file_name
from moldau.storage.rules.producer_sequences import ProducerEntry
from moldau.storage.rules.recovery_plan import plan_snapshot_removals, usable_snapshots


class SnapshotFiles:
    """The snapshots of one log."""

    def __init__(self, files: Files, folder: Path, offsets: Iterable[int] = ()) -> None:
        self.offsets = tuple(sorted(offsets))
        self._files = files
        self._folder = folder

    def follow_folder(self, folder: Path) -> None:
        """The folder of the log was renamed."""
        self._folder = folder

    @property
    def latest(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def add(self, offset: int) -> None:
        """Take note of a snapshot that is about to be written."""
        self.offsets = tuple(sorted({*self.offsets, offset}))

    def write(self, offset: int, entries: Collection[ProducerEntry]) -> None:
        data = encode_snapshot(entries)
        with contextlib.closing(self._files.open(self._path(offset), create=True)) as file:
            file.truncate(0)
            file.write_at(0, data)

    def read_best(
        self, log_start_offset: int, end_offset: int
    ) -> tuple[int, list[ProducerEntry]] | None:
        """The newest sound snapshot not after an offset; damaged ones are removed."""
        for offset in usable_snapshots(self.offsets, log_start_offset, end_offset):
            try:
                return offset, read_snapshot(self._files, self._path(offset))
            except (DamagedFileError, FileNotFoundError):
                self.remove([offset])
        return None

    def remove(self, offsets: Collection[int]) -> None:
        for offset in offsets:
            if offset in self.offsets:
                self._files.remove(self._path(offset))
        self.offsets = tuple(offset for offset in self.offsets if offset not in offsets)

    def remove_strays(self, segment_starts: Collection[int]) -> None:
        """Keep those at which a segment begins, and the last one."""
        self.remove(plan_snapshot_removals(self.offsets, tuple(segment_starts)))

    def _path(self, offset: int) -> Path:
        return self._folder / segment_file_name(offset, PRODUCER_SNAPSHOT_SUFFIX)
