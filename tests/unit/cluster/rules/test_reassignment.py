"""Moving a partition to other brokers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.metadata_image import PartitionState
from moldau.cluster.rules.reassignment import (
    check_target,
    is_moving,
    original_replicas,
    plan_cancellation,
    plan_reassignment_step,
    plan_redirection,
    target_replicas,
)
from moldau.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NoReassignmentInProgressError,
)
from moldau.model import BrokerId

from .partitions import ids, partition

EVERYBODY = ids(1, 2, 3, 4, 5)
EPOCH = 4


def step(state: PartitionState, alive: tuple[BrokerId, ...] = EVERYBODY) -> PartitionState | None:
    return plan_reassignment_step(state, alive, EPOCH)


def begin(state: PartitionState, target: tuple[BrokerId, ...]) -> PartitionState:
    """On the way, and not at its end: nobody is there to lead."""
    return plan_redirection(state, target, (), EPOCH) or state


def test_a_move_begins_with_old_and_new_replicas_together() -> None:
    begun = begin(partition(1, [1, 2], [1, 2]), ids(3, 2))
    assert begun.replicas == (3, 2, 1)
    assert (begun.adding_replicas, begun.removing_replicas) == ((3,), (1,))
    assert (begun.leader, begun.isr, begun.leader_epoch) == (1, (1, 2), 6)
    assert (target_replicas(begun), original_replicas(begun)) == ((3, 2), (2, 1))


def test_a_move_waits_until_every_new_replica_is_in_sync() -> None:
    assert step(partition(1, [1, 2], [3, 2, 1], adding=[3], removing=[1])) is None


def test_a_move_ends_with_the_new_replicas_alone() -> None:
    arrived = step(partition(2, [1, 2, 3], [3, 2, 1], adding=[3], removing=[1]))
    assert arrived is not None
    assert (arrived.replicas, arrived.adding_replicas, arrived.removing_replicas) == (
        (3, 2),
        (),
        (),
    )
    assert (arrived.leader, arrived.isr) == (2, (2, 3))
    assert (arrived.leader_epoch, arrived.controller_epoch) == (6, EPOCH)


def test_a_move_ends_also_when_nobody_else_is_in_sync() -> None:
    arrived = step(partition(2, [2, 3], [3, 2, 1], adding=[3], removing=[1]))
    assert arrived is not None
    assert (arrived.replicas, arrived.isr) == ((3, 2), (2, 3))


def test_a_leader_that_goes_is_followed_by_a_new_one_under_a_new_epoch() -> None:
    arrived = step(partition(1, [1, 2, 3], [3, 2, 1], adding=[3], removing=[1]))
    assert arrived is not None
    assert (arrived.leader, arrived.leader_epoch, arrived.isr) == (3, 6, (2, 3))


def test_a_move_does_not_end_while_nobody_of_the_new_ones_lives() -> None:
    assert step(partition(1, [1, 3], [3, 1], adding=[3], removing=[1]), ids(1, 2)) is None


def test_a_partition_that_is_not_moving_has_no_step() -> None:
    assert step(partition(1, [1, 2], [1, 2])) is None


def test_the_order_of_the_replicas_can_be_changed() -> None:
    begun = begin(partition(1, [1, 2], [1, 2]), ids(2, 1))
    assert begun.replicas == (2, 1)
    assert not is_moving(begun)
    assert begun.leader_epoch == 5  # everybody keeps its log


def test_a_replica_in_sync_of_a_former_move_stays_until_the_end() -> None:
    moving = partition(3, [3], [3, 1], adding=[3], removing=[1])
    redirected = begin(moving, ids(4))
    assert redirected.replicas == (4, 1, 3)
    assert target_replicas(redirected) == (4,)
    assert step(redirected) is None


def test_an_eligible_replica_of_a_former_move_stays_until_the_end() -> None:
    """Taken away, it would delete its log; assigned again, it would count as one that has all."""
    moving = partition(1, [1], [3, 1], adding=[3], removing=[1], elr=[3])
    redirected = begin(moving, ids(4))
    assert (redirected.replicas, redirected.elr) == ((4, 1, 3), (3,))


def test_who_is_taken_away_is_not_remembered() -> None:
    moving = partition(1, [1], [3, 1], adding=[3], removing=[1], last_known=[3, 1])
    redirected = begin(moving, ids(4))
    assert (redirected.replicas, redirected.last_known_elr) == ((4, 1), (1,))


def test_cancelling_goes_back_at_once_when_somebody_in_sync_is_there() -> None:
    back = plan_cancellation(
        partition(3, [1, 3], [3, 2, 1], adding=[3], removing=[1]), EVERYBODY, EPOCH
    )
    assert (back.replicas, is_moving(back)) == ((2, 1), False)
    assert (back.leader, back.isr, back.leader_epoch) == (1, (1,), 6)


def test_cancelling_takes_its_time_when_only_new_replicas_have_everything() -> None:
    back = plan_cancellation(partition(3, [3], [3, 1], adding=[3], removing=[1]), EVERYBODY, EPOCH)
    assert target_replicas(back) == (1,)
    assert back.isr == (3,)
    assert 3 in back.replicas


def test_cancelling_keeps_those_who_were_the_last_to_have_everything() -> None:
    """After a power loss of all the best log may be a new replica's (ELR-4)."""
    moving = partition(-1, [], [4, 3, 1, 2], adding=[4], removing=[2], last_known=[4, 1])
    back = plan_cancellation(moving, EVERYBODY, EPOCH)
    assert set(back.replicas) == {4, 3, 1, 2}
    assert 4 in back.removing_replicas
    assert back.last_known_elr == (4, 1)


