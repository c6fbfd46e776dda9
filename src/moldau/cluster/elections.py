"""Holds elections: plans them by the rules, writes them, and again where it was overtaken. A shell.

Used by the controller alone, under its term. Who leads is decided by `rules/leader_election` and
`rules/preferred_leaders`; where a person asks for it, by `rules/wanted_elections`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from moldau.cluster.controllership import Term
from moldau.cluster.log_recovery import AskLogEnds, log_unclean_election, questions_of
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.eligible_leaders import MinInSync
from moldau.cluster.rules.leader_election import PlannedState, plan_elections
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.preferred_leaders import plan_rebalancing
from moldau.cluster.rules.wanted_elections import (
    Decide,
    decide_preferred,
    decide_unclean,
    find_without_leader,
    is_unclean,
    plan_wanted,
)
from moldau.cluster.state_writer import StateWriter
from moldau.errors import ElectionNotNeededError, KafkaError, RequestTimedOutError
from moldau.model import TopicPartition

_log = logging.getLogger("moldau.cluster.controller")

ATTEMPTS = 10
"""Losing a race this often in a row means that something else is wrong."""

Outcomes = dict[TopicPartition, KafkaError | None]


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

        def decide(topic: TopicState, number: int, state: PartitionState) -> PartitionState:
            return decide_preferred(state, self._publisher.image.brokers.keys(), term.epoch)

        return await self._elect_each(term, wanted, decide)

    async def elect_unclean(
        self, term: Term, wanted: Collection[TopicPartition] | None
    ) -> Outcomes:
        """Let any living replica lead these partitions, or all, where nobody leads.

        Of those that tell in time how far their logs go, the best.
        """
        image = self._publisher.image
        leaderless = find_without_leader(image, _all_of(image) if wanted is None else wanted)
        ends = await self._ask_log_ends(questions_of(leaderless))

        def decide(topic: TopicState, number: int, state: PartitionState) -> PartitionState:
            known = ends.get(TopicPartition(topic.name, number), {})
            decided = decide_unclean(
                state,
                self._publisher.image.brokers.keys(),
                known,
                min_in_sync=self._min_in_sync_of(topic),
                controller_epoch=term.epoch,
            )
            planned = PlannedState(topic, number, state, decided)
            if is_unclean(planned):
                log_unclean_election(planned, "that was asked for", known)
            return decided

        return await self._elect_each(term, wanted, decide)

    async def _elect_each(
        self, term: Term, wanted: Collection[TopicPartition] | None, decide: Decide
    ) -> Outcomes:
        """Of all partitions (None) those are left out that need no election."""
        outcomes: Outcomes = {}
        pending = _all_of(self._publisher.image) if wanted is None else list(wanted)
        for _ in range(ATTEMPTS):
            plan, refused = plan_wanted(self._publisher.image, pending, decide)
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
