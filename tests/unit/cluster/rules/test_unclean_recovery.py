"""Who leads when everybody that is known to have everything is lost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.leader_election import (
    LogEnd,
    RecoveryStrategy,
    find_recovery_candidates,
    recover_leader,
)
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState
from moldau.model import BrokerId

from .partitions import NOBODY, ids, partition

NONE, BALANCED, AGGRESSIVE = RecoveryStrategy

# All three lost power, and all but the fourth were in sync.
LOST = partition(NOBODY, [], [1, 2, 3, 4], last_known=[1, 2], last_leader=3)


def ends(**logs: tuple[int, int]) -> dict[BrokerId, LogEnd]:
    return {BrokerId(int(name[1:])): LogEnd(*end) for name, end in logs.items()}


def test_without_a_strategy_nobody_is_asked() -> None:
    assert find_recovery_candidates(LOST, ids(1, 2, 3, 4), NONE) == ()
    known = ends(_1=(5, 10), _2=(5, 10), _3=(5, 10))
    assert recover_leader(LOST, ids(1, 2, 3), NONE, known, 4) is None


def test_balanced_waits_for_everybody_that_was_known_last() -> None:
    assert find_recovery_candidates(LOST, ids(1, 2, 4), BALANCED) == ()
    assert find_recovery_candidates(LOST, ids(1, 3, 4), BALANCED) == ()
    assert find_recovery_candidates(LOST, ids(1, 2, 3), BALANCED) == (1, 2, 3)
    assert find_recovery_candidates(LOST, ids(1, 2, 3, 4), BALANCED) == (1, 2, 3, 4)


def test_balanced_waits_for_the_answer_of_everybody_that_was_known_last() -> None:
    alive = ids(1, 2, 3, 4)
    assert recover_leader(LOST, alive, BALANCED, ends(_1=(5, 10), _2=(5, 10), _4=(5, 9)), 4) is None
    state = recover_leader(LOST, alive, BALANCED, ends(_1=(5, 10), _2=(5, 11), _3=(4, 30)), 4)
    assert state is not None
    assert (state.leader, state.isr, state.leader_epoch) == (2, (2,), 6)


@pytest.mark.parametrize(
    "state",
    [replace(LOST, isr=ids(4)), replace(LOST, elr=ids(4))],
)
def test_balanced_waits_while_somebody_who_has_everything_may_come_back(
    state: PartitionState,
) -> None:
    assert find_recovery_candidates(state, ids(1, 2, 3), BALANCED) == ()
    assert find_recovery_candidates(state, ids(1, 2, 3), AGGRESSIVE) == (1, 2, 3)


@pytest.mark.parametrize("strategy", [BALANCED, AGGRESSIVE])
@pytest.mark.parametrize(
    "state",
    [
        replace(LOST, isr=ids(2)),  # it is about to be elected
        replace(LOST, elr=ids(2)),
        replace(LOST, leader=BrokerId(1), isr=ids(1)),  # led
        replace(LOST, version=NO_NODE),  # has never been
    ],
)
def test_nobody_is_asked_where_a_clean_leader_is_there(
    state: PartitionState, strategy: RecoveryStrategy
) -> None:
    assert find_recovery_candidates(state, ids(1, 2, 3), strategy) == ()


def test_balanced_waits_for_all_where_an_older_broker_noted_nothing() -> None:
    state = partition(NOBODY, [], [1, 2, 3])
    assert find_recovery_candidates(state, ids(1, 2), BALANCED) == ()
    assert find_recovery_candidates(state, ids(1, 2, 3), BALANCED) == (1, 2, 3)


def test_one_that_was_not_in_sync_leads_if_its_log_is_the_best() -> None:
    known = ends(_1=(5, 10), _2=(5, 11), _3=(5, 9), _4=(5, 12))
    state = recover_leader(LOST, ids(1, 2, 3, 4), BALANCED, known, 4)
    assert state is not None
    assert state.leader == 4


def test_balanced_waits_for_all_when_the_log_of_one_is_gone() -> None:
    alive = ids(1, 2, 3, 4)
    known = ends(_1=(5, 10), _2=(-1, 0), _3=(5, 9))
    assert recover_leader(LOST, alive, BALANCED, known, 4) is None
    state = recover_leader(LOST, alive, BALANCED, known | ends(_4=(5, 12)), 4)
    assert state is not None
    assert state.leader == 4


def test_aggressive_takes_the_best_of_those_that_answer() -> None:
    state = recover_leader(LOST, ids(1, 4), AGGRESSIVE, ends(_4=(4, 90), _1=(5, 3)), 4)
    assert state is not None
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (1, (1,), (), ())
    assert recover_leader(LOST, ids(1, 4), AGGRESSIVE, {}, 4) is None
    assert recover_leader(LOST, ids(4), AGGRESSIVE, ends(_1=(5, 3)), 4) is None  # it is gone again


def test_of_equal_logs_the_preferred_one_leads() -> None:
    known = dict.fromkeys(ids(1, 2, 3, 4), LogEnd(5, 10))
    state = recover_leader(LOST, ids(4, 3, 2, 1), BALANCED, known, 9)
    assert state is not None
    assert (state.leader, state.controller_epoch) == (1, 9)


@given(
    st.dictionaries(
        st.sampled_from(ids(1, 2, 3, 4)), st.builds(LogEnd, st.integers(-1, 3), st.integers(0, 9))
    ),
    st.sets(st.sampled_from(ids(1, 2, 3, 4))),
    st.sampled_from([BALANCED, AGGRESSIVE]),
)
def test_nobody_that_answered_has_more_than_the_one_that_leads(
    known: dict[BrokerId, LogEnd], alive: set[BrokerId], strategy: RecoveryStrategy
) -> None:
    state = recover_leader(LOST, alive, strategy, known, 4)
    if state is not None:
        assert state.leader in alive
        assert all(known[state.leader] >= known[b] for b in known if b in alive)
        if strategy is BALANCED:
            assert {1, 2, 3} <= alive & known.keys()
