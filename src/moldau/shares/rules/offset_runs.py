"""Offsets in order, as runs that are alike: one entry for a thousand records of the same lot.

A run is split when something happens to a part of it, and joined with its neighbour when both have
become alike. So an operation costs what differs, not how many records there are. A rule.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import NamedTuple

from moldau.errors import InvariantViolation
from moldau.shares.rules.delivery_state import DeliveryState


class Pending(NamedTuple):
    """What a record becomes when the change is stored."""

    change_id: int
    state: DeliveryState
    delivery_count: int


class Lot(NamedTuple):
    """What is known of a record.

    Invariants: only an Acquired one has a member and a deadline; only an Acquired one is pending,
    and a pending one is not given to anybody, nor acknowledged a second time (SHR-3).
    """

    state: DeliveryState
    delivery_count: int  # how often it was acquired
    member: str = ""
    deadline: float = math.inf  # when the lock is over, in monotonic seconds
    pending: Pending | None = None

    @property
    def is_available(self) -> bool:
        return self.state is DeliveryState.AVAILABLE

    @property
    def is_final(self) -> bool:
        return self.state.is_final


class OffsetRun(NamedTuple):
    """Neighbouring offsets that are alike."""

    first: int
    end: int  # exclusive
    lot: Lot

    @property
    def size(self) -> int:
        return self.end - self.first


_first_of = attrgetter("first")


class OffsetRuns:
    """Every offset from `start` to `end` is in exactly one run, and neighbours differ (SHR-1)."""

    __slots__ = ("_runs", "end", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self._runs: list[OffsetRun] = []

    def __len__(self) -> int:
        """How many runs there are: what it costs to keep them."""
        return len(self._runs)

    def __iter__(self) -> Iterator[OffsetRun]:
        return iter(self._runs)

    def between(self, first: int, end: int) -> list[OffsetRun]:
        """The runs of a range, cut to it; a range that reaches out is cut, too."""
        found = []
        for run in self._runs[self._index_of(first) :]:
            if run.first >= end:
                break
            found.append(OffsetRun(max(run.first, first), min(run.end, end), run.lot))
        return found

    def append(self, end: int, lot: Lot) -> None:
        """Go on up to an offset, with records of one lot."""
        if end <= self.end:
            raise InvariantViolation(f"SHR-1: runs up to {self.end} cannot go on to {end}")
        self._runs.append(OffsetRun(self.end, end, lot))
        self.end = end
        self._join(len(self._runs) - 2, len(self._runs))

    def change(self, first: int, end: int, become: Callable[[Lot], Lot]) -> None:
        """Give the records of a range another lot; outside of the runs nothing happens."""
        first, end = max(first, self.start), min(end, self.end)
        if first >= end:
            return
        self._split(first)
        self._split(end)
        from_index, to_index = self._index_of(first), self._index_of(end)
        for index in range(from_index, to_index):
            run = self._runs[index]
            self._runs[index] = OffsetRun(run.first, run.end, become(run.lot))
        self._join(from_index - 1, to_index + 1)

    def drop_before(self, offset: int) -> None:
        """Forget what is before an offset, which may be behind the end: then all."""
        if offset <= self.start:
            return
        self._split(min(offset, self.end))
        del self._runs[: self._index_of(min(offset, self.end))]
        self.start = offset
        self.end = max(self.end, offset)

    def _index_of(self, offset: int) -> int:
        """The run that holds an offset; how many there are when it is at the end or behind."""
        if offset >= self.end:
            return len(self._runs)
        return max(0, bisect_right(self._runs, offset, key=_first_of) - 1)

    def _split(self, offset: int) -> None:
        """Have a run begin at an offset."""
        index = self._index_of(offset)
        if index < len(self._runs) and self._runs[index].first < offset:
            first, end, lot = self._runs[index]
            self._runs[index : index + 1] = (
                OffsetRun(first, offset, lot),
                OffsetRun(offset, end, lot),
            )

    def _join(self, from_index: int, to_index: int) -> None:
        """Make one of neighbours that are alike, within these indexes."""
        from_index = max(0, from_index)
        joined: list[OffsetRun] = []
        for run in self._runs[from_index:to_index]:
            if joined and joined[-1].lot == run.lot:
                joined[-1] = OffsetRun(joined[-1].first, run.end, run.lot)
            else:
                joined.append(run)
        self._runs[from_index:to_index] = joined
