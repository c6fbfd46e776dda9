"""Stored batches, put together: compared with a table that has every offset by itself."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from moldau.coordinators.shares.rules.records import DeliveryState, StateBatch
from moldau.coordinators.shares.rules.share_states import combine

AVAILABLE, ACKNOWLEDGED, ARCHIVED = (
    DeliveryState.AVAILABLE,
    DeliveryState.ACKNOWLEDGED,
    DeliveryState.ARCHIVED,
)
STATES = st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED])


@st.composite
def batches(draw: st.DrawFn) -> list[StateBatch]:
    found = []
    for _ in range(draw(st.integers(0, 6))):
        first = draw(st.integers(0, 30))
        last = first + draw(st.integers(0, 8))
        found.append(StateBatch(first, last, draw(STATES), draw(st.integers(1, 4))))
    return found


def table(some: list[StateBatch], start_offset: int) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for batch in some:
        for offset in range(max(batch.first_offset, start_offset), batch.last_offset + 1):
            own = (batch.delivery_count, int(batch.delivery_state))
            found[offset] = max(own, found.get(offset, own))
    return found


@given(batches(), batches(), st.integers(-1, 35))
def test_every_offset_has_the_furthest_of_what_was_written(
    stored: list[StateBatch], written: list[StateBatch], start_offset: int
) -> None:
    combined = combine(combine((), stored, -1), written, start_offset)
    assert table(list(combined), 0) == table([*stored, *written], start_offset)
    for one, other in pairwise(combined):
        assert one.last_offset < other.first_offset, "SHS-1"
        touches = one.last_offset + 1 == other.first_offset
        alike = one[2:] == other[2:]
        assert not (touches and alike), "SHS-1"
    assert all(one.first_offset >= start_offset for one in combined), "SHS-1"


def test_a_late_write_takes_nothing_back() -> None:
    done = StateBatch(0, 9, ACKNOWLEDGED, 2)
    late = StateBatch(3, 5, AVAILABLE, 1)
    assert combine([done], [late], 0) == (done,)


def test_a_hole_is_cut_into_what_was_one() -> None:
    assert combine([StateBatch(0, 9, AVAILABLE, 1)], [StateBatch(4, 4, ACKNOWLEDGED, 1)], 2) == (
        StateBatch(2, 3, AVAILABLE, 1),
        StateBatch(4, 4, ACKNOWLEDGED, 1),
        StateBatch(5, 9, AVAILABLE, 1),
    )


def test_holes_far_from_each_other_are_cut_each_by_itself() -> None:
    stored = [StateBatch(0, 9, AVAILABLE, 1), StateBatch(20, 29, AVAILABLE, 2)]
    written = [StateBatch(5, 5, ACKNOWLEDGED, 1), StateBatch(25, 25, ACKNOWLEDGED, 2)]
    assert combine(stored, written, 0) == (
        StateBatch(0, 4, AVAILABLE, 1),
        StateBatch(5, 5, ACKNOWLEDGED, 1),
        StateBatch(6, 9, AVAILABLE, 1),
        StateBatch(20, 24, AVAILABLE, 2),
        StateBatch(25, 25, ACKNOWLEDGED, 2),
        StateBatch(26, 29, AVAILABLE, 2),
    )


def test_what_is_written_beside_what_is_stored_is_joined_where_it_is_alike() -> None:
    stored = [StateBatch(0, 9, AVAILABLE, 1), StateBatch(20, 29, AVAILABLE, 1)]
    assert combine(stored, [StateBatch(10, 19, AVAILABLE, 1)], 0) == (
        StateBatch(0, 29, AVAILABLE, 1),
    )
    assert combine(stored, [StateBatch(10, 19, AVAILABLE, 2)], 0) == (
        StateBatch(0, 9, AVAILABLE, 1),
        StateBatch(10, 19, AVAILABLE, 2),
        StateBatch(20, 29, AVAILABLE, 1),
    )


def test_without_a_start_everything_stays() -> None:
    stored = [StateBatch(0, 9, AVAILABLE, 1), StateBatch(20, 29, AVAILABLE, 1)]
    assert combine(stored, (), -1) == tuple(stored)
    assert combine(stored, (), 9) == (StateBatch(9, 9, AVAILABLE, 1), stored[1])
    assert combine(stored, (), 10) == (stored[1],)
    assert combine(stored, (), 30) == ()
