"""Offsets in order, as batches that are alike: one entry for a thousand records of one state.

A run is split when something happens to a part of it, and joined with its neighbour when both have
become alike. So an operation costs what differs, not how many records there are; and however many
runs a change touches, the list is put together once. A rule.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from moldau.coordinators.shares.rules.records import DeliveryState
from moldau.errors import InvariantViolation


class Pending(NamedTuple):
    """What a record becomes when the change is stored."""

    change_id: int
    state: DeliveryState
    delivery_count: int


class InFlightRecordState(NamedTuple):
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
        return self.state >= DeliveryState.ACKNOWLEDGED

    def until(self, deadline: float) -> InFlightRecordState:
        return InFlightRecordState(
            self.state, self.delivery_count, self.member, deadline, self.pending
        )

    def about_to(self, pending: Pending | None) -> InFlightRecordState:
        return InFlightRecordState(
            self.state, self.delivery_count, self.member, self.deadline, pending
        )


class InFlightBatch(NamedTuple):
    """Neighbouring offsets that are alike."""

    first: int
    end: int  # exclusive
    record_state: InFlightRecordState

    @property
    def size(self) -> int:
        return self.end - self.first


class InFlightBatches:
    """Every offset from `start` to `end` is in exactly one run, and neighbours differ (SHR-1)."""

    __slots__ = ("_runs", "end", "final_count", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.final_count = 0  # offsets in batches whose state is final
        self._runs: list[InFlightBatch] = []

    def __len__(self) -> int:
        """How many runs there are: what it costs to keep them."""
        return len(self._runs)

    def __iter__(self) -> Iterator[InFlightBatch]:
        return iter(self._runs)

    def between(self, first: int, end: int) -> Iterator[InFlightBatch]:
        """The runs of a range, cut to it; a range that reaches out is cut, too. Nothing may be
        changed before the last one."""
        runs = self._runs
        for index in range(self._index_of(first), len(runs)):
            run = runs[index]
            if run.first >= end:
                break
            if run.first < first or run.end > end:
                run = InFlightBatch(max(run.first, first), min(run.end, end), run.record_state)
            yield run

    def append(self, end: int, record_state: InFlightRecordState) -> None:
        """Go on up to an offset, with records of one state."""
        if end <= self.end:
            raise InvariantViolation(f"SHR-1: runs up to {self.end} cannot go on to {end}")
        _push(self._runs, InFlightBatch(self.end, end, record_state))
        if record_state.is_final:
            self.final_count += end - self.end
        self.end = end

    def change(
        self, first: int, end: int, become: Callable[[InFlightRecordState], InFlightRecordState]
    ) -> None:
        """Give the records of a range another state; outside of the batches nothing happens."""
        self.replace(
            [
                InFlightBatch(run.first, run.end, become(run.record_state))
                for run in self.between(first, end)
            ]
        )

    def replace(self, changed: Sequence[InFlightBatch]) -> None:
        """Put runs in the place of what was there: in order, without overlap, within the runs.
        What lies between them is copied as it is, however much it is."""
        if not changed:
            return
        runs = self._runs
        index = begin = max(0, self._index_of(changed[0].first) - 1)  # which may become alike
        position = runs[index].first  # all before it is in `rebuilt`
        rebuilt: list[InFlightBatch] = []
        for new in changed:
            found = self._index_from(index, new.first)
            if found > index:
                run = runs[index]
                _push(rebuilt, InFlightBatch(position, run.end, run.record_state))
                rebuilt += runs[index + 1 : found]
                index, position = found, runs[found].first
            if position < new.first:
                _push(rebuilt, InFlightBatch(position, new.first, runs[index].record_state))
            following = self._index_from(index, new.end)
            for first, end, record_state in runs[index : following + 1]:
                if record_state.is_final:
                    self.final_count -= max(0, min(end, new.end) - max(first, new.first))
            if new.record_state.is_final:
                self.final_count += new.end - new.first
            _push(rebuilt, new)
            index, position = following, new.end
        if index < len(runs):
            _push(rebuilt, InFlightBatch(position, runs[index].end, runs[index].record_state))
        runs[begin : index + 1] = rebuilt

    def drop_before(self, offset: int) -> None:
        """Forget what is before an offset, which may be behind the end: then all."""
        if offset <= self.start:
            return
        runs = self._runs
        index = self._index_of(offset)
        for first, end, record_state in runs[: index + 1]:
            if record_state.is_final:
                self.final_count -= min(end, offset) - first
        if index < len(runs):
            runs[index] = InFlightBatch(offset, runs[index].end, runs[index].record_state)
        del runs[:index]
        self.start = offset
        self.end = max(self.end, offset)

    def _index_of(self, offset: int) -> int:
        """The run that holds an offset; how many there are when it is at the end or behind."""
        if offset >= self.end:
            return len(self._runs)
        return max(0, bisect_right(self._runs, (offset, math.inf)) - 1)

    def _index_from(self, index: int, offset: int) -> int:
        """As `_index_of`, of an offset that is in a certain run or, most likely soon, after it."""
        runs = self._runs
        for near in range(index, min(index + 2, len(runs))):
            if offset < runs[near].end:
                return near
        return self._index_of(offset)


def _push(runs: list[InFlightBatch], new: InFlightBatch) -> None:
    """Neighbours that are alike become one."""
    if runs and runs[-1].record_state == new.record_state:
        new = InFlightBatch(runs.pop().first, new.end, new.record_state)
    runs.append(new)