def test_there_is_nothing_to_cancel_for_a_partition_that_stays() -> None:
    with pytest.raises(NoReassignmentInProgressError):
        plan_cancellation(partition(1, [1], [1]), EVERYBODY, EPOCH)


@pytest.mark.parametrize(
    ("target", "words"),
    [([], "at least one"), ([1, 1], "twice"), ([1, 9], "alive: 9"), ([-1], "alive: -1")],
)
def test_a_target_must_make_sense(target: list[int], words: str) -> None:
    with pytest.raises(InvalidReplicaAssignmentError, match=words):
        check_target(partition(1, [1], [1]), target, EVERYBODY)


def test_a_replica_that_is_dead_may_stay_one() -> None:
    assert check_target(partition(1, [1], [1, 9]), [9, 2], EVERYBODY) == (9, 2)


def test_the_number_of_replicas_changes_only_when_it_may() -> None:
    state = partition(1, [1], [1])
    assert check_target(state, [1, 2], EVERYBODY) == (1, 2)
    with pytest.raises(InvalidReplicationFactorError):
        check_target(state, [1, 2], EVERYBODY, may_change_factor=False)


brokers = st.lists(st.sampled_from(EVERYBODY), unique=True)


@st.composite
def movings(draw: st.DrawFn) -> PartitionState:
    replicas = draw(brokers.filter(bool))
    isr = draw(st.lists(st.sampled_from(replicas), unique=True, min_size=1))
    others = [broker for broker in replicas if broker not in isr]
    elr = draw(st.lists(st.sampled_from(others), unique=True)) if others else []
    last_known = draw(st.lists(st.sampled_from(replicas), unique=True))
    state = partition(isr[0], isr, replicas, elr=elr, last_known=last_known)
    for _ in range(draw(st.integers(0, 2))):
        state = begin(state, tuple(draw(brokers.filter(bool))))
    return state


@given(movings(), brokers, brokers.filter(bool))
def test_whatever_happens_a_leader_is_in_sync_and_in_sync_replicas_are_replicas(
    state: PartitionState, alive: list[BrokerId], target: list[BrokerId]
) -> None:
    outcomes = [
        begin(state, tuple(target)),
        plan_reassignment_step(state, alive, 1),
        plan_redirection(state, tuple(target), alive, 1),
    ]
    if is_moving(state):
        outcomes.append(plan_cancellation(state, alive, 1))
    for outcome in outcomes:
        if outcome is None:
            continue
        assert outcome.leader in outcome.isr
        assert set(outcome.isr) <= set(outcome.replicas)
        assert set(outcome.isr) <= {*state.isr, *state.elr}
        assert set(outcome.elr) <= {*outcome.replicas} & {*state.elr} - {*outcome.isr}
        assert set(outcome.last_known_elr) <= set(outcome.replicas)
        is_another = set(outcome.replicas) != set(state.replicas)
        raised = outcome.leader != state.leader or is_another  # CTL-3
        assert outcome.leader_epoch == state.leader_epoch + raised
        assert set(outcome.adding_replicas) <= set(outcome.replicas)
        assert set(outcome.removing_replicas) <= set(outcome.replicas)


def test_a_redirection_that_arrives_at_once_begins_one_epoch() -> None:
    arrived = plan_redirection(partition(1, [1, 2], [1, 2]), ids(2), EVERYBODY, EPOCH)
    assert arrived is not None
    assert (arrived.replicas, arrived.leader, arrived.leader_epoch) == ((2,), 2, 6)
    assert plan_redirection(arrived, ids(2), EVERYBODY, EPOCH) is None


def test_a_replica_that_leaves_and_comes_back_does_so_under_new_epochs() -> None:
    """Its fetches from before are of another epoch, and so do not count (CTL-3)."""
    before = partition(1, [1, 2], [1, 2])
    away = plan_redirection(before, ids(1), EVERYBODY, EPOCH)
    assert away is not None
    back = plan_redirection(away, ids(1, 2), EVERYBODY, EPOCH)
    assert back is not None
    assert (back.replicas, back.isr) == ((1, 2), (1,))
    assert before.leader_epoch < away.leader_epoch < back.leader_epoch


@given(movings(), brokers)
def test_a_step_is_planned_once(state: PartitionState, alive: list[BrokerId]) -> None:
    arrived = plan_reassignment_step(state, alive, 1)
    if arrived is not None:
        assert plan_reassignment_step(arrived, alive, 1) is None
        assert arrived.replicas == target_replicas(state)


@given(movings(), brokers.filter(bool))
def test_beginning_twice_is_beginning_once(state: PartitionState, target: list[BrokerId]) -> None:
    begun = begin(state, tuple(target))
    assert begin(begun, tuple(target)) == begun
    assert target_replicas(begun) == tuple(target)
