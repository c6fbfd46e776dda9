"""The sparse index from timestamps to offsets in a segment: Kafka's `.timeindex` file.

An entry is twelve bytes, a timestamp and an offset less the segment's base offset, and says: no
record before this offset is younger than this timestamp, and the batch that ends with this offset
has a record of this age. Timestamps and offsets only grow from entry to entry (IDX-2).

A shell over `EntryFile`.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moldau.storage.entry_file import EntryFile
from moldau.storage.files import Files

ENTRY_BYTES = 12
_ENTRY = Struct(">qi")
_FIELDS = ((Struct(">q"), 0), (Struct(">i"), 8))
_TIMESTAMP, _OFFSET = 0, 1


class IndexedTime(NamedTuple):
    """What an entry says."""

    timestamp_ms: int
    offset: int


class TimeIndex(EntryFile):
    """Appended by the segment's owner; looked up from any thread."""

    __slots__ = ("_base_offset", "_last_timestamp")

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        super().__init__(files, path, _ENTRY, _FIELDS)
        self._base_offset = base_offset
        self._last_timestamp: int | None = None  # of the last entry, once somebody has looked

    def maybe_add(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry unless the last one is as young."""
        last_timestamp = self._last_timestamp
        if last_timestamp is None:
            last = self.last_entry()
            last_timestamp = last.timestamp_ms if last is not None else -1
        if timestamp_ms > last_timestamp:
            self.append(_ENTRY.pack(timestamp_ms, offset - self._base_offset))
            self._last_timestamp = timestamp_ms

    def find_by_timestamp(self, timestamp_ms: int) -> IndexedTime | None:
        """The last entry not younger than a timestamp."""
        return self._named(self.find_last_at_or_before(_TIMESTAMP, timestamp_ms))

    def last_entry(self) -> IndexedTime | None:
        last = self._named(self.last())
        self._last_timestamp = last.timestamp_ms if last is not None else -1
        return last

    def start_empty(self) -> None:
        super().start_empty()
        self._last_timestamp = -1

    def assume_empty(self) -> None:
        super().assume_empty()
        self._last_timestamp = -1

    def truncate_to_offset(self, offset: int) -> None:
        """Forget the entries at or after an offset."""
        self.truncate(self.count_below(_OFFSET, offset - self._base_offset))
        self._last_timestamp = None

    def _named(self, entry: tuple[int, int] | None) -> IndexedTime | None:
        if entry is None:
            return None
        return IndexedTime(entry[_TIMESTAMP], self._base_offset + entry[_OFFSET])
