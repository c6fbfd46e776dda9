from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from moldau.cluster.rules.leader_election import (
    Election,
    PlannedState,
    decide_partition_state,
    elect_leader,
    first_partition_state,
    plan_elections,
)
from moldau.cluster.rules.metadata_image import PartitionState, TopicState
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicId


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
    election = elect_leader(ids(1, 2, 3), ids(3, 2), ids(1, 2, 3))
    assert election == Election(BrokerId(2), ids(3, 2))


def test_brokers_that_are_gone_leave_the_in_sync_set() -> None:
    election = elect_leader(ids(1, 2, 3), ids(1, 2, 3), ids(2, 3))
    assert election == Election(BrokerId(2), ids(2, 3))


def test_nobody_leads_when_no_replica_in_sync_is_alive() -> None:
    assert elect_leader(ids(1, 2), ids(1), ids(2)) is None


def test_one_that_is_eligible_leads_alone_when_nobody_in_sync_is_alive() -> None:
    election = elect_leader(ids(1, 2, 3), ids(1), ids(2, 3), eligible=ids(3))
    assert election == Election(BrokerId(3), ids(3))


def test_who_is_in_sync_goes_before_who_is_eligible() -> None:
    election = elect_leader(ids(1, 2, 3), ids(3), ids(1, 2, 3), eligible=ids(1))
    assert election == Election(BrokerId(3), ids(3))


def test_who_is_eligible_and_dead_does_not_lead() -> None:
    assert elect_leader(ids(1, 2), ids(1), ids(3), eligible=ids(2, 3)) is None


def test_a_new_partition_is_led_by_its_first_living_replica() -> None:
    state = first_partition_state(ids(1, 2, 3), ids(2, 3), controller_epoch=4)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 0, (2, 3))
    assert (state.replicas, state.controller_epoch) == ((1, 2, 3), 4)


def test_a_new_partition_without_a_living_replica_has_no_leader() -> None:
    state = first_partition_state(ids(1), (), controller_epoch=4)
    assert (state.leader, state.isr) == (NO_BROKER, ())


def test_a_living_leader_stays() -> None:
    state = partition(2, ids(1, 2), ids(1, 2))
    assert decide_partition_state(state, ids(1, 2), min_in_sync=1, controller_epoch=4) is None


def test_a_dead_leader_is_replaced_under_a_new_epoch() -> None:
    state = partition(1, ids(1, 2), ids(1, 2))
    decided = decide_partition_state(state, ids(2), min_in_sync=1, controller_epoch=4)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (2, 6, (2,))
    assert decided.version == state.version


def test_when_nobody_may_lead_the_in_sync_set_is_remembered() -> None:
    state = partition(1, ids(1), ids(1, 2))
    decided = decide_partition_state(state, ids(2), min_in_sync=1, controller_epoch=4)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (NO_BROKER, 6, (1,))
    assert decide_partition_state(decided, ids(2), min_in_sync=1, controller_epoch=4) is None


def test_the_last_in_sync_replica_leads_when_it_comes_back() -> None:
    state = partition(-1, ids(1), ids(1, 2))
    decided = decide_partition_state(state, ids(1, 2), min_in_sync=1, controller_epoch=4)
    assert decided is not None
    assert (decided.leader, decided.leader_epoch, decided.isr) == (1, 6, (1,))


def test_a_partition_without_a_state_gets_its_first_one() -> None:
    state = replace(partition(-1, (), ids(1, 2)), version=-1, leader_epoch=LeaderEpoch(0))
    decided = decide_partition_state(state, ids(1, 2), min_in_sync=1, controller_epoch=4)
    assert decided == first_partition_state(ids(1, 2), ids(1, 2), 4)
    assert decide_partition_state(state, ids(3), min_in_sync=1, controller_epoch=4) is None


