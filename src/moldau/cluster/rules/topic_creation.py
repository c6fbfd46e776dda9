"""What must hold for a topic to be made or to grow, and which replicas it gets. A rule.

Raises the error that the client will read, or returns the plan. The caller hands in what depends on
others: the names that exist, the brokers that are alive, those that are away and expected back, the
defaults, the check of the configs, and where placement begins. Two requests for one name are told
apart later, by the write itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.cluster.rules.metadata_image import BranchOrigin, PartitionState, TopicState
from moldau.cluster.rules.reassignment import target_replicas
from moldau.cluster.rules.replica_placement import Assignment, BrokerRack, place_replicas
from moldau.errors import (
    InvalidConfigError,
    InvalidPartitionsError,
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidTopicError,
    LeaderNotAvailableError,
    PolicyViolationError,
    ReassignmentInProgressError,
    TopicExistsError,
)
from moldau.model import (
    INTERNAL_TOPICS,
    NO_BROKER,
    BrokerId,
    LeaderEpoch,
    TopicId,
    find_colliding_name,
    find_topic_name_fault,
)

USE_DEFAULT = -1
MAX_PARTITIONS_PER_CHANGE = 10_000
"""Kafka's own bound on one request; without it a single number could fill the memory."""

CheckConfigs = Callable[[Mapping[str, str]], None]
"""Raises `InvalidConfigError` for a name that is not known or a value that is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as a client asks for it."""

    name: str
    partition_count: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)  # partition: brokers
    configs: Mapping[str, str | None] = field(default_factory=dict)
    branch_of: str | None = None  # a topic whose records it begins with


class TopicDefaults(NamedTuple):
    """`num.partitions` and `default.replication.factor`."""

    partition_count: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementStart:
    """Where placement begins; random in production."""

    index: int
    shift: int


class TopicPlan(NamedTuple):
    """A topic that may be made."""

    name: str
    assignment: Assignment
    configs: Mapping[str, str]


def plan_topic(
    spec: TopicSpec,
    *,
    existing: Collection[str],
    brokers: Sequence[BrokerRack],
    defaults: TopicDefaults,
    check_configs: CheckConfigs,
    start: PlacementStart,
    away: Sequence[BrokerRack] = (),
) -> TopicPlan:
    check_name(spec.name, existing)
    configs = require_values(spec.configs)
    if spec.assignments:
        if spec.partition_count != USE_DEFAULT or spec.replication_factor != USE_DEFAULT:
            raise InvalidRequestError(
                "a topic is made either from a number of partitions and a replication factor or "
                "from assignments; the request gives both"
            )
        assignment = _require_whole(spec.assignments, brokers, away)
    else:
        assignment = _place(spec, brokers, defaults, start, away)
    check_configs(configs)
    return TopicPlan(name=spec.name, assignment=assignment, configs=configs)


def check_name(name: str, existing: Collection[str]) -> None:
    fault = find_topic_name_fault(name)
    if fault is not None:
        raise InvalidTopicError(fault)
    if name in existing:
        raise TopicExistsError(f"topic {name!r} already exists")
    colliding = find_colliding_name(name, frozenset(existing))
    if colliding is not None:
        raise InvalidTopicError(
            f"topic {name!r} would share its metric names with topic {colliding!r}: "
            "they differ in '.' and '_' only"
        )


