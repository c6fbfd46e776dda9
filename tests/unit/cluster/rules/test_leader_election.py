from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.leader_election import (
    Election,
    PlannedState,
    decide_state,
    elect,
    first_state,
    plan_elections,
)
from moldau.cluster.rules.metadata_image import NO_BROKER, PartitionState, TopicState
from moldau.model import BrokerId, LeaderEpoch, TopicId


def ids(*numbers: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(number) for number in numbers)


def partition(
    leader: int, isr: tuple[BrokerId, ...], replicas: tuple[BrokerId, ...]
) -> PartitionState:
    return PartitionState(
        leader=BrokerId(leader),
        leader_epoch=LeaderEpoch(5),
        isr=isr,
        replicas=replicas,
        controller_epoch=3,
        version=7,
    )


def topic(name: str, *partitions: PartitionState) -> TopicState:
    return TopicState(name=name, topic_id=TopicId(UUID(int=1)), partitions=partitions)


def test_the_first_replica_that_is_alive_and_in_sync_leads() -> None:
    election = elect(ids(1, 2, 3), ids(3, 2), ids(1, 2, 3), unclean_allowed=False)
    assert election == Election(BrokerId(2), ids(3, 2))


def test_brokers_that_are_gone_leave_the_in_sync_set() -> None:
    election = elect(ids(1, 2, 3), ids(1, 2, 3), ids(2, 3), unclean_allowed=False)
    assert election == Election(BrokerId(2), ids(2, 3))


def test_nobody_leads_when_no_replica_in_sync_is_alive() -> None:
    assert elect(ids(1, 2), ids(1), ids(2), unclean_allowed=False) is None


def test_an_unclean_election_takes_the_first_living_replica_alone() -> None:
    election = elect(ids(1, 2, 3), ids(1), ids(2, 3), unclean_allowed=True)
    assert election == Election(BrokerId(2), ids(2), unclean=True)


def test_a_clean_leader_is_preferred_where_unclean_ones_are_allowed() -> None:
    election = elect(ids(1, 2, 3), ids(3), ids(1, 2, 3), unclean_allowed=True)
    assert election == Election(BrokerId(3), ids(3))


def test_not_even_an_unclean_election_takes_a_dead_broker() -> None:
    assert elect(ids(1, 2), ids(1), ids(3), unclean_allowed=True) is None


def test_a_new_partition_is_led_by_its_first_living_replica() -> None:
    state = first_state(ids(1, 2, 3), ids(2, 3), controller_epoch=4)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 0, (2, 3))
    assert (state.replicas, state.controller_epoch) == ((1, 2, 3), 4)


def test_a_new_partition_without_a_living_replica_has_no_leader() -> None:
    state = first_state(ids(1), (), controller_epoch=4)
    assert (state.leader, state.isr) == (NO_BROKER, ())


def test_a_living_leader_stays() -> None:
    state = partition(2, ids(1, 2), ids(1, 2))
    assert decide_state(state, ids(1, 2), unclean_allowed=True, controller_epoch=4) is None


def test_a_dead_leader_is_replaced_under_a_new_epoch() -> None:
    state = partition(1, ids(1, 2), ids(1, 2))
    decided = decide_state(state, ids(2), unclean_allowed=False, controller_epoch=4)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (2, 6, (2,))
    assert decided.version == state.version


def test_when_nobody_may_lead_the_in_sync_set_is_remembered() -> None:
    state = partition(1, ids(1), ids(1, 2))
    decided = decide_state(state, ids(2), unclean_allowed=False, controller_epoch=4)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (NO_BROKER, 6, (1,))
    assert decide_state(decided, ids(2), unclean_allowed=False, controller_epoch=4) is None


def test_the_last_in_sync_replica_leads_when_it_comes_back() -> None:
    state = partition(-1, ids(1), ids(1, 2))
    decided = decide_state(state, ids(1, 2), unclean_allowed=False, controller_epoch=4)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (1, 6, (1,))


def test_a_partition_without_a_state_gets_its_first_one() -> None:
    state = replace(partition(-1, (), ids(1, 2)), version=-1, leader_epoch=LeaderEpoch(0))
    decided = decide_state(state, ids(1, 2), unclean_allowed=False, controller_epoch=4)
    assert decided == first_state(ids(1, 2), ids(1, 2), 4)
    assert decide_state(state, ids(3), unclean_allowed=False, controller_epoch=4) is None


