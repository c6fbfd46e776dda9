"""Runs of offsets, compared with a table that has every offset by itself; and what it costs to
change many of them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.shares.rules.in_flight_state import (
    InFlightBatch,
    InFlightBatches,
    InFlightRecordState,
)
from moldau.coordinators.shares.rules.records import DeliveryState

LOTS = [InFlightRecordState(state, count) for state in DeliveryState for count in (1, 2)]
NEW, DONE = (
    InFlightRecordState(DeliveryState.AVAILABLE, 1),
    InFlightRecordState(DeliveryState.ACKNOWLEDGED, 1),
)


@st.composite
def changed_runs(draw: st.DrawFn, start: int, end: int) -> list[InFlightBatch]:
    found = []
    while start < end:
        first = draw(st.integers(start, end - 1))
        start = draw(st.integers(first + 1, end))
        found.append(InFlightBatch(first, start, draw(st.sampled_from(LOTS))))
        if draw(st.booleans()):
            break
    return found


@given(st.data())
def test_every_offset_is_what_was_put_in_its_place(data: st.DataObject) -> None:
    runs = InFlightBatches(10)
    table: dict[int, InFlightRecordState] = {}
    for _ in range(data.draw(st.integers(1, 12))):
        match data.draw(st.integers(0, 3)):
            case 0:
                record_state, end = (
                    data.draw(st.sampled_from(LOTS)),
                    data.draw(st.integers(1, 9)) + runs.end,
                )
                table |= dict.fromkeys(range(runs.end, end), record_state)
                runs.append(end, record_state)
            case 1:
                offset = data.draw(st.integers(runs.start, runs.end + 2))
                runs.drop_before(offset)
                table = {at: record_state for at, record_state in table.items() if at >= offset}
            case _:
                changed = data.draw(changed_runs(runs.start, runs.end))
                runs.replace(changed)
                for first, end, record_state in changed:
                    table |= dict.fromkeys(range(first, end), record_state)
        found = {at: record_state for first, end, record_state in runs for at in range(first, end)}
        assert found == table, "SHR-1"
        assert all(one.record_state != other.record_state for one, other in pairwise(runs)), "SHR-1"
        assert runs.final_count == sum(record_state.is_final for record_state in table.values())


def test_what_lies_between_two_changes_stays() -> None:
    runs = InFlightBatches(0)
    for offset in range(8):
        runs.append(offset + 1, LOTS[offset % 4])
    runs.replace([InFlightBatch(1, 2, DONE), InFlightBatch(6, 7, DONE)])
    expected = [LOTS[offset % 4] for offset in range(8)]
    expected[1] = expected[6] = DONE
    assert [
        record_state for first, end, record_state in runs for _ in range(first, end)
    ] == expected


class _CountedList(list[InFlightBatch]):
    """Counts what is looked at or moved."""

    moved = 0

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        self.moved += len(found) if isinstance(at, slice) else 1
        return found

    def __setitem__(self, at: Any, value: Any) -> None:
        self.moved += len(self)  # what is behind moves up
        super().__setitem__(at, value)


def test_a_change_of_many_runs_costs_their_number_and_not_its_square() -> None:
    """Half of twenty thousand offsets, each by itself."""
    runs = InFlightBatches(0)
    runs.append(20_000, NEW)
    runs._runs = counted = _CountedList(runs)
    runs.replace([InFlightBatch(offset, offset + 1, DONE) for offset in range(1, 20_000, 2)])
    assert len(runs) == 20_000
    assert counted.moved < 10 * 20_000
    counted.moved = 0
    assert sum(1 for first in range(1, 20_000, 2) for _ in runs.between(first, first + 1)) == 10_000
    assert counted.moved < 30 * 20_000  # with the bisections
    counted.moved = 0
    runs.replace([InFlightBatch(7_777, 7_778, NEW), InFlightBatch(17_777, 17_778, NEW)])
    assert counted.moved < 4 * 20_000
