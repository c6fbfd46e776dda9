"""Finds the range of a log that answers a fetch, mostly without a search.

A shell, owned by the log's owner. The searches are those of `log_reader`; here is what spares them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from moldau.storage.files import FileSlice
from moldau.storage.log_reader import LogRead, cut_range, find_place, segment_index
from moldau.storage.position_hints import Place, PositionHints
from moldau.storage.segment import Segment

if TYPE_CHECKING:
    from moldau.storage.log import Log


class LogRanges:
    """The reading side of one log."""

    __slots__ = ("_hints", "_log", "forget", "remember")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._hints = PositionHints()
        self.remember = self._hints.remember
        self.forget = self._hints.clear

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one: bool) -> LogRead:
        """From the batch that holds an offset, which is below `end_offset`, within one segment."""
        segment, start = self._find_place(offset)
        end, next_offset = self._find_end(segment, end_offset)
        if end - start > max_bytes:
            boundary = cut_range(segment, start, max_bytes, min_one)
            if boundary is None:
                return LogRead(None, offset)
            end, next_offset = boundary
        if end <= start:
            return LogRead(None, offset)
        self._hints.remember(next_offset, (segment, end))
        return LogRead(FileSlice(segment.opened(), start, end - start), next_offset)

    def _find_place(self, offset: int) -> Place:
        place = self._hints.find(offset)
        if place is None:
            return find_place(self._log.segments, offset)
        segment, position = place
        if position >= segment.size_bytes and segment is not self._log.segments[-1]:
            return find_place(self._log.segments, offset)  # it went on in the next segment
        return place

    def _find_end(self, segment: Segment, end_offset: int) -> tuple[int, int]:
        """Position and offset at which reading in a segment has to stop."""
        log = self._log
        if end_offset == log.log_end_offset:
            if segment is log.segments[-1]:
                return segment.size_bytes, end_offset
        else:
            last, position = self._find_place(end_offset)
            if last is segment:
                return position, end_offset
        following = segment_index(log.segments, segment.base_offset) + 1
        return segment.size_bytes, log.segments[following].base_offset
