"""Holds elections: plans them by the rules, writes them, and again where it was overtaken. A shell.

Used by the controller alone, under its term. Who leads is decided by `rules/leader_election` and
`rules/preferred_leaders`; where a person asks for it, by `rules/unclean_recovery`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from moldau.cluster.controllership import Term
from moldau.cluster.log_recovery import AskLogEnds, log_unclean_election, questions_of
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.eligible_leaders import MinInSync
from moldau.cluster.rules.leader_election import PlannedState, decide_state, plan_elections
from moldau.cluster.rules.metadata_image import NO_NODE, MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.preferred_leaders import plan_rebalancing, prefer_first_replica
from moldau.cluster.rules.unclean_recovery import (
    LogEnd,
    RecoveryStrategy,
    led_uncleanly,
    recover,
)
from moldau.cluster.state_writer import StateWriter
from moldau.errors import (
    ElectionNotNeededError,
    EligibleLeadersNotAvailableError,
    KafkaError,
    LeaderNotAvailableError,
    PreferredLeaderNotAvailableError,
    RequestTimedOutError,
    UnknownTopicError,
)
from moldau.model import BrokerId, TopicPartition

_log = logging.getLogger(__name__)

ATTEMPTS = 10
"""Losing a race this often in a row means that something else is wrong."""

Outcomes = dict[TopicPartition, KafkaError | None]


class _Partition(NamedTuple):
    """One that an election is asked for."""

    topic: TopicState
    number: int
    state: PartitionState


Decide = Callable[[_Partition, Collection[BrokerId], int], PartitionState]
"""From a partition, the living brokers and the controller epoch to the next state, or a refusal."""


class Elections:
    """The elections of one cluster."""

    def __init__(
        self,
        publisher: MetadataPublisher,
        states: StateWriter,
        *,
        min_in_sync_of: MinInSync,
        ask_log_ends: AskLogEnds,
    ) -> None:
        self._publisher = publisher
        self._states = states
        self._min_in_sync_of = min_in_sync_of
        self._ask_log_ends = ask_log_ends

    async def elect(self, term: Term, names: Collection[str]) -> None:
        """Elect for each partition of these topics whose leader is gone or missing."""
        for _ in range(ATTEMPTS):
            image = self._publisher.image
            plan = plan_elections(
                [image.topics[name] for name in sorted(names) if name in image.topics],
                image.brokers.keys(),
                min_in_sync_of=self._min_in_sync_of,
                controller_epoch=term.epoch,
            )
            _log_eligible(plan)
            overtaken = await self._states.find_overtaken(plan, term=term)
            names = {planned.topic.name for planned in overtaken}
            if not names:
                return
        _log.error("no leaders could be elected for %s", ", ".join(sorted(names)))

    async def rebalance(self, term: Term, accepted_percentage: int) -> None:
        """Give leadership back where brokers have lost too much of it."""
        image = self._publisher.image
        plan = plan_rebalancing(
            image.topics.values(),
            image.brokers.keys(),
            accepted_percentage=accepted_percentage,
            controller_epoch=term.epoch,
        )
        await self._states.write(plan, term=term)  # what was overtaken waits for the next time

    async def prefer(self, term: Term, wanted: Collection[TopicPartition] | None) -> Outcomes:
        """Give leadership back to the preferred replicas of these partitions, or of all."""
        return await self._elect_each(term, wanted, _prefer)

    async def elect_unclean(
        self, term: Term, wanted: Collection[TopicPartition] | None
    ) -> Outcomes:
        """Let any living replica lead these partitions, or all, where nobody leads.

        Of those that tell in time how far their logs go, the best.
        """
        ends = await self._ask_log_ends(questions_of(self._replicas_without_leader(wanted)))

        def decide(
            partition: _Partition, alive: Collection[BrokerId], epoch: int
        ) -> PartitionState:
            key = TopicPartition(partition.topic.name, partition.number)
            min_in_sync = self._min_in_sync_of(partition.topic)
            return _elect_unclean(partition, alive, epoch, min_in_sync, ends.get(key, {}))

        return await self._elect_each(term, wanted, decide)

    def _replicas_without_leader(
        self, wanted: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, list[BrokerId]]:
        """The living ones of the partitions where an unclean election may be needed."""
        image = self._publisher.image
        found = {}
        for key in _all_of(image) if wanted is None else wanted:
            state = image.find_partition(*key)
            if state is not None and state.leader not in image.brokers:
                found[key] = [broker for broker in state.replicas if broker in image.brokers]
        return found

    async def _elect_each(
        self, term: Term, wanted: Collection[TopicPartition] | None, decide: Decide
    ) -> Outcomes:
        """Of all partitions (None) those are left out that need no election."""
        outcomes: Outcomes = {}
        pending = _all_of(self._publisher.image) if wanted is None else list(wanted)
        for _ in range(ATTEMPTS):
            plan, refused = _plan_each(self._publisher.image, pending, decide, term.epoch)
            outcomes.update(refused)
            overtaken = {
                TopicPartition(planned.topic.name, planned.partition)
                for planned in await self._states.find_overtaken(plan, term=term)
            }
            pending = [key for key in pending if key in overtaken]
            written = (TopicPartition(each.topic.name, each.partition) for each in plan)
            outcomes.update({key: None for key in written if key not in overtaken})
            if not pending:
                break
        for key in pending:
            outcomes[key] = RequestTimedOutError(f"{key} was changed by others {ATTEMPTS} times")
        if wanted is None:
            return {k: e for k, e in outcomes.items() if not isinstance(e, ElectionNotNeededError)}
        return outcomes


def _all_of(image: MetadataImage) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, number)
        for topic in image.topics.values()
        for number in range(len(topic.partitions))
    ]


def _plan_each(
    image: MetadataImage, wanted: Collection[TopicPartition], decide: Decide, epoch: int
) -> tuple[list[PlannedState], Mapping[TopicPartition, KafkaError]]:
    plan: list[PlannedState] = []
    refused: dict[TopicPartition, KafkaError] = {}
    for key in wanted:
        topic = image.topics.get(key.topic)
        former = None if topic is None else topic.find_partition(key.partition)
        if topic is None or former is None:
            refused[key] = UnknownTopicError(f"there is no partition {key}")
            continue
        try:
            if former.version == NO_NODE:
                raise LeaderNotAvailableError(f"{key} is being made")
            partition = _Partition(topic, key.partition, former)
            state = decide(partition, image.brokers.keys(), epoch)
            plan.append(PlannedState(topic, key.partition, former, state))
        except KafkaError as error:
            refused[key] = error
    return plan, refused


def _prefer(partition: _Partition, alive: Collection[BrokerId], epoch: int) -> PartitionState:
    state = partition.state
    if state.leader == state.replicas[0] and state.leader in alive:
        raise ElectionNotNeededError("the preferred replica leads already")
    preferred = prefer_first_replica(state, alive, epoch)
    if preferred is None:
        raise PreferredLeaderNotAvailableError(
            f"the preferred replica {state.replicas[0]} is not alive or not in sync"
        )
    return preferred


def _elect_unclean(
    partition: _Partition,
    alive: Collection[BrokerId],
    epoch: int,
    min_in_sync: int,
    ends: Mapping[BrokerId, LogEnd],
) -> PartitionState:
    state = partition.state
    if state.leader in alive:
        raise ElectionNotNeededError(f"broker {state.leader} leads and is alive")
    clean = decide_state(state, alive, min_in_sync=min_in_sync, controller_epoch=epoch)
    if clean is not None and clean.leader in alive:
        return clean
    living = [broker for broker in state.replicas if broker in alive]
    if not living:
        raise EligibleLeadersNotAvailableError(
            f"none of the replicas {', '.join(map(str, state.replicas))} is alive"
        )
    recovered = recover(state, alive, RecoveryStrategy.AGGRESSIVE, ends, epoch)
    if recovered is None:  # nobody has answered
        recovered = led_uncleanly(state, living[0], epoch)
    planned = PlannedState(partition.topic, partition.number, state, recovered)
    log_unclean_election(planned, "that was asked for", ends)
    return recovered


def _log_eligible(plan: Collection[PlannedState]) -> None:
    for planned in plan:
        leader = planned.state.leader
        if leader in planned.former.elr:
            _log.info(
                "%s-%d: broker %d leads, which is eligible: none in sync is alive, of %s",
                planned.topic.name,
                planned.partition,
                leader,
                list(planned.former.isr),
            )
