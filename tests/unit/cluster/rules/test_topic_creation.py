from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from moldau.cluster.rules.leader_election import first_partition_state
from moldau.cluster.rules.metadata_image import TopicState
from moldau.cluster.rules.replica_placement import BrokerRack
from moldau.cluster.rules.topic_creation import (
    PlacementStart,
    TopicDefaults,
    TopicPlan,
    TopicSpec,
    plan_partitions,
    plan_topic,
)
from moldau.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    KafkaError,
    PolicyViolationError,
    TopicExistsError,
)
from moldau.model import INTERNAL_TOPICS, BrokerId, TopicId

THREE = [BrokerRack(BrokerId(number)) for number in (1, 2, 3)]


def plan(
    spec: TopicSpec,
    existing: Sequence[str] = (),
    brokers: Sequence[BrokerRack] = THREE,
    default_partitions: int = 2,
    default_factor: int = 2,
    away: Sequence[BrokerRack] = (),
) -> TopicPlan:
    def check(configs: Mapping[str, str]) -> None:
        if "bad" in configs:
            raise InvalidConfigError("bad is not an option")

    return plan_topic(
        spec,
        existing=existing,
        brokers=brokers,
        defaults=TopicDefaults(
            partition_count=default_partitions, replication_factor=default_factor
        ),
        check_configs=check,
        start=PlacementStart(index=0, shift=0),
        away=away,
    )


def topic_with(*replicas: tuple[int, ...]) -> TopicState:
    partitions = (
        first_partition_state([BrokerId(b) for b in brokers], (), 1) for brokers in replicas
    )
    return TopicState(name="clicks", topic_id=TopicId(UUID(int=1)), partitions=tuple(partitions))


def test_partitions_and_replicas_come_out_as_asked_for() -> None:
    made = plan(TopicSpec(name="clicks", partition_count=3, replication_factor=3))
    assert made.assignment == ((1, 2, 3), (2, 3, 1), (3, 1, 2))


def test_minus_one_asks_for_the_defaults() -> None:
    made = plan(TopicSpec(name="clicks"))
    assert made.assignment == ((1, 2), (2, 3))
    made = plan(TopicSpec(name="clicks", partition_count=1))
    assert made.assignment == ((1, 2),)
    made = plan(TopicSpec(name="clicks", replication_factor=1))
    assert made.assignment == ((1,), (2,))


def test_an_assignment_is_taken_as_given() -> None:
    made = plan(TopicSpec(name="clicks", assignments={1: [3, 1], 0: [2, 3]}))
    assert made.assignment == ((2, 3), (3, 1))


def test_configs_are_checked_and_kept() -> None:
    made = plan(TopicSpec(name="clicks", configs={"retention.ms": "1"}))
    assert made.configs == {"retention.ms": "1"}
    with pytest.raises(InvalidConfigError, match="bad is not an option"):
        plan(TopicSpec(name="clicks", configs={"bad": "1"}))


REFUSED: list[tuple[TopicSpec, type[KafkaError], str]] = [
    (TopicSpec(name=""), InvalidTopicError, "empty"),
    (TopicSpec(name="a b"), InvalidTopicError, "character"),
    (TopicSpec(name="x" * 250), InvalidTopicError, "249"),
    (TopicSpec(name="taken"), TopicExistsError, "'taken' already exists"),
    (TopicSpec(name="with_dots"), InvalidTopicError, r"with\.dots"),
    (TopicSpec(name="t", partition_count=0), InvalidPartitionsError, "at least 1"),
    (TopicSpec(name="t", partition_count=-2), InvalidPartitionsError, "-2"),
    (TopicSpec(name="t", partition_count=2**31 - 1), PolicyViolationError, "10000"),
    (TopicSpec(name="t", replication_factor=0), InvalidReplicationFactorError, "at least 1"),
    (TopicSpec(name="t", replication_factor=4), InvalidReplicationFactorError, "only 3 brokers"),
    (
        TopicSpec(name="t", partition_count=1, assignments={0: [1]}),
        InvalidRequestError,
        "gives both",
    ),
    (
        TopicSpec(name="t", replication_factor=1, assignments={0: [1]}),
        InvalidRequestError,
        "gives both",
    ),
    (TopicSpec(name="t", assignments={1: [1]}), InvalidReplicaAssignmentError, "without a gap"),
    (
        TopicSpec(name="t", assignments={0: [1], 2: [1]}),
        InvalidReplicaAssignmentError,
        r"\[0, 2\]",
    ),
    (TopicSpec(name="t", assignments={-1: [1]}), InvalidReplicaAssignmentError, "from 0"),
    (TopicSpec(name="t", assignments={0: [1, 1]}), InvalidReplicaAssignmentError, "twice"),
    (TopicSpec(name="t", assignments={0: [9, 1]}), InvalidReplicaAssignmentError, "alive: 9"),
    (TopicSpec(name="t", assignments={0: []}), InvalidReplicaAssignmentError, "no broker"),
    (
        TopicSpec(name="t", assignments={0: [1, 2], 1: [1]}),
        InvalidReplicaAssignmentError,
        "partition 1: 1 replicas are assigned, but every partition of the topic needs 2",
    ),
    (TopicSpec(name="t", configs={"retention.ms": None}), InvalidConfigError, "retention.ms"),
]


