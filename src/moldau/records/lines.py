"""Text whose lines are records, by the hundred thousand: no line need become an object of its own.

`TextLines` is a text that is only split when somebody looks at a line. `PackedRows` are the rows of
a batch as they stand in it: encoded as they come, also from columns. Values and a rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import overload

from moldau.records.batch_header import Buffer
from moldau.records.codec import ColumnEncoding, append_lines, append_rows, decode_records
from moldau.records.record import Record, RecordRow

LINE_END = b"\n"


class TextLines(Sequence[bytes]):
    """The lines of a text, without their ends.

    What is behind the last end is no line. A carriage return before a line end is part of it; an
    end of another kind is taken as it is.
    """

    def __init__(self, text: bytes, end: bytes = LINE_END) -> None:
        self.text = text
        self.end = end

    @property
    def are_plain(self) -> bool:
        """Whether `PackedRows.append_lines` takes them."""
        return self.end == LINE_END

    def __len__(self) -> int:
        return self.text.count(self.end)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._split)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        return self._split[place]

    @cached_property
    def _split(self) -> list[bytes]:
        lines = self.text.split(self.end)
        lines.pop()
        if self.are_plain and b"\r" in self.text:
            return [line.removesuffix(b"\r") for line in lines]
        return lines


class PackedRows:
    """The rows of one batch, encoded. For whoever adds rows it is a list of them."""

    __slots__ = ("_count", "base_timestamp", "max_timestamp", "payload")

    def __init__(self, rows: Iterable[RecordRow] = ()) -> None:
        self.payload = bytearray()  # the uncompressed records
        self.base_timestamp = 0  # of the first row; deltas are counted from it
        self.max_timestamp = 0
        self._count = 0
        self.extend(rows)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: slice) -> list[Record]:
        """Rows as they were put in. For the rare batch that has to be divided."""
        return decode_records(self.payload, self._count, 0, self.base_timestamp)[place]

    def append(self, row: RecordRow) -> None:
        base_timestamp = self.base_timestamp if self._count else row[-4]
        append_rows(self.payload, self._count, (row,), base_timestamp)
        self._note_timestamp(row[-4])
        self._count += 1

    def extend(self, rows: Iterable[RecordRow]) -> None:
        for row in rows:
            self.append(row)

    def append_lines(
        self, text: bytes, start: int, limit_bytes: int, timestamp_ms: int
    ) -> tuple[int, int, int]:
        """Take lines from a place of the text on, as many as fit into so many bytes; how many they
        are, about what they take, and where the next one begins."""
        delta = timestamp_ms - self.base_timestamp if self._count else 0
        count, size_bytes, end = append_lines(
            self.payload, self._count, text, start, limit_bytes, delta
        )
        if count:
            self._note_timestamp(timestamp_ms)
            self._count += count
        return count, size_bytes, end

    def append_columns(
        self, columns: ColumnEncoding, rows: Buffer | None, start: int, limit_bytes: int
    ) -> tuple[int, int, int]:
        """Take rows of columns from a place of their list on, as many as fit into so many bytes;
        how many they are, about what they take, and the place of the next one."""
        base_timestamp = self.base_timestamp if self._count else None
        count, size_bytes, end, base_timestamp, highest = columns.append_to(
            self.payload, self._count, rows, start, limit_bytes, base_timestamp
        )
        if count and not self._count:
            self.base_timestamp, self.max_timestamp = base_timestamp, highest
        elif count:
            self.max_timestamp = max(self.max_timestamp, highest)
        self._count += count
        return count, size_bytes, end

    def _note_timestamp(self, timestamp_ms: int) -> None:
        if not self._count:
            self.base_timestamp = self.max_timestamp = timestamp_ms
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
