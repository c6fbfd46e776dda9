"""Elections that somebody asks for (ElectLeaders): of the preferred replicas, or unclean ones.

Decides partition by partition, and says why where there is none to hold. A rule; asking the
replicas how far their logs go, and writing what was decided, is the work of `cluster.elections`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from moldau.cluster.rules.leader_election import PlannedState, decide_state
from moldau.cluster.rules.metadata_image import NO_NODE, MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.preferred_leaders import prefer_first_replica
from moldau.cluster.rules.unclean_recovery import (
    LogEnd,
    RecoveryStrategy,
    led_uncleanly,
    recover,
)
from moldau.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    KafkaError,
    LeaderNotAvailableError,
    PreferredLeaderNotAvailableError,
    UnknownTopicError,
)
from moldau.model import BrokerId, TopicPartition

Decide = Callable[[TopicState, int, PartitionState], PartitionState]
"""The next state of a partition; raises why there is none."""


class WantedElections(NamedTuple):
    """What becomes of the partitions that were asked for; each is in one of the two."""

    plan: list[PlannedState]
    refused: dict[TopicPartition, KafkaError]


def plan_wanted(
    image: MetadataImage, wanted: Iterable[TopicPartition], decide: Decide
) -> WantedElections:
    """Decide for each of these partitions."""
    found = WantedElections([], {})
    for key in wanted:
        topic = image.topics.get(key.topic)
        former = None if topic is None else topic.find_partition(key.partition)
        if topic is None or former is None:
            found.refused[key] = UnknownTopicError(f"there is no partition {key}")
        elif former.version == NO_NODE:
            found.refused[key] = LeaderNotAvailableError(f"{key} is being made")
        else:
            try:
                state = decide(topic, key.partition, former)
            except KafkaError as refusal:
                found.refused[key] = refusal
            else:
                found.plan.append(PlannedState(topic, key.partition, former, state))
    return found


def decide_preferred(
    state: PartitionState, alive: Collection[BrokerId], controller_epoch: int
) -> PartitionState:
    """The partition led by its preferred replica."""
    if state.leader == state.replicas[0] and state.leader in alive:
        raise ElectionNotNeededError("the preferred replica leads already")
    preferred = prefer_first_replica(state, alive, controller_epoch)
    if preferred is None:
        raise PreferredLeaderNotAvailableError(
            f"the preferred replica {state.replicas[0]} is not alive or not in sync"
        )
    return preferred


def decide_unclean(
    state: PartitionState,
    alive: Collection[BrokerId],
    ends: Mapping[BrokerId, LogEnd],
    *,
    min_in_sync: int,
    controller_epoch: int,
) -> PartitionState:
    """The partition led by who has everything, else by the best log of those whose ends are known,
    else by any replica that lives."""
    if state.leader in alive:
        raise ElectionNotNeededError(f"broker {state.leader} leads and is alive")
    clean = decide_state(state, alive, min_in_sync=min_in_sync, controller_epoch=controller_epoch)
    if clean is not None and clean.leader in alive:
        return clean
    living = [broker for broker in state.replicas if broker in alive]
    if not living:
        raise EligibleLeadersNotAvailableError(
            f"none of the replicas {', '.join(map(str, state.replicas))} is alive"
        )
    recovered = recover(state, alive, RecoveryStrategy.AGGRESSIVE, ends, controller_epoch)
    return recovered or led_uncleanly(state, living[0], controller_epoch)


def is_unclean(planned: PlannedState) -> bool:
    """Whether who is to lead was not known to have every committed record."""
    return planned.state.leader not in (*planned.former.isr, *planned.former.elr)


def find_without_leader(
    image: MetadataImage, wanted: Iterable[TopicPartition]
) -> dict[TopicPartition, list[BrokerId]]:
    """The living replicas of the partitions where an unclean election may be needed."""
    found = {}
    for key in wanted:
        state = image.find_partition(*key)
        if state is not None and state.leader not in image.brokers:
            found[key] = [broker for broker in state.replicas if broker in image.brokers]
    return found
