"""Remembers where batches begin, so that whoever reads a log in order never searches.

A reader that has got everything up to an offset comes back for that offset; whoever follows the
end of the log asks for one of the last batches appended. Both are found here. The table has two
generations: when the young one is full it becomes the old one, and what nobody asked for since is
forgotten. It belongs to the log's owner.
"""

from __future__ import annotations

from typing import TypeAlias

from moldau.storage.segment import Segment

GENERATION_SIZE = 32

BatchPlace: TypeAlias = tuple[Segment, int]
"""A segment and a position in it, at which a batch begins or will begin."""


class PositionHints:
    """Offsets of batch boundaries and their places."""

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        self._young: dict[int, BatchPlace] = {}
        self._old: dict[int, BatchPlace] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def remember(self, offset: int, place: BatchPlace) -> None:
        if len(self._young) >= GENERATION_SIZE:
            self._old = self._young
            self._young = {}
        self._young[offset] = place

    def find(self, offset: int) -> BatchPlace | None:
        place = self._young.get(offset)
        if place is None:
            place = self._old.get(offset)
            if place is not None:
                self.remember(offset, place)
        return place

    def clear(self) -> None:
        """Positions have changed."""
        self._young = {}
        self._old = {}