@pytest.mark.parametrize(("spec", "error", "message"), REFUSED)
def test_what_does_not_hold_together_is_refused_with_its_reason(
    spec: TopicSpec, error: type[KafkaError], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        plan(spec, existing=["taken", "with.dots"])
    assert type(caught.value) is error


def test_a_default_that_cannot_be_met_is_refused_as_well() -> None:
    with pytest.raises(InvalidReplicationFactorError):
        plan(TopicSpec(name="t"), default_factor=4)
    with pytest.raises(InvalidReplicationFactorError, match="only 0 brokers"):
        plan(TopicSpec(name="t"), brokers=[])
    with pytest.raises(InvalidReplicationFactorError, match="only 1 broker is alive"):
        plan(TopicSpec(name="t", replication_factor=3), brokers=THREE[:1])


def test_brokers_that_are_away_count_unless_nobody_is_alive() -> None:
    spec = TopicSpec(name="t", partition_count=1, replication_factor=3)
    (replicas,) = plan(spec, brokers=THREE[:2], away=THREE[2:]).assignment
    assert sorted(replicas) == [1, 2, 3]
    with pytest.raises(InvalidReplicationFactorError, match="only 1 broker is alive, and 1"):
        plan(spec, brokers=THREE[:1], away=THREE[1:2])
    with pytest.raises(InvalidReplicationFactorError, match="only 0 brokers are alive"):
        plan(spec, brokers=[], away=THREE)


def test_an_assignment_needs_a_living_broker_for_each_partition() -> None:
    spec = TopicSpec(name="t", assignments={0: (2, 1), 1: (3, 1)})
    assert plan(spec, brokers=THREE[:1], away=THREE[1:]).assignment == ((2, 1), (3, 1))
    spec = TopicSpec(name="t", assignments={0: (2, 1), 1: (3, 2)})
    with pytest.raises(InvalidReplicaAssignmentError, match="partition 1: none of its brokers"):
        plan(spec, brokers=THREE[:1], away=THREE[1:])


def test_partitions_are_added_on_brokers_that_are_away_where_too_few_are_alive() -> None:
    topic = topic_with((2, 3), (3, 1))
    added = plan_partitions(topic, 4, None, brokers=THREE[:1], away=THREE[1:])
    assert [sorted(replicas) for replicas in added] == [[1, 2], [1, 3]]


def test_an_existing_topic_is_told_before_other_faults() -> None:
    with pytest.raises(TopicExistsError):
        plan(TopicSpec(name="taken", partition_count=0), existing=["taken"])


def test_added_partitions_go_on_with_the_round_of_the_topic() -> None:
    topic = topic_with((2, 3), (3, 1))
    assert plan_partitions(topic, 4, None, brokers=THREE) == ((1, 3), (2, 3))


def test_partitions_that_are_added_while_the_first_one_moves_have_no_more_replicas() -> None:
    topic = topic_with((2, 3, 1), (3, 1))
    moving = replace(topic.partitions[0], adding_replicas=(2,), removing_replicas=(1,))
    topic = replace(topic, partitions=(moving, *topic.partitions[1:]))
    assert plan_partitions(topic, 4, None, brokers=THREE) == ((1, 3), (2, 3))
    assert plan_partitions(topic, 3, [[3, 2]], brokers=THREE) == ((3, 2),)


def test_added_partitions_can_be_assigned_by_hand() -> None:
    topic = topic_with((2, 3), (3, 1))
    assert plan_partitions(topic, 3, [[3, 2]], brokers=THREE) == ((3, 2),)


@pytest.mark.parametrize(
    ("total", "assignments", "error", "message"),
    [
        (2, None, InvalidPartitionsError, "already has 2"),
        (1, None, InvalidPartitionsError, "can only be added"),
        (0, None, InvalidPartitionsError, "can only be added"),
        (20_000, None, PolicyViolationError, "10000"),
        (4, [[1, 2]], InvalidReplicaAssignmentError, "2 partitions are to be added, but 1"),
        (3, [[1]], InvalidReplicaAssignmentError, "partition 2: .* needs 2"),
        (3, [[1, 1]], InvalidReplicaAssignmentError, "twice"),
        (3, [[1, 9]], InvalidReplicaAssignmentError, "alive: 9"),
        (3, [[]], InvalidReplicaAssignmentError, "no broker"),
    ],
)
def test_growth_that_is_none_or_does_not_fit_is_refused(
    total: int,
    assignments: list[list[int]] | None,
    error: type[KafkaError],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        plan_partitions(topic_with((1, 2), (2, 3)), total, assignments, brokers=THREE)


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_what_coordinators_keep_is_not_moved_by_more_partitions(name: str) -> None:
    with pytest.raises(InvalidPartitionsError, match=f"{name} keeps its 2 partitions"):
        plan_partitions(replace(topic_with((1,), (2,)), name=name), 3, None, brokers=THREE)


def test_growth_needs_as_many_brokers_as_there_are_replicas() -> None:
    with pytest.raises(InvalidReplicationFactorError):
        plan_partitions(topic_with((1, 2)), 2, None, brokers=THREE[:1])
