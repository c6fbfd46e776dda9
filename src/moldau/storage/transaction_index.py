"""The aborted transactions of a segment: Kafka's `.txnindex` file.

    bytes  field
        2  version               0
        8  producer id
        8  first offset          of the transaction
        8  last offset           that of its abort marker
        8  last stable offset    after the marker

There are few, so the file is read whole, and it exists only where a transaction was aborted. A
shell. One task appends and truncates; reads may run in any thread.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moldau.storage.files import Files

ENTRY_BYTES = 34
_ENTRY = Struct(">hqqqq")
_VERSION = 0


class AbortedTransaction(NamedTuple):
    """A transaction whose records a `read_committed` reader skips."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """Appended by the segment's owner; read from any thread."""

    __slots__ = ("_count", "_files", "path")

    def __init__(self, files: Files, path: Path) -> None:
        self.path = path
        self._files = files
        self._count: int | None = None  # None until somebody looks

    def append(self, aborted: AbortedTransaction) -> None:
        count = len(self.entries()) if self._count is None else self._count
        with contextlib.closing(self._files.open(self.path, create=True)) as file:
            file.write_at(count * ENTRY_BYTES, _ENTRY.pack(_VERSION, *aborted))
        self._count = count + 1

    def entries(self) -> list[AbortedTransaction]:
        """All of them, in the order in which they ended."""
        if self._count == 0:
            return []
        try:
            data = self._files.read(self.path)
        except FileNotFoundError:
            data = b""
        whole = data[: len(data) - len(data) % ENTRY_BYTES]
        found = [AbortedTransaction(*fields[1:]) for fields in _ENTRY.iter_unpack(whole)]
        if self._count is None:
            self._count = len(found)
        return found

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
            self._count = kept

    def start_empty(self) -> None:
        self._files.remove(self.path)
        self._count = 0

    def sync(self) -> None:
        """Make the file, if there is one, survive a power loss. Blocks; any thread."""
        if self._count == 0:
            return
        with contextlib.suppress(FileNotFoundError):
            file = self._files.open(self.path)
            with contextlib.closing(file):
                file.sync()
