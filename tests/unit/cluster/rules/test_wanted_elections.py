"""Elections that somebody asks for: what is decided, and why not."""

from __future__ import annotations

import pytest

from moldau.cluster.rules.leader_election import (
    LogEnd,
    PlannedState,
    decide_preferred_election,
    decide_unclean_election,
    find_without_leader,
    is_unclean_election,
    plan_requested_elections,
)
from moldau.cluster.rules.metadata_image import (
    NO_NODE,
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    LeaderNotAvailableError,
    PreferredLeaderNotAvailableError,
    UnknownTopicError,
)
from moldau.model import BrokerId, TopicPartition

from .partitions import NOBODY, ids, partition, topic

CLICKS_0, CLICKS_1, CLICKS_2 = (TopicPartition("clicks", number) for number in range(3))
ORDERS_0 = TopicPartition("orders", 0)


def image(*partitions: PartitionState, alive: tuple[int, ...] = (1, 2)) -> MetadataImage:
    brokers = {broker: BrokerState(id=broker, endpoints=()) for broker in ids(*alive)}
    return MetadataImage(cluster_id="cluster", brokers=brokers).with_topics([topic(*partitions)])


def unclean(
    state: PartitionState, *alive: int, ends: dict[BrokerId, LogEnd] | None = None
) -> PartitionState:
    return decide_unclean_election(
        state, ids(*alive), ends or {}, min_in_sync=1, controller_epoch=4
    )


# The preferred replica


def test_the_preferred_replica_leads() -> None:
    state = decide_preferred_election(partition(2, [2, 1], [1, 2]), ids(1, 2), 4)
    assert (state.leader, state.leader_epoch, state.controller_epoch) == (1, 6, 4)


def test_a_preferred_replica_that_leads_needs_no_election() -> None:
    with pytest.raises(ElectionNotNeededError):
        decide_preferred_election(partition(1, [1, 2], [1, 2]), ids(1, 2), 4)


def test_a_preferred_replica_that_is_away_or_behind_does_not_lead() -> None:
    for state, alive in (
        (partition(2, [2], [1, 2]), ids(1, 2)),
        (partition(2, [2, 1], [1, 2]), ids(2)),
        (partition(1, [1, 2], [1, 2]), ids(2)),
    ):
        with pytest.raises(PreferredLeaderNotAvailableError):
            decide_preferred_election(state, alive, 4)


# Unclean ones


def test_where_a_living_broker_leads_nothing_is_lost() -> None:
    with pytest.raises(ElectionNotNeededError):
        unclean(partition(2, [2], [1, 2]), 1, 2)


def test_who_has_everything_leads_before_anybody_else() -> None:
    former = partition(NOBODY, [2], [1, 2])
    state = unclean(former, 1, 2, ends={BrokerId(1): LogEnd(9, 100)})
    assert state.leader == 2
    assert not is_unclean_election(PlannedState(topic(former), 0, former, state))


def test_of_those_who_tell_their_ends_the_best_leads() -> None:
    former = partition(3, [3], [1, 2, 3])
    ends = {BrokerId(1): LogEnd(4, 100), BrokerId(2): LogEnd(5, 10)}
    state = unclean(former, 1, 2, ends=ends)
    assert (state.leader, state.isr) == (2, (2,))
    assert is_unclean_election(PlannedState(topic(former), 0, former, state))


def test_where_nobody_tells_the_first_that_lives_leads() -> None:
    assert unclean(partition(3, [3], [1, 2, 3]), 1, 2).leader == 1


def test_where_nobody_lives_nobody_leads() -> None:
    with pytest.raises(EligibleLeadersNotAvailableError):
        unclean(partition(NOBODY, [3], [1, 2, 3]), 4)


# Many at once


def test_each_partition_is_planned_or_refused() -> None:
    known = image(
        partition(2, [2, 1], [1, 2]),
        partition(1, [1], [1, 2]),
        partition(1, [1], [1], version=NO_NODE),
    )

    def decide(topic: TopicState, number: int, state: PartitionState) -> PartitionState:
        return decide_preferred_election(state, known.brokers.keys(), 4)

    found = plan_requested_elections(known, [CLICKS_0, CLICKS_1, CLICKS_2, ORDERS_0], decide)
    assert [(one.partition, one.state.leader) for one in found.plan] == [(0, 1)]
    assert {key: type(error) for key, error in found.refused.items()} == {
        CLICKS_1: ElectionNotNeededError,
        CLICKS_2: LeaderNotAvailableError,
        ORDERS_0: UnknownTopicError,
    }


def test_the_living_replicas_are_asked_where_nobody_leads() -> None:
    known = image(partition(3, [3], [3, 2, 1]), partition(1, [1], [1, 2]), alive=(1, 2))
    assert find_without_leader(known, [CLICKS_0, CLICKS_1, ORDERS_0]) == {CLICKS_0: [2, 1]}
