"""The two sparse indexes of a segment: Kafka's `.index` and `.timeindex` files.

The last entries wait in memory, at most 4 KiB of them, and are written out when they are many, on
flush, on roll and on close. Entries that a crash loses are rebuilt from the log, which is scanned
after a crash anyway. The file is opened only while it is needed, so that an idle partition costs
no descriptor for its indexes. Kafka maps the file into memory at its full size; a file cut to its
entries is as valid to it, and a preallocated one is read here up to its zeros.

A shell. One task appends, writes out and truncates. Searches may run in any thread at the same
time: they read one state, which is replaced as a whole, and treat an entry that a truncation has
cut off meanwhile as absent.
"""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_left
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from moldau.records.batch_header import CURRENT_MAGIC, BatchHeader
from moldau.storage.files import SCARCITY, Buffer, File, Files

PENDING_LIMIT_BYTES = 4096
_BLOCK_BYTES = 4096
"""A search reads a last block of this size at once instead of probing it entry by entry."""

_Fields = tuple[tuple[Struct, int], tuple[Struct, int]]

_inspecting = threading.Lock()  # the first look at a file may come from any thread


class _State(NamedTuple):
    written: int  # entries in the file
    pending: bytearray  # entries after those; only ever extended, never shortened
    generation: int  # grows when entries are taken away


class _Block(NamedTuple):
    """Some entries of the file, kept because whoever reads in order asks for the next ones."""

    generation: int
    start: int  # number of the first entry
    entries: bytes


_NO_BLOCK = _Block(-1, 0, b"")


