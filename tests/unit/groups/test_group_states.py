"""The table of states."""

from __future__ import annotations

import pytest

from moldau.errors import InvariantViolation
from moldau.groups.rules.group_states import LOGGED_MOVES, MOVES, GroupState, check_move


def test_every_state_has_its_moves() -> None:
    assert set(MOVES) == set(LOGGED_MOVES) == set(GroupState)


def test_what_requests_do_and_what_records_do_never_mix() -> None:
    """A request leads into a rebalance and through it; only a record leads out of it."""
    within = {GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE}
    assert set().union(*MOVES.values()) == within
    assert set().union(*LOGGED_MOVES.values()).isdisjoint(within)


def test_nothing_comes_after_the_end() -> None:
    assert not MOVES[GroupState.DEAD]
    assert not LOGGED_MOVES[GroupState.DEAD]


def test_a_move_that_is_not_in_the_table_is_a_bug() -> None:
    check_move("g", GroupState.STABLE, GroupState.PREPARING_REBALANCE)
    with pytest.raises(InvariantViolation, match="'g'"):
        check_move("g", GroupState.EMPTY, GroupState.COMPLETING_REBALANCE)


def test_the_names_are_kafkas() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
