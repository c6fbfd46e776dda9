"""Giving leadership back to the first replicas."""

from __future__ import annotations

from moldau.cluster.rules.leader_election import (
    PlannedState,
    plan_rebalancing,
    prefer_first_replica,
)
from moldau.cluster.rules.metadata_image import PartitionState

from .partitions import NOBODY, ids, partition, topic


def rebalanced(
    *partitions: PartitionState, alive: tuple[int, ...] = (1, 2), accepted: int = 10
) -> list[PlannedState]:
    return plan_rebalancing(
        [topic(*partitions)], ids(*alive), accepted_percentage=accepted, controller_epoch=4
    )


def test_the_first_replica_takes_over_under_a_new_epoch() -> None:
    state = prefer_first_replica(partition(2, [2, 1], [1, 2]), ids(1, 2), 4)
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (1, 6, (2, 1))
    assert state.controller_epoch == 4


def test_a_first_replica_that_is_not_in_sync_or_not_alive_does_not_take_over() -> None:
    assert prefer_first_replica(partition(2, [2], [1, 2]), ids(1, 2), 4) is None
    assert prefer_first_replica(partition(2, [2, 1], [1, 2]), ids(2), 4) is None


def test_a_broker_that_lost_too_much_gets_it_back() -> None:
    plan = rebalanced(partition(2, [2, 1], [1, 2]), partition(1, [2, 1], [1, 2]))
    assert [(one.partition, one.state.leader) for one in plan] == [(0, 1)]


def test_what_is_accepted_stays_as_it_is() -> None:
    led = [partition(1, [1, 2], [1, 2])] * 9
    lost = partition(2, [2, 1], [1, 2])
    assert rebalanced(*led, lost) == []
    assert [one.partition for one in rebalanced(*led[1:], lost)] == [8]


def test_each_broker_is_counted_for_itself() -> None:
    others = [partition(2, [1, 2], [2, 1])] * 50
    plan = rebalanced(*others, partition(2, [2, 1], [1, 2]))
    assert [one.partition for one in plan] == [50]


def test_dead_brokers_and_moving_partitions_are_left_alone() -> None:
    lost = partition(2, [2, 1], [1, 2])
    assert rebalanced(lost, alive=(2,)) == []
    assert rebalanced(partition(2, [2, 1], [1, 2, 3], adding=[3])) == []


def test_a_partition_that_nobody_leads_gets_its_preferred_leader() -> None:
    (one,) = rebalanced(partition(NOBODY, [1], [1, 2]))
    assert one.state.leader == 1