def plan_partitions(
    topic: TopicState,
    total: int,
    assignments: Sequence[Sequence[int]] | None,
    *,
    brokers: Sequence[BrokerRack],
    away: Sequence[BrokerRack] = (),
) -> Assignment:
    """The replicas of the partitions to be added so that the topic has `total` of them."""
    current = len(topic.partitions)
    if topic.name in INTERNAL_TOPICS:
        raise InvalidPartitionsError(
            f"{topic.name} keeps its {current} partitions: which one has a group or a transaction "
            "depends on their number, and with another one nobody would find what is there"
        )
    if total < current:
        raise InvalidPartitionsError(
            f"topic {topic.name!r} has {current} partitions, and {total} were asked for: "
            "partitions can only be added"
        )
    if total == current:
        raise InvalidPartitionsError(f"topic {topic.name!r} already has {current} partitions")
    _check_amount(total - current)
    replication_factor = _replication_factor(topic)
    if assignments is not None:
        return _require_matching(topic, assignments, total, brokers, away)
    _check_replication_factor(replication_factor, brokers, away)
    start = _index_of_first_leader(topic, brokers)
    return place_replicas(
        brokers,
        partition_count=total - current,
        replication_factor=replication_factor,
        start_index=start,
        replica_shift=start,
        first_partition=current,
        away=away,
    )


def _replication_factor(topic: TopicState) -> int:
    """Of its first partition; while that one moves, those that it leaves are among its replicas."""
    return len(target_replicas(topic.partitions[0]))


def _index_of_first_leader(topic: TopicState, brokers: Sequence[BrokerRack]) -> int:
    """Go on where the topic began, so that old and new partitions form one round."""
    first = topic.partitions[0].replicas[0]
    ids = sorted(broker.id for broker in brokers)
    return next((index for index, broker in enumerate(ids) if broker >= first), 0)


def require_values(configs: Mapping[str, str | None]) -> dict[str, str]:
    missing = sorted(name for name, value in configs.items() if value is None)
    if missing:
        raise InvalidConfigError(f"a config of a new topic needs a value: {', '.join(missing)}")
    return {name: value for name, value in configs.items() if value is not None}


def _place(
    spec: TopicSpec,
    brokers: Sequence[BrokerRack],
    defaults: TopicDefaults,
    start: PlacementStart,
    away: Sequence[BrokerRack],
) -> Assignment:
    partition_count, replication_factor = spec.partition_count, spec.replication_factor
    if partition_count == USE_DEFAULT:
        partition_count = defaults.partition_count
    if replication_factor == USE_DEFAULT:
        replication_factor = defaults.replication_factor
    if partition_count < 1:
        raise InvalidPartitionsError(
            f"the number of partitions must be at least 1, or -1 for the default; it is "
            f"{partition_count}"
        )
    _check_amount(partition_count)
    _check_replication_factor(replication_factor, brokers, away)
    return place_replicas(
        brokers,
        partition_count=partition_count,
        replication_factor=replication_factor,
        start_index=start.index,
        replica_shift=start.shift,
        away=away,
    )


def _check_amount(partition_count: int) -> None:
    if partition_count > MAX_PARTITIONS_PER_CHANGE:
        raise PolicyViolationError(
            f"{partition_count} partitions are more than the {MAX_PARTITIONS_PER_CHANGE} that one "
            "request may make"
        )


def _check_replication_factor(
    replication_factor: int, brokers: Sequence[BrokerRack], away: Sequence[BrokerRack]
) -> None:
    if replication_factor < 1:
        raise InvalidReplicationFactorError(
            f"the replication factor must be at least 1, or -1 for the default; it is "
            f"{replication_factor}"
        )
    if not brokers or replication_factor > len(brokers) + len(away):
        raise InvalidReplicationFactorError(
            f"the replication factor is {replication_factor}, but only "
            + ("1 broker is alive" if len(brokers) == 1 else f"{len(brokers)} brokers are alive")
            + (f", and {len(away)} registered ones are away" if away else "")
        )


def _require_whole(
    assignments: Mapping[int, Sequence[int]],
    brokers: Sequence[BrokerRack],
    away: Sequence[BrokerRack],
) -> Assignment:
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignmentError(
            "the assigned partitions must be numbered from 0 without a gap; they are "
            f"{sorted(assignments)}"
        )
    _check_amount(len(assignments))
    replicas = [assignments[partition] for partition in range(len(assignments))]
    return _require_sound(replicas, len(replicas[0]), 0, brokers, away)


