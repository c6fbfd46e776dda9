"""Remembers where batches begin, so that whoever reads a log in order never searches.

A reader that has got everything up to an offset comes back for that offset; whoever follows the
end of the log asks for one of the last batches appended. Both are found here. The table has two
generations: when the young one is full it becomes the old one, and what nobody asked for since is
forgotten. It belongs to the log's owner.

Also remembered is where the latest ranges that were too long for their limit were cut: of many who
read the same records with the same limit, only the first one looks for it.
"""

from __future__ import annotations

from typing import TypeAlias

from moldau.storage.segment import Boundary, Segment

GENERATION_SIZE = 32
MOST_CUTS = 32

BatchPlace: TypeAlias = tuple[Segment, int]
"""A segment and a position in it, at which a batch begins or will begin."""

Cut: TypeAlias = tuple[Segment, int, int, bool]
"""A segment, where a range begins in it, its limit in bytes, and whether one batch may exceed it.
What lies before the limit does not change but by a truncation, whatever is appended."""


class PositionHints:
    """Offsets of batch boundaries and their places."""

    __slots__ = ("_cuts", "_old", "_young")

    def __init__(self) -> None:
        self._young: dict[int, BatchPlace] = {}
        self._old: dict[int, BatchPlace] = {}
        self._cuts: dict[Cut, Boundary] = {}

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

    def remember_cut(self, cut: Cut, boundary: Boundary) -> None:
        if len(self._cuts) >= MOST_CUTS:
            self._cuts.clear()
        self._cuts[cut] = boundary

    def find_cut(self, cut: Cut) -> Boundary | None:
        return self._cuts.get(cut)

    def clear(self) -> None:
        """Positions have changed."""
        self._cuts.clear()
        self._young = {}
        self._old = {}