class EntryFile:
    """Entries of two integers each, in which both integers never fall from one to the next."""

    __slots__ = ("_block", "_fields", "_files", "_layout", "_state", "_width", "path")

    def __init__(self, files: Files, path: Path, layout: Struct, fields: _Fields) -> None:
        """`fields` are the two integers of the layout, each with its place in an entry."""
        self.path = path
        self._files = files
        self._layout = layout
        self._width = layout.size
        self._fields = fields
        self._state: _State | None = None  # None until somebody looks
        self._block = _NO_BLOCK

    def __len__(self) -> int:
        written, pending, _ = self._state or self._inspect()
        return written + len(pending) // self._width

    def start_empty(self) -> None:
        """Begin anew: the file exists after this, and is empty.

        One that was there may be a branch's, too: that one keeps it.
        """
        with contextlib.closing(self._files.open(self.path, create=True)) as file:
            is_used = file.size() > 0
        if is_used:
            self._files.remove(self.path)
            self._files.open(self.path, create=True).close()
        self.assume_empty()

    def assume_empty(self) -> None:
        """Take the file for empty without looking; whatever it holds is cut off by a write."""
        generation = self._state.generation + 1 if self._state is not None else 0
        self._state = _State(0, bytearray(), generation)

    def append(self, entry: bytes) -> None:
        pending = (self._state or self._inspect()).pending
        pending += entry
        if len(pending) >= PENDING_LIMIT_BYTES:
            self._write_out_if_possible()

    def _write_out_if_possible(self) -> None:
        """Nothing is wrong with entries that wait longer while no file can be opened."""
        try:
            self.write_out()
        except OSError as error:
            if error.errno not in SCARCITY:
                raise

    def write_out(self) -> None:
        """Put what is pending into the file."""
        written, pending, generation = self._state or self._inspect()
        if not pending:
            return
        position = written * self._width
        with contextlib.closing(self._files.open(self.path, create=True)) as file:
            if file.size() != position:
                file.truncate(position)  # the zeros of a file that Kafka preallocated
            file.write_at(position, pending)
        written += len(pending) // self._width
        self._state = _State(written, bytearray(), generation)

    def sync(self) -> None:
        """Make what has been written out survive a power loss. Blocks; any thread."""
        with contextlib.closing(self._files.open(self.path)) as file:
            file.sync()

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries."""
        self.write_out()
        with contextlib.closing(self._files.open(self.path)) as file:
            file.truncate(count * self._width)
        generation = (self._state or self._inspect()).generation + 1
        self._state = _State(count, bytearray(), generation)

    def last(self) -> tuple[int, int] | None:
        written, pending, _ = self._state or self._inspect()
        if pending:
            return self._entry(pending, len(pending) - self._width)
        if not written:
            return None
        with contextlib.closing(self._files.open(self.path)) as file:
            entry = file.read_at((written - 1) * self._width, self._width)
        return self._entry(entry, 0) if len(entry) == self._width else None

    def find_last_at_or_before(self, field: int, target: int) -> tuple[int, int] | None:
        """The last entry whose field (0 or 1) is not above the target."""
        state = self._state or self._inspect()
        if state.pending:
            tail = bytes(state.pending)
            count = self._count_up_to(tail, field, target)
            if count:
                return self._entry(tail, (count - 1) * self._width)
        if not state.written:
            return None
        entries = self._find_block(state, field, target).entries
        count = self._count_up_to(entries, field, target)
        return self._entry(entries, (count - 1) * self._width) if count else None

    def count_below(self, field: int, target: int) -> int:
        """How many entries have a field below the target; they are the first ones."""
        self.write_out()
        entries = self._files.read(self.path)[: len(self) * self._width]
        return self._count_up_to(entries, field, target - 1)

    def _find_block(self, state: _State, field: int, target: int) -> _Block:
        """Entries among which the answer is, if there is one."""
        block = self._block
        if block.generation == state.generation and self._answers(block, state, field, target):
            return block
        with contextlib.closing(self._files.open(self.path)) as file:
            block = self._read_block(file, state, field, target)
        self._block = block
        return block

    def _answers(self, block: _Block, state: _State, field: int, target: int) -> bool:
        """Whether the entry asked for is in a block, and not before or behind it."""
        layout, at = self._fields[field]
        entries = block.entries
        if not entries:  # the file was truncated while a worker read it
            return False
        if block.start and layout.unpack_from(entries, at)[0] > target:
            return False
        if block.start * self._width + len(entries) == state.written * self._width:
            return True
        last: int = layout.unpack_from(entries, len(entries) - self._width + at)[0]
        return last > target

    def _read_block(self, file: File, state: _State, field: int, target: int) -> _Block:
        """Halve the file until what is left, which holds the answer, can be read at once."""
        layout, at = self._fields[field]
        width = self._width
        low, high = 0, state.written
        while (high - low) * width > _BLOCK_BYTES:
            middle = (low + high) // 2
            probe = file.read_at(middle * width, width)
            if len(probe) < width or layout.unpack_from(probe, at)[0] > target:
                high = middle
            else:
                low = middle
        entries = file.read_at(low * width, _BLOCK_BYTES // width * width)
        whole = len(entries) - len(entries) % width
        return _Block(state.generation, low, entries[: min(whole, (state.written - low) * width)])

    def _count_up_to(self, entries: bytes, field: int, target: int) -> int:
        """How many of some entries have a field not above the target."""
        layout, at = self._fields[field]
        unpack, width = layout.unpack_from, self._width
        low, high = 0, len(entries) // width
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * width + at)[0] > target:
                high = middle
            else:
                low = middle + 1
        return low

    def _entry(self, entries: Buffer, position: int) -> tuple[int, int]:
        first, second = self._layout.unpack_from(entries, position)
        return first, second

    def _inspect(self) -> _State:
        with _inspecting:
            if self._state is None:
                self._state = _State(self._count_written(), bytearray(), 0)
            return self._state

    def _count_written(self) -> int:
        """Whole entries in the file, without the zeros that Kafka preallocates behind them."""
        width = self._width
        try:
            file = self._files.open(self.path)
        except FileNotFoundError:
            return 0
        with contextlib.closing(file):
            count = file.size() // width
            zero = bytes(width)
            if not count or file.read_at((count - 1) * width, width) != zero:
                return count
            return bisect_left(
                range(count), True, key=lambda i: file.read_at(i * width, width) == zero
            )


# An entry of the offset index is eight bytes: the last offset of a batch, less the segment's base
# offset, and the position at which that batch begins. Offsets and positions grow (IDX-1). Which
# batches get an entry is the segment's decision, and nothing is in here that is not in its file
# (IDX-3).


OFFSET_ENTRY_BYTES = 8
_OFFSET_ENTRY = Struct(">II")
_OFFSET_FIELDS = ((Struct(">I"), 0), (Struct(">I"), 4))
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
        super().__init__(files, path, _OFFSET_ENTRY, _OFFSET_FIELDS)
        self._base_offset = base_offset

    def add(self, last_offset: int, position: int) -> None:
        self.append(_OFFSET_ENTRY.pack(last_offset - self._base_offset, position))

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


# An entry of the time index is twelve bytes, a timestamp and an offset less the segment's base
# offset, and says: no record before this offset is younger than this timestamp, and the batch that
# ends with this offset has a record of this age. Timestamps and offsets only grow (IDX-2).


TIME_ENTRY_BYTES = 12
_TIME_ENTRY = Struct(">qi")
_TIME_FIELDS = ((Struct(">q"), 0), (Struct(">i"), 8))
_TIMESTAMP, _TIME_OFFSET = 0, 1


class IndexedTime(NamedTuple):
    """What an entry says."""

    timestamp_ms: int
    offset: int


class TimeIndex(EntryFile):
    """Appended by the segment's owner; looked up from any thread."""

    __slots__ = ("_base_offset", "_last_timestamp")

    def __init__(self, files: Files, path: Path, base_offset: int) -> None:
        super().__init__(files, path, _TIME_ENTRY, _TIME_FIELDS)
        self._base_offset = base_offset
        self._last_timestamp: int | None = None  # of the last entry, once somebody has looked

    def maybe_add(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry unless the last one is as young."""
        last_timestamp = self._last_timestamp
        if last_timestamp is None:
            last = self.last_entry()
            last_timestamp = last.timestamp_ms if last is not None else -1
        if timestamp_ms > last_timestamp:
            self.append(_TIME_ENTRY.pack(timestamp_ms, offset - self._base_offset))
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
        self.truncate(self.count_below(_TIME_OFFSET, offset - self._base_offset))
        self._last_timestamp = None

    def _named(self, entry: tuple[int, int] | None) -> IndexedTime | None:
        if entry is None:
            return None
        return IndexedTime(entry[_TIMESTAMP], self._base_offset + entry[_TIME_OFFSET])