def test_a_plan_names_the_partitions_whose_leader_is_gone() -> None:
    one = topic("one", partition(3, ids(3, 1), ids(3, 1)), partition(2, ids(2), ids(2)))
    two = topic("two", partition(3, ids(3, 2), ids(3, 2)))
    plan = plan_elections(
        [one, two],
        ids(1, 2),
        min_in_sync_of=lambda _: 1,
        controller_epoch=9,
    )
    assert [(p.topic.name, p.partition, p.state.leader) for p in plan] == [
        ("one", 0, 1),
        ("two", 0, 2),
    ]
    assert all(p.state.leader_epoch == 6 and p.state.controller_epoch == 9 for p in plan)


def test_what_must_be_in_sync_is_asked_topic_by_topic() -> None:
    one, two = (topic(name, partition(1, ids(1, 2), ids(1, 2))) for name in ("one", "two"))
    plan = plan_elections(
        [one, two],
        ids(1),
        min_in_sync_of=lambda topic: 2 if topic.name == "two" else 1,
        controller_epoch=9,
    )
    assert [(p.state.isr, p.state.elr) for p in plan] == [((1,), ()), ((1,), (2,))]


brokers = st.integers(1, 5).map(BrokerId)
broker_sets = st.lists(brokers, unique=True)


@given(st.lists(brokers, unique=True, min_size=1), st.data(), broker_sets)
def test_a_leader_is_alive_a_replica_and_in_its_own_in_sync_set(
    replicas: list[BrokerId], data: st.DataObject, alive: list[BrokerId]
) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), unique=True))
    eligible = data.draw(st.lists(st.sampled_from(replicas), unique=True))
    election = elect_leader(replicas, isr, alive, eligible=eligible)
    candidates = {*isr, *eligible} & set(alive)
    if election is None:
        assert not candidates
        return
    assert election.leader in candidates
    assert election.leader in election.isr
    assert set(election.isr) <= set(alive) & set(replicas)
    if set(isr) & set(alive):
        assert election.leader in isr


def test_two_elections_in_a_row_change_nothing_the_second_time() -> None:
    state = partition(1, ids(1, 3), ids(1, 2, 3))
    decided = decide_partition_state(state, ids(2, 3), min_in_sync=2, controller_epoch=4)
    assert decided is not None
    assert decide_partition_state(decided, ids(2, 3), min_in_sync=2, controller_epoch=5) is None


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


def test_an_empty_in_sync_set_elects_nobody() -> None:
    assert plan(partition(-1, (), ids(1, 2)), alive=ids(1, 2)) == []


def test_options_are_looked_at_only_where_something_may_change() -> None:
    def fail(topic: TopicState) -> int:
        raise AssertionError(topic.name)

    plan_elections(
        [topic("t", partition(1, ids(1, 2), ids(1, 2)), partition(2, ids(2), ids(3, 2)))],
        ids(1, 2),
        min_in_sync_of=fail,
        controller_epoch=4,
    )


# Eligible leaders (ELR-2)


def test_a_leader_that_is_killed_stays_eligible_behind_the_last_one_in_sync() -> None:
    (one,) = plan(partition(3, ids(3, 4), ids(3, 4, 5)), alive=ids(4, 5), min_in_sync=2)
    assert (one.state.leader, one.state.isr, one.state.elr) == (4, (4,), (3,))


def test_when_everybody_is_gone_the_first_of_those_who_have_everything_leads_again() -> None:
    former = replace(partition(4, ids(4), ids(3, 4, 5)), elr=ids(3))
    (gone,) = plan(former, alive=ids(5), min_in_sync=2)
    assert (gone.state.leader, gone.state.isr, gone.state.elr) == (NO_BROKER, (4,), (3,))
    assert gone.state.last_known_leader == 4
    (back,) = plan(gone.state, alive=ids(3, 5), min_in_sync=2)
    assert (back.state.leader, back.state.isr, back.state.elr) == (3, (3,), (4,))
    assert (back.state.leader_epoch, back.state.last_known_leader) == (7, NO_BROKER)


def plan(
    state: PartitionState, *, alive: tuple[BrokerId, ...], min_in_sync: int = 1
) -> list[PlannedState]:
    return plan_elections(
        [topic("t", state)],
        alive,
        min_in_sync_of=lambda _: min_in_sync,
        controller_epoch=4,
    )
