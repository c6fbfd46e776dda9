"""Holds elections: plans them by the rules, writes them, and again where it was overtaken. A shell.

Used by the controller alone, under its term. `rules.leader_election` decides who leads.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from moldau.cluster.controller_election import ControllerTerm
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.leader_election import (
    DecideElection,
    LogEnd,
    MinInSync,
    PlannedState,
    RecoveryStrategy,
    decide_preferred_election,
    decide_unclean_election,
    find_recovery_candidates,
    find_without_leader,
    is_unclean_election,
    plan_elections,
    plan_rebalancing,
    plan_requested_elections,
    recover_leader,
)
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.cluster.state_writer import StateWriter
from moldau.errors import ElectionNotNeededError, KafkaError, RequestTimedOutError
from moldau.model import BrokerId, TopicPartition

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

    async def elect(self, term: ControllerTerm, names: Collection[str]) -> None:
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

    async def rebalance(self, term: ControllerTerm, accepted_percentage: int) -> None:
        """Give leadership back where brokers have lost too much of it."""
        image = self._publisher.image
        plan = plan_rebalancing(
            image.topics.values(),
            image.brokers.keys(),
            accepted_percentage=accepted_percentage,
            controller_epoch=term.epoch,
        )
        await self._states.write(plan, term=term)  # what was overtaken waits for the next time

    async def elect_preferred(
        self, term: ControllerTerm, wanted: Collection[TopicPartition] | None
    ) -> Outcomes:
        """Give leadership back to the preferred replicas of these partitions, or of all."""

        def decide(topic: TopicState, number: int, state: PartitionState) -> PartitionState:
            return decide_preferred_election(
                state, self._publisher.image.brokers.keys(), term.epoch
            )

        return await self._elect_each(term, wanted, decide)

    async def elect_unclean(
        self, term: ControllerTerm, wanted: Collection[TopicPartition] | None
    ) -> Outcomes:
        """Let any living replica lead these partitions, or all, where nobody leads.

        Of those that tell in time how far their logs go, the best.
        """
        image = self._publisher.image
        leaderless = find_without_leader(image, _all_of(image) if wanted is None else wanted)
        ends = await self._ask_log_ends(questions_of(leaderless))

        def decide(topic: TopicState, number: int, state: PartitionState) -> PartitionState:
            known = ends.get(TopicPartition(topic.name, number), {})
            decided = decide_unclean_election(
                state,
                self._publisher.image.brokers.keys(),
                known,
                min_in_sync=self._min_in_sync_of(topic),
                controller_epoch=term.epoch,
            )
            planned = PlannedState(topic, number, state, decided)
            if is_unclean_election(planned):
                log_unclean_election(planned, "that was asked for", known)
            return decided

        return await self._elect_each(term, wanted, decide)

    async def _elect_each(
        self,
        term: ControllerTerm,
        wanted: Collection[TopicPartition] | None,
        decide: DecideElection,
    ) -> Outcomes:
        """Of all partitions (None) those are left out that need no election."""
        outcomes: Outcomes = {}
        pending = _all_of(self._publisher.image) if wanted is None else list(wanted)
        for _ in range(ATTEMPTS):
            plan, refused = plan_requested_elections(self._publisher.image, pending, decide)
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


# Lets the best log lead where everybody that is known to have everything is lost. A shell.
#
# Used by the controller alone, under its term. Which replicas are asked and which one leads is
# decided by `rules.leader_election`; the replicas tell the ends of their logs themselves, since
# the controller has not seen them. An answer stays true until the election is written: nobody
# leads, so no log grows, and a replica that loses something says so in the partition's state before
# it is seen again, and then the write loses the race.


Questions = Mapping[BrokerId, Collection[TopicPartition]]
Answers = Mapping[TopicPartition, Mapping[BrokerId, LogEnd]]

AskLogEnds = Callable[[Questions], Awaitable[Answers]]
"""Asks each broker for the ends of its logs, with a bound on the time; who does not answer, or has
no such log at hand, is left out."""

StrategyOf = Callable[[TopicState], RecoveryStrategy]


async def nobody_answers(questions: Questions) -> Answers:
    """For a controller that has no way to its brokers."""
    return {}


class _Wanted(NamedTuple):
    topic: TopicState
    partition: int
    state: PartitionState
    strategy: RecoveryStrategy
    candidates: tuple[BrokerId, ...]

    @property
    def key(self) -> TopicPartition:
        return TopicPartition(self.topic.name, self.partition)


class UncleanRecovery:
    """The recoveries of one cluster."""

    def __init__(
        self,
        publisher: MetadataPublisher,
        states: StateWriter,
        *,
        strategy_of: StrategyOf,
        ask: AskLogEnds,
    ) -> None:
        self._publisher = publisher
        self._states = states
        self._strategy_of = strategy_of
        self._ask = ask

    def is_needed(self, names: Collection[str]) -> bool:
        return bool(self._find_wanted(names))

    async def recover(self, term: ControllerTerm, names: Collection[str]) -> bool:
        """Ask the replicas of the partitions that wait for it, and let the best ones lead.

        False when somebody has yet to answer.
        """
        asked = self._find_wanted(names)
        if not asked:
            return True
        ends = await self._ask(questions_of({one.key: one.candidates for one in asked}))
        plan = []
        for one in self._find_wanted({one.topic.name for one in asked}):  # time has passed
            known = ends.get(one.key, {})
            alive = self._publisher.image.brokers.keys()
            state = recover_leader(one.state, alive, one.strategy, known, term.epoch)
            if state is not None:
                plan.append(PlannedState(one.topic, one.partition, one.state, state))
                log_unclean_election(plan[-1], f"by the {one.strategy.value} strategy", known)
        overtaken = await self._states.find_overtaken(plan, term=term)
        return not overtaken and not self.is_needed(names)

    def _find_wanted(self, names: Collection[str]) -> list[_Wanted]:
        image = self._publisher.image
        topics = (image.topics[name] for name in sorted(names) if name in image.topics)
        return [one for topic in topics for one in self._wanted_of(topic, image)]

    def _wanted_of(self, topic: TopicState, image: MetadataImage) -> list[_Wanted]:
        alive = image.brokers.keys()
        waiting = [n for n, state in enumerate(topic.partitions) if state.leader not in alive]
        strategy = self._strategy_of(topic) if waiting else RecoveryStrategy.NONE
        wanted = []
        for number in waiting:
            state = topic.partitions[number]
            candidates = find_recovery_candidates(state, alive, strategy)
            if candidates:
                wanted.append(_Wanted(topic, number, state, strategy, candidates))
        return wanted


def questions_of(candidates: Mapping[TopicPartition, Collection[BrokerId]]) -> Questions:
    """The same by broker."""
    questions: dict[BrokerId, list[TopicPartition]] = {}
    for key, brokers in candidates.items():
        for broker in brokers:
            questions.setdefault(broker, []).append(key)
    return questions


def log_unclean_election(
    planned: PlannedState, reason: str, ends: Mapping[BrokerId, LogEnd]
) -> None:
    """Say why data may be lost, who was chosen, and from whom."""
    former, state = planned.former, planned.state
    known = ", ".join(
        f"{broker} (epoch {end.last_epoch}, end {end.end_offset})" for broker, end in ends.items()
    )
    _log.warning(
        "%s-%d: unclean election %s: broker %d leads in epoch %d, out of %s; nobody alive was "
        "known to have everything (in sync %s, eligible %s, last known %s, last leader %d)",
        planned.topic.name,
        planned.partition,
        reason,
        state.leader,
        state.leader_epoch,
        known or "those alive, none of which told its end",
        list(former.isr),
        list(former.elr),
        list(former.last_known_elr),
        former.last_known_leader,
    )
