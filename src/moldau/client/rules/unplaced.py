"""Records of one call that are in no batch yet, in order: rows, lines of a text, columns. Rules."""

from __future__ import annotations

from typing import Any, Protocol

from moldau.client.rules.producer_batches import ProducerBatch
from moldau.records.batch_header import Buffer
from moldau.records.codec import ColumnEncoding, count_fitting, row_size
from moldau.records.lines import LINE_END, TextLines
from moldau.records.record import RECORD_OVERHEAD_BYTES, RecordRow


class Unplaced(Protocol):
    """What is left to be put into batches."""

    def next_bytes(self) -> int | None:
        """About what the next record takes in a batch; None when there is none."""

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        """Put as many as fit into so many bytes, one at least; how many they are, and about what
        they take."""


class UnplacedRows:
    """Rows, each with a timestamp, a key, a value and headers."""

    def __init__(self, rows: list[RecordRow]) -> None:
        self._rows = rows
        self._next = 0

    def next_bytes(self) -> int | None:
        return row_size(self._rows[self._next]) if self._next < len(self._rows) else None

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        count, size_bytes = count_fitting(self._rows, self._next, limit_bytes)
        batch.add_some(self._rows, self._next, count, size_bytes)
        self._next += count
        return count, size_bytes


class UnplacedLines:
    """Plain lines: values of one timestamp, without keys and headers."""

    def __init__(self, lines: TextLines, timestamp_ms: int) -> None:
        self._text = lines.text
        self._timestamp_ms = timestamp_ms
        self._next = 0

    def next_bytes(self) -> int | None:
        end = self._text.find(LINE_END, self._next)
        if end < 0:
            return None
        if end > self._next and self._text[end - 1] == ord("\r"):
            end -= 1
        return RECORD_OVERHEAD_BYTES + end - self._next

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        count, size_bytes, self._next = batch.add_lines(
            self._text, self._next, limit_bytes, self._timestamp_ms
        )
        return count, size_bytes


class UnplacedColumns:
    """Rows of columns, by a list of their numbers; None stands for all of them."""

    def __init__(self, columns: ColumnEncoding, rows: Buffer | None) -> None:
        self._columns = columns
        self._rows = rows
        self._numbers = range(columns.row_count) if rows is None else memoryview(rows).cast("i")
        self._next = 0

    def next_bytes(self) -> int | None:
        if self._next == len(self._numbers):
            return None
        return self._columns.row_size(self._numbers[self._next])

    def move_into(self, batch: ProducerBatch[Any], limit_bytes: int) -> tuple[int, int]:
        count, size_bytes, self._next = batch.add_columns(
            self._columns, self._rows, self._next, limit_bytes
        )
        return count, size_bytes
