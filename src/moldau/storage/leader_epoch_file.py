"""`leader-epoch-checkpoint`: where each leader epoch begins in a partition's log.

`epoch start-offset` on each line, ascending. An absent file is an empty one; for a damaged one
`DamagedFileError` is raised, and the log rebuilds its epochs from its batches. What the entries
mean is decided in `rules.epoch_cache`. A codec and a tiny shell.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from moldau.errors import DamagedFileError
from moldau.storage.files import Files
from moldau.storage.rules.checkpoint_format import decode_lines, encode_lines
from moldau.storage.rules.epoch_cache import EpochCache, EpochStart

_MAX_EPOCH = (1 << 31) - 1
_MAX_OFFSET = (1 << 63) - 1


class LeaderEpochs:
    """The epochs of one log, and what its file says of them."""

    __slots__ = ("cache", "stored")

    def __init__(self, cache: EpochCache, stored: EpochCache) -> None:
        self.cache = cache
        self.stored = stored

    def to_store(self, end_offset: int) -> EpochCache | None:
        """What the file of a log that ends there should say; None when it does.

        An epoch in which nothing was written yet begins anew with its leader.
        """
        epochs = self.cache.truncate_from_end(end_offset)
        return None if epochs == self.stored else epochs


def encode_epochs(entries: Sequence[EpochStart]) -> bytes:
    return encode_lines([f"{entry.epoch} {entry.start_offset}" for entry in entries])


def decode_epochs(data: bytes) -> EpochCache:
    """Entries that contradict later ones give way to them, as when they are assigned."""
    cache = EpochCache()
    for line in decode_lines(data):
        entry = _decode_line(line)
        cache = cache.assign(entry.epoch, entry.start_offset)
    return cache


def write_epochs(files: Files, path: Path, cache: EpochCache) -> None:
    """Blocks until it is on disk: call it in a worker."""
    files.replace(path, encode_epochs(cache.entries))


def read_epochs(files: Files, path: Path) -> EpochCache:
    return decode_epochs(files.read(path)) if files.exists(path) else EpochCache()


def _decode_line(line: str) -> EpochStart:
    try:
        epoch, start_offset = map(int, line.split())
    except ValueError as error:
        raise DamagedFileError(f"a leader epoch file has the line {line!r}") from error
    if not (0 <= epoch <= _MAX_EPOCH and 0 <= start_offset <= _MAX_OFFSET):
        raise DamagedFileError(f"a leader epoch file has the line {line!r}")
    return EpochStart(epoch, start_offset)
