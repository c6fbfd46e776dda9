"""Lets the best log lead where everybody that is known to have everything is lost. A shell.

Used by the controller alone, under its term. Which replicas are asked and which one leads is
decided by `rules/unclean_recovery`; the replicas tell the ends of their logs themselves, since the
controller has not seen them. An answer stays true until the election is written: nobody leads, so
no log grows, and a replica that loses something says so in the partition's state before it is seen
again, and then the write loses the race.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple

from moldau.cluster.controllership import Term
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import MetadataImage, PartitionState, TopicState
from moldau.cluster.rules.unclean_recovery import (
    LogEnd,
    RecoveryStrategy,
    find_recovery_candidates,
    recover,
)
from moldau.cluster.state_writer import StateWriter
from moldau.model import BrokerId, TopicPartition

_log = logging.getLogger("moldau.cluster.controller")

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


class LogRecovery:
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

    async def recover(self, term: Term, names: Collection[str]) -> bool:
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
            state = recover(one.state, alive, one.strategy, known, term.epoch)
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
