"""The leader epochs of a log that is being opened: those of its file, and those of its batches.

The file may be gone, damaged, or older than a truncation; each batch bears the epoch under which it
was written. So what batches say that are read anyway is noted as they come, and where the file is
of no use all of them are asked.

A shell. It blocks: run it in a worker.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.records.batch_header import BatchHeader
from moldau.storage.batch_scan import walk_batches
from moldau.storage.files import Files
from moldau.storage.leader_epoch_file import read_epochs
from moldau.storage.rules.epoch_cache import EpochCache
from moldau.storage.segment import Segment

_log = logging.getLogger("moldau.storage.recovery")


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
