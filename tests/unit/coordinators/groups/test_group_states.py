"""The table of states."""

from __future__ import annotations

import pytest

from moldau.coordinators.groups.rules.classic_group import (
    LOGGED_MOVES,
    MOVES,
    ClassicGroupState,
    check_move,
)
from moldau.errors import InvariantViolation


def test_every_state_has_its_moves() -> None:
    assert set(MOVES) == set(LOGGED_MOVES) == set(ClassicGroupState)


def test_what_requests_do_and_what_records_do_never_mix() -> None:
    """A request leads into a rebalance and through it; only a record leads out of it."""
    within = {ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE}
    assert set().union(*MOVES.values()) == within
    assert set().union(*LOGGED_MOVES.values()).isdisjoint(within)


def test_nothing_comes_after_the_end() -> None:
    assert not MOVES[ClassicGroupState.DEAD]
    assert not LOGGED_MOVES[ClassicGroupState.DEAD]


def test_a_move_that_is_not_in_the_table_is_a_bug() -> None:
    check_move("g", ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE)
    with pytest.raises(InvariantViolation, match="'g'"):
        check_move("g", ClassicGroupState.EMPTY, ClassicGroupState.COMPLETING_REBALANCE)


def test_the_names_are_kafkas() -> None:
    assert [state.value for state in ClassicGroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
