"""What a broker writes when it goes, and before it comes back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.broker_shutdown import (
    ReplicaCondition,
    decide_condition,
    find_only_copies,
    plan_broker_start,
    plan_controlled_shutdown,
    plan_regressed_store,
)
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState, TopicState
from moldau.model import BrokerId, LeaderEpoch, TopicPartition

from .partitions import NOBODY, ids, partition, topic

SELF = BrokerId(1)


def handed_over(
    state: PartitionState, *alive: int, min_in_sync: int = 1, is_whole: bool = True
) -> PartitionState | None:
    plan = plan_controlled_shutdown(
        [topic(state)],
        SELF,
        ids(*alive),
        min_in_sync_of=lambda _: min_in_sync,
        is_whole=is_whole,
    )
    return plan[0].state if plan else None


def returned(
    state: PartitionState, condition: ReplicaCondition, *alive: int, min_in_sync: int = 1
) -> PartitionState | None:
    plan = plan_broker_start(
        [topic(state)],
        SELF,
        ids(*alive),
        lambda *_: condition,
        min_in_sync_of=lambda _: min_in_sync,
    )
    return plan[0].state if plan else None


# Going


def test_what_a_broker_leads_goes_to_the_next_in_sync_under_a_new_epoch() -> None:
    state = handed_over(partition(1, [3, 1, 2], [1, 2, 3]), 1, 2, 3)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (2, 6, (3, 2))


def test_a_follower_leaves_the_in_sync_set_and_the_epoch_stays() -> None:
    state = handed_over(partition(2, [1, 2], [1, 2]), 1, 2)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (2, 5, (2,))


@pytest.mark.parametrize(
    "state",
    [
        partition(1, [1], [1, 2]),  # nobody else is in sync
        partition(1, [1, 3], [1, 2, 3]),  # the other one is dead
        partition(NOBODY, [1], [1, 2]),  # the last one stays
        partition(2, [2], [1, 2]),  # not in the set
        partition(2, [2], [2]),  # not even a replica
    ],
)
def test_what_nobody_can_take_stays(state: PartitionState) -> None:
    assert handed_over(state, 1, 2) is None


def test_only_what_it_is_about_is_handed_over() -> None:
    states = [partition(1, [1, 2], [1, 2])] * 3

    def concerns(topic: TopicState, number: int) -> bool:
        return number == 1

    plan = plan_controlled_shutdown(
        [topic(*states)], SELF, ids(1, 2), min_in_sync_of=lambda _: 1, concerns=concerns
    )
    assert [one.partition for one in plan] == [1]


def test_who_leaves_too_few_behind_is_eligible() -> None:
    state = handed_over(partition(1, [1, 2], [1, 2, 3]), 1, 2, 3, min_in_sync=2)
    assert state is not None
    assert (state.leader, state.isr, state.elr) == (2, (2,), (1,))


def test_who_leaves_for_a_dead_disk_is_not_eligible_but_remembered() -> None:
    state = handed_over(partition(1, [1, 2], [1, 2, 3]), 1, 2, 3, min_in_sync=2, is_whole=False)
    assert state is not None
    assert (state.isr, state.elr, state.last_known_elr) == ((2,), (), (1,))
    state = handed_over(
        partition(2, [2], [1, 2, 3], elr=[1, 3]), 1, 2, 3, min_in_sync=2, is_whole=False
    )
    assert state is not None
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (2, (2,), (3,), (1,))


def test_the_last_one_in_sync_hands_over_to_one_that_is_eligible() -> None:
    former = partition(1, [1], [1, 2, 3], elr=[3])
    state = handed_over(former, 1, 2, 3, min_in_sync=2)
    assert state is not None
    assert (state.leader, state.leader_epoch) == (3, 6)
    assert (state.isr, state.elr) == ((3,), (1,))


# Coming back


def test_a_whole_replica_that_is_eligible_stays_so() -> None:
    state = partition(2, [2], [1, 2, 3], elr=[1])
    assert returned(state, ReplicaCondition.WHOLE, 2, min_in_sync=2) is None


def test_a_replica_with_a_hole_is_not_eligible_but_remembered() -> None:
    former = partition(2, [2], [1, 2, 3], elr=[1, 3])
    state = returned(former, ReplicaCondition.HOLE, 2, min_in_sync=2)
    assert state is not None
    assert (state.leader, state.leader_epoch) == (2, 5)
    assert (state.isr, state.elr, state.last_known_elr) == ((2,), (3,), (1,))


def test_the_last_leader_is_remembered_when_it_comes_back_with_a_hole() -> None:
    state = returned(partition(1, [1], [1, 2], elr=[2]), ReplicaCondition.HOLE, min_in_sync=2)
    assert state is not None
    assert (state.leader, state.last_known_leader) == (NOBODY, 1)
    assert (state.isr, state.elr, state.last_known_elr) == ((), (2,), (1,))


def test_who_had_not_everything_before_its_hole_is_not_remembered() -> None:
    state = returned(partition(2, [2], [1, 2, 3]), ReplicaCondition.HOLE, 2, min_in_sync=2)
    assert state is not None
    assert state.last_known_elr == ()


def test_a_whole_replica_leads_again_under_a_new_epoch() -> None:
    state = returned(partition(1, [1, 2], [1, 2]), ReplicaCondition.WHOLE, 2)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (1, 6, (1, 2))


def test_a_whole_replica_that_follows_has_nothing_to_say() -> None:
    assert returned(partition(2, [2, 1], [1, 2]), ReplicaCondition.WHOLE, 2) is None


def test_a_replica_with_a_hole_leaves_the_set_and_leads_nothing() -> None:
    state = returned(partition(1, [1, 2], [1, 2]), ReplicaCondition.HOLE, 2)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (NOBODY, 6, (2,))


def test_a_replica_with_a_hole_leaves_the_set_even_as_the_last_one() -> None:
    state = returned(partition(NOBODY, [1], [1, 2]), ReplicaCondition.HOLE, 2)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (NOBODY, 5, ())


def test_a_state_is_written_anew_for_a_hole_outside_the_set() -> None:
    former = partition(2, [2], [1, 2])
    assert returned(former, ReplicaCondition.HOLE, 2) == former


def test_the_only_replica_leads_on_with_a_hole_under_a_new_epoch() -> None:
    state = returned(partition(1, [1], [1]), ReplicaCondition.HOLE)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (1, 6, (1,))


def test_a_replica_on_a_dead_disk_is_handed_over_but_stays_as_the_last_one() -> None:
    state = returned(partition(1, [1, 2], [1, 2]), ReplicaCondition.OFFLINE, 2)
    assert state is not None
    assert (state.leader, state.isr) == (2, (2,))
    assert returned(partition(1, [1], [1, 2]), ReplicaCondition.OFFLINE, 2) is None


def test_a_partition_without_a_state_is_left_to_the_controller() -> None:
    assert returned(partition(1, [1], [1, 2], version=NO_NODE), ReplicaCondition.HOLE) is None


sets = st.lists(st.sampled_from(ids(1, 2, 3)), unique=True)


@given(sets, sets, sets, st.sampled_from(ReplicaCondition), st.integers(1, 4), st.booleans())
def test_no_plan_lets_a_replica_lead_that_was_not_in_sync_or_eligible(
    isr: list[BrokerId],
    elr: list[BrokerId],
    alive: list[BrokerId],
    condition: ReplicaCondition,
    min_in_sync: int,
    is_whole: bool,
) -> None:
    eligible = [broker for broker in elr if broker not in isr]
    former = partition(isr[0] if isr else NOBODY, isr, [1, 2, 3], elr=eligible)
    decisions: list[Callable[[], PartitionState | None]] = [
        lambda: handed_over(former, *alive, min_in_sync=min_in_sync, is_whole=is_whole),
        lambda: returned(former, condition, *alive, min_in_sync=min_in_sync),
    ]
    for decide in decisions:
        state = decide()
        if state is not None:
            had_all = {*former.isr, *former.elr}
            assert state.leader == NOBODY or state.leader in had_all
            assert {*state.isr, *state.elr} <= had_all
            assert not set(state.isr) & set(state.elr)
            assert state.leader == NOBODY or state.leader in state.isr


# What a replica is worth


def condition(**changes: bool) -> ReplicaCondition:
    whole = {
        "has_log": True,
        "is_disk_missing": False,
        "is_missed": False,
        "was_served": False,
        "was_spared": True,
        "has_lost_its_end": False,
    }
    return decide_condition(**{**whole, **changes})


def test_a_log_is_whole_when_nothing_that_was_written_can_be_lost() -> None:
    assert condition() is ReplicaCondition.WHOLE
    assert condition(was_spared=False) is ReplicaCondition.HOLE
    assert condition(has_lost_its_end=True) is ReplicaCondition.HOLE


def test_a_log_that_was_in_use_until_its_topic_vanished_is_whole() -> None:
    assert (
        condition(was_served=True, was_spared=False, has_lost_its_end=True)
        is ReplicaCondition.WHOLE
    )


def test_a_log_that_is_not_there_is_a_hole_or_on_a_disk_that_is_missing() -> None:
    assert condition(has_log=False) is ReplicaCondition.HOLE
    assert condition(has_log=False, was_served=True) is ReplicaCondition.HOLE
    assert condition(has_log=False, is_disk_missing=True) is ReplicaCondition.OFFLINE
    assert condition(has_log=False, is_missed=True) is ReplicaCondition.GONE
    assert (
        condition(has_log=False, is_missed=True, is_disk_missing=True) is ReplicaCondition.OFFLINE
    )


# What would be lost with a log


@pytest.mark.parametrize(
    ("state", "is_only_copy"),
    [
        (partition(1, [1], [1]), True),
        (partition(NOBODY, [], [1], version=NO_NODE), True),  # its state is gone, too
        (partition(NOBODY, [], [1, 2], version=NO_NODE), False),  # it is new
        (partition(1, [1], [1, 2]), True),
        (partition(1, [1, 2], [1, 2]), False),
        (partition(2, [2], [1, 2]), False),
        (partition(NOBODY, [], [1, 2], elr=[1, 2]), False),
        (partition(1, [1], [1, 2], elr=[2]), False),
        (partition(NOBODY, [], [1, 2], elr=[1]), True),
        (partition(NOBODY, [], [1, 2, 3], last_known=[2, 3]), False),
        (partition(NOBODY, [], [1, 2, 3], last_known=[1, 2]), True),
        (partition(NOBODY, [], [1, 2], last_leader=1), True),
        (partition(NOBODY, [], [1, 2]), True),  # the store was set back: it may be anybody
        (partition(2, [2], [2]), False),  # not even a replica
    ],
)
def test_a_lost_log_is_the_only_copy_where_nobody_else_is_known_to_have_everything(
    state: PartitionState, is_only_copy: bool
) -> None:
    found = find_only_copies([topic(state)], SELF, lambda *_: True)
    assert found == ([TopicPartition("clicks", 0)] if is_only_copy else [])
    assert find_only_copies([topic(state)], SELF, lambda *_: False) == []


# A store that was set back


FOLLOWED = partition(2, [1, 2], [1, 2], elr=[2], last_known=[2], last_leader=2)  # in epoch 5


@pytest.mark.parametrize("condition", ReplicaCondition)
def test_who_has_seen_a_later_epoch_has_everybody_waited_for(condition: ReplicaCondition) -> None:
    (planned,) = plan_broker_start(
        [topic(FOLLOWED)],
        SELF,
        ids(1, 2),
        lambda *_: condition,
        lambda *_: 6,
        min_in_sync_of=lambda _: 1,
    )
    state = planned.state
    assert (state.leader, state.leader_epoch, state.isr) == (NOBODY, 7, ())
    assert (state.elr, state.last_known_elr, state.last_known_leader) == ((), (), NOBODY)
    assert state.replicas == FOLLOWED.replicas


def test_who_has_seen_the_epoch_of_the_store_comes_back_as_ever() -> None:
    def plan(seen_epoch: int) -> list[PlannedState]:
        return plan_broker_start(
            [topic(FOLLOWED)],
            SELF,
            ids(1, 2),
            lambda *_: ReplicaCondition.WHOLE,
            lambda *_: seen_epoch,
            min_in_sync_of=lambda _: 1,
        )

    assert plan(5) == plan(4) == []
    assert len(plan(6)) == 1


def test_the_only_replica_leads_on_behind_the_epoch_that_it_has_seen() -> None:
    (planned,) = plan_regressed_store([topic(partition(1, [1], [1]))], SELF, lambda *_: 6)
    assert (planned.state.leader, planned.state.leader_epoch) == (1, 7)
    assert planned.state.isr == (1,)


def test_a_store_is_set_back_where_a_later_epoch_was_seen_also_of_others_partitions() -> None:
    others = partition(2, [2], [2, 3])
    topics = [topic(others, FOLLOWED, partition(1, [1], [1], version=NO_NODE))]
    assert plan_regressed_store(topics, SELF, lambda *_: 5) == []
    plan = plan_regressed_store(topics, SELF, lambda *_: 6)
    assert [(one.partition, one.former) for one in plan] == [(0, others), (1, FOLLOWED)]
    assert all(one.state.leader == NOBODY for one in plan)
    only_second = plan_regressed_store(topics, SELF, lambda _, number: 6 if number == 1 else -1)
    assert [one.partition for one in only_second] == [1]


def test_a_new_partition_of_epoch_0_is_not_set_back_by_who_has_seen_nothing() -> None:
    fresh = replace(partition(2, [1, 2], [1, 2]), leader_epoch=LeaderEpoch(0))
    assert returned(fresh, ReplicaCondition.WHOLE, 1, 2) is None
