"""The sparse index from offsets to positions in a segment: Kafka's `.index` file.

An entry is eight bytes: the last offset of a batch, less the segment's base offset, and the
position at which that batch begins. Kafka maps the file into memory at its full size; a file cut
to its entries is as valid to it, and a preallocated one is read here up to its zeros.

A shell over `EntryFile`, in which offsets and positions grow (IDX-1); which batches get an entry
is the segment's decision, and nothing is in here that is not in its file (IDX-3).
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moldau.records.batch_header import CURRENT_MAGIC, BatchHeader
from moldau.storage.entry_file import EntryFile
from moldau.storage.files import Files

ENTRY_BYTES = 8
_ENTRY = Struct(">II")
_FIELDS = ((Struct(">I"), 0), (Struct(">I"), 4))
_OFFSET, _POSITION = 0, 1


class IndexedBatch(NamedTuple):
    """What an entry says."""

    last_offset: int
    position: int

    def is_of(self, header: BatchHeader) -> bool:
        """Whether the batch at the position bears the entry out (IDX-4).

        Kafka names several batches that came together by the last offset of all of them.
        """
        return header.magic == CURRENT_MAGIC and 0 <= header.base_offset <= self.last_offset


class OffsetIndex(EntryFile):
    """Appended by the segment's owner; looked up from any thread."""

    __slots__ = ("_base_offset",)

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        super().__init__(files, path, _ENTRY, _FIELDS)
        self._base_offset = base_offset

    def add(self, last_offset: int, position: int) -> None:
        self.append(_ENTRY.pack(last_offset - self._base_offset, position))

    def find_by_offset(self, offset: int) -> IndexedBatch | None:
        """The last entry at or before an offset: a scan for the offset may begin there."""
        return self._named(self.find_last_at_or_before(_OFFSET, offset - self._base_offset))

    def find_by_position(self, position: int) -> IndexedBatch | None:
        """The last indexed batch that begins at or before a position."""
        return self._named(self.find_last_at_or_before(_POSITION, position))

    def last_entry(self) -> IndexedBatch | None:
        return self._named(self.last())

    def truncate_to_offset(self, offset: int) -> None:
        """Forget the batches that end at or after an offset."""
        self.truncate(self.count_below(_OFFSET, offset - self._base_offset))

    def _named(self, entry: tuple[int, int] | None) -> IndexedBatch | None:
        if entry is None:
            return None
        return IndexedBatch(self._base_offset + entry[_OFFSET], entry[_POSITION])