def test_a_plan_names_the_partitions_whose_leader_is_gone() -> None:
    one = topic("one", partition(3, ids(3, 1), ids(3, 1)), partition(2, ids(2), ids(2)))
    two = topic("two", partition(3, ids(3, 2), ids(3, 2)))
    plan = plan_elections(
        [one, two],
        ids(1, 2),
        unclean_allowed=lambda _: False,
        controller_epoch=9,
    )
    assert [(p.topic.name, p.partition, p.state.leader) for p in plan] == [
        ("one", 0, 1),
        ("two", 0, 2),
    ]
    assert all(p.state.leader_epoch == 6 and p.state.controller_epoch == 9 for p in plan)


def test_unclean_election_is_decided_topic_by_topic() -> None:
    brave, careful = (topic(name, partition(1, ids(1), ids(1, 2))) for name in ("brave", "careful"))
    plan = plan_elections(
        [brave, careful],
        ids(2),
        unclean_allowed=lambda topic: topic.name == "brave",
        controller_epoch=9,
    )
    assert [p.state.leader for p in plan] == [2, NO_BROKER]


brokers = st.integers(1, 5).map(BrokerId)
broker_sets = st.lists(brokers, unique=True)


@given(st.lists(brokers, unique=True, min_size=1), st.data(), broker_sets, st.booleans())
def test_a_leader_is_alive_a_replica_and_in_its_own_in_sync_set(
    replicas: list[BrokerId], data: st.DataObject, alive: list[BrokerId], unclean: bool
) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), unique=True))
    election = elect(replicas, isr, alive, unclean_allowed=unclean)
    candidates = set(replicas if unclean else isr) & set(alive)
    if election is None:
        assert not candidates
        return
    assert election.leader in candidates
    assert election.leader in election.isr
    assert set(election.isr) <= set(alive) & set(replicas)
    assert election.unclean == (not set(isr) & set(alive))


@pytest.mark.parametrize("unclean", [True, False])
def test_two_elections_in_a_row_change_nothing_the_second_time(unclean: bool) -> None:
    state = partition(1, ids(1, 3), ids(1, 2, 3))
    decided = decide_state(state, ids(2, 3), unclean_allowed=unclean, controller_epoch=4)
    assert decided is not None
    assert decide_state(decided, ids(2, 3), unclean_allowed=unclean, controller_epoch=5) is None


# Replicas that are gone


def test_a_dead_follower_leaves_the_in_sync_set_and_the_epoch_stays() -> None:
    (one,) = plan(partition(1, ids(1, 2, 3), ids(1, 2, 3)), alive=ids(1, 3))
    assert (one.state.leader, one.state.isr, one.state.leader_epoch) == (1, (1, 3), 5)


def test_the_last_one_in_sync_is_never_taken_out() -> None:
    (one,) = plan(partition(1, ids(1), ids(1, 2)), alive=ids(2))
    assert (one.state.leader, one.state.isr) == (NO_BROKER, (1,))
    assert plan(one.state, alive=ids(2)) == []


def test_a_leader_that_is_not_in_the_set_itself_empties_it_neither() -> None:
    assert plan(partition(1, ids(2), ids(1, 2)), alive=ids(1)) == []


def test_an_empty_in_sync_set_elects_nobody_but_by_an_unclean_election() -> None:
    state = partition(-1, (), ids(1, 2))
    assert plan(state, alive=ids(1, 2)) == []
    (one,) = plan(state, alive=ids(1, 2), unclean=True)
    assert (one.state.leader, one.state.isr) == (1, (1,))


def test_whether_unclean_is_allowed_is_asked_only_where_nobody_else_can_lead() -> None:
    def allowed(topic: TopicState) -> bool:
        raise AssertionError(topic.name)

    plan_elections(
        [topic("t", partition(1, ids(1, 2), ids(1, 2)), partition(3, ids(3, 2), ids(3, 2)))],
        ids(1, 2),
        unclean_allowed=allowed,
        controller_epoch=4,
    )


def plan(
    state: PartitionState, *, alive: tuple[BrokerId, ...], unclean: bool = False
) -> list[PlannedState]:
    return plan_elections(
        [topic("t", state)],
        alive,
        unclean_allowed=lambda _: unclean,
        controller_epoch=4,
    )
