"""The aborted transactions of a segment: Kafka's `.txnindex` file.

    bytes  field
        2  version               0
        8  producer id
        8  first offset          of the transaction
        8  last offset           that of its abort marker
        8  last stable offset    after the marker

There are few, so the file is read whole, and it exists only where a transaction was aborted. What
it should hold is noted elsewhere (`checkpoint_files`). A shell. One task appends and truncates;
reads may run in any thread.
"""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moldau.storage.files import File, Files

ENTRY_BYTES = 34
_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """A transaction whose records a `read_committed` reader skips."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class AbortedDigest(NamedTuple):
    """Tells an index from one that was cut short, damaged or lost."""

    entries: int
    crc: int


EMPTY_DIGEST = AbortedDigest(0, 0)


class TransactionIndex:
    """Appended by the segment's owner; read from any thread."""

    __slots__ = ("_digest", "_files", "path")

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._files = files
        self._digest: AbortedDigest | None = None  # None until somebody looks

    @property
    def digest(self) -> AbortedDigest:
        """Of what was written, or found by who looked first."""
        if self._digest is None:
            self.entries()
        return self._digest or EMPTY_DIGEST

    def open_to_append(self) -> File:
        """For who has to know before anything is changed that an entry can be appended."""
        _ = self.digest  # may have to read the file, too
        return self._files.open(self.path, create=True)

    def append(self, aborted: AbortedTransaction, opened: File | None = None) -> None:
        """With the file of `open_to_append`, no other one is opened."""
        count, crc = self.digest
        entry = _ENTRY.pack(_VERSION, *aborted)
        if opened is not None:
            opened.write_at(count * ENTRY_BYTES, entry)
        else:
            with contextlib.closing(self._files.open(self.path, create=True)) as file:
                file.write_at(count * ENTRY_BYTES, entry)
        self._digest = AbortedDigest(count + 1, zlib.crc32(entry, crc))

    def entries(self) -> list[AbortedTransaction]:
        """All of them, in the order in which they ended."""
        if self._digest == EMPTY_DIGEST:
            return []
        whole = self._read()
        if self._digest is None:
            self._digest = _digest_of(whole)
        return [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(whole)]

    def is_sound(self, base_offset: int, end_offset: int | None) -> bool:
        """Whether the entries can be those of a segment, for whom nothing else tells.

        `end_offset` is where the segment ends at the latest, if that is known. What was found is
        remembered for the checkpoint: a worker loads logs, and the loop need not read it again.
        """
        last_offset = base_offset - 1
        whole = self._read()
        self._digest = _digest_of(whole)
        for version, _, first, last, _ in _ENTRY.iter_unpack(whole):
            if version != _VERSION or not (0 <= first < last and last_offset < last):
                return False
            last_offset = last
        return end_offset is None or last_offset < end_offset

    def _read(self) -> bytes:
        try:
            data = self._files.read(self.path)
        except FileNotFoundError:
            return b""
        return data[: len(data) - len(data) % ENTRY_BYTES]

    def find_overlapping(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The transactions with a record in a range of offsets."""
        return [
            aborted
            for aborted in self.entries()
            if aborted.last_offset >= start_offset and aborted.first_offset < end_offset
        ]

    def covers(self, end_offset: int) -> bool:
        """Whether no transaction that ends in a later segment can reach below an offset."""
        return any(aborted.last_stable_offset >= end_offset for aborted in self.entries())

    def truncate_to_offset(self, offset: int) -> None:
        """Forget the transactions that ended at or after an offset."""
        entries = self.entries()
        kept = sum(1 for aborted in entries if aborted.last_offset < offset)
        if kept < len(entries):
            with contextlib.closing(self._files.open(self.path)) as file:
                file.truncate(kept * ENTRY_BYTES)
            self._digest = _digest_of(self._read())

    def assume_absent(self) -> None:
        """Who lists the folder knows without a look that there is no file."""
        self._digest = EMPTY_DIGEST

    def start_empty(self) -> None:
        self._files.remove(self.path)
        self._digest = EMPTY_DIGEST

    def sync(self) -> None:
        """Make the file, if there is one, survive a power loss. Blocks; any thread."""
        if self._digest == EMPTY_DIGEST:
            return
        with contextlib.suppress(FileNotFoundError):
            file = self._files.open(self.path)
            with contextlib.closing(file):
                file.sync()


def _digest_of(entries: bytes) -> AbortedDigest:
    return AbortedDigest(len(entries) // ENTRY_BYTES, zlib.crc32(entries))