def _require_matching(
    topic: TopicState,
    assignments: Sequence[Sequence[int]],
    total: int,
    brokers: Sequence[BrokerRack],
    away: Sequence[BrokerRack],
) -> Assignment:
    current = len(topic.partitions)
    if len(assignments) != total - current:
        raise InvalidReplicaAssignmentError(
            f"{total - current} partitions are to be added, but {len(assignments)} assignments "
            "were given"
        )
    return _require_sound(assignments, _replication_factor(topic), current, brokers, away)


def _require_sound(
    assignments: Sequence[Sequence[int]],
    replication_factor: int,
    first_partition: int,
    brokers: Sequence[BrokerRack],
    away: Sequence[BrokerRack],
) -> Assignment:
    alive = {broker.id for broker in brokers}
    known = alive | {broker.id for broker in away}
    for partition, replicas in enumerate(assignments, start=first_partition):
        fault = _find_assignment_fault(replicas, replication_factor, alive, known)
        if fault is not None:
            raise InvalidReplicaAssignmentError(f"partition {partition}: {fault}")
    return tuple(tuple(BrokerId(broker) for broker in replicas) for replicas in assignments)


def _find_assignment_fault(
    replicas: Sequence[int],
    replication_factor: int,
    alive: Collection[int],
    known: Collection[int],
) -> str | None:
    if not replicas:
        return "no broker is assigned"
    if len(set(replicas)) != len(replicas):
        return f"a broker is assigned twice: {list(replicas)}"
    unknown = sorted(broker for broker in replicas if broker not in known)
    if unknown:
        return f"no such broker is alive: {', '.join(map(str, unknown))}"
    if not any(broker in alive for broker in replicas):
        return f"none of its brokers is alive: {', '.join(map(str, replicas))}"
    if len(replicas) != replication_factor:
        return (
            f"{len(replicas)} replicas are assigned, but every partition of the topic needs "
            f"{replication_factor}"
        )
    return None


# What must hold for a topic to be branched, and what the branch is. A rule.
#
# A branch has the partitions, the replicas and the configs of its origin. Each partition is led by
# the broker that leads the origin's, which alone is in sync at first: what it has taken of the
# origin is the branch. The others take what they have of it, too, and catch up as followers do.
#
# Epochs of the branch begin behind all of the origin's. So a batch with an older one is the
# origin's, and two replicas that took different amounts of it agree as far as both go (BRA-2).


def plan_topic_branch(
    spec: TopicSpec,
    source: TopicState,
    *,
    existing: Collection[str],
    topic_id: TopicId,
    controller_epoch: int,
) -> TopicState:
    check_name(spec.name, existing)
    if {spec.name, source.name} & INTERNAL_TOPICS:
        raise InvalidTopicError("what brokers keep in topics of their own cannot be branched")
    counts = {spec.partition_count, spec.replication_factor}
    if spec.assignments or counts != {USE_DEFAULT}:
        raise InvalidRequestError(
            f"a branch has the partitions and replicas of {source.name!r}; the request gives others"
        )
    for number, state in enumerate(source.partitions):
        if state.leader == NO_BROKER:
            raise LeaderNotAvailableError(f"partition {number} of {source.name!r} has no leader")
        if state.adding_replicas or state.removing_replicas:
            raise ReassignmentInProgressError(
                f"partition {number} of {source.name!r} is being moved; branch it afterwards"
            )
    newest = LeaderEpoch(max(state.leader_epoch for state in source.partitions))
    return TopicState(
        name=spec.name,
        topic_id=topic_id,
        partitions=tuple(
            PartitionState(
                leader=state.leader,
                leader_epoch=LeaderEpoch(newest + 1),
                isr=(state.leader,),
                replicas=state.replicas,
                controller_epoch=controller_epoch,
            )
            for state in source.partitions
        ),
        configs={**source.configs, **require_values(spec.configs)},
        origin=BranchOrigin(
            topic=source.name,
            topic_id=source.topic_id,
            partitions=len(source.partitions),
            newest_epoch=newest,
        ),
    )
