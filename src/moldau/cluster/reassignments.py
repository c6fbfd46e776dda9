"""Moves partitions to other brokers: begins, advances, finishes and cancels it. A shell.

Used by the controller alone, under its term. What a step is: `rules/reassignment`. A request comes
by AlterPartitionReassignments, or by the node `/admin/reassign_partitions` of Kafka's older tool,
which stays until all that it names has arrived.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from moldau.cluster import znodes
from moldau.cluster.controller_election import ControllerTerm, transact_in_term
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.leader_election import PlannedState
from moldau.cluster.rules.metadata_image import NO_NODE, PartitionState
from moldau.cluster.rules.reassignment import (
    check_target,
    is_moving,
    plan_cancellation,
    plan_reassignment_step,
    plan_redirection,
    target_replicas,
)
from moldau.cluster.state_writer import StateWriter, parts_of
from moldau.cluster.znodes import WantedReplicas, decode_reassignment, encode_reassignment
from moldau.coordination.port import BadVersionError, Coordination, Delete, NoNodeError, SetData
from moldau.errors import (
    KafkaError,
    LeaderNotAvailableError,
    MalformedNodeError,
    RequestTimedOutError,
    UnknownTopicError,
)
from moldau.model import BrokerId, TopicPartition

_log = logging.getLogger("moldau.cluster.controller")

ATTEMPTS = 10

Targets = Mapping[TopicPartition, Sequence[int] | None]
"""Where partitions shall go; None: back to where they were."""

Decide = Callable[[int, PartitionState, Collection[BrokerId]], PartitionState | None]
"""The next state of a partition by its number, None to leave it; or a refusal, raised."""


class Reassignments:
    """The moves of one cluster."""

    def __init__(
        self, coordination: Coordination, publisher: MetadataPublisher, states: StateWriter
    ) -> None:
        self._coordination = coordination
        self._publisher = publisher
        self._states = states

    async def alter(
        self, term: ControllerTerm, targets: Targets, *, may_change_factor: bool = True
    ) -> dict[TopicPartition, KafkaError | None]:
        """Begin, redirect or cancel; the answer tells what became of each."""
        outcomes: dict[TopicPartition, KafkaError | None] = {}
        for name in sorted({partition.topic for partition in targets}):
            wanted = {key.partition: to for key, to in targets.items() if key.topic == name}

            def decide(
                number: int,
                state: PartitionState,
                alive: Collection[BrokerId],
                wanted: Mapping[int, Sequence[int] | None] = wanted,
            ) -> PartitionState | None:
                return _redirect(state, wanted[number], alive, term.epoch, may_change_factor)

            found = await self._change_topic(term, name, list(wanted), decide)
            outcomes.update({TopicPartition(name, number): e for number, e in found.items()})
        return outcomes

    async def advance(self, term: ControllerTerm, names: Collection[str]) -> None:
        """Finish what has arrived, of the partitions of these topics."""
        for name in sorted(names):
            topic = self._publisher.image.topics.get(name)
            if topic is None:
                continue
            moving = [number for number, s in enumerate(topic.partitions) if is_moving(s)]
            if moving:
                await self._change_topic(
                    term,
                    name,
                    moving,
                    lambda _, state, alive: plan_reassignment_step(state, alive, term.epoch),
                )

    async def process_request(self, term: ControllerTerm) -> bool:
        """Do what `/admin/reassign_partitions` asks for, and delete it when all is done.

        Returns whether something is left to be done.
        """
        node = await self._coordination.get(znodes.REASSIGN_PARTITIONS)
        if node is None:
            return False
        try:
            wanted = decode_reassignment(node.data)
        except MalformedNodeError as error:
            _log.error("a request to reassign partitions is dropped: %s", error)
            wanted = []
        begun = {each.partition: each.replicas for each in wanted if not self._is_under_way(each)}
        for key, refusal in (await self.alter(term, begun)).items():
            if refusal is not None:
                _log.error("%s is not reassigned: %s", key, refusal)
        left = [each for each in wanted if self._is_on_its_way(each)]
        path = znodes.REASSIGN_PARTITIONS
        with suppress(BadVersionError, NoNodeError):  # changed by a tool: then it is read again
            if not left:
                deletion = Delete(path=path, version=node.version)
                await transact_in_term(self._coordination, term, (deletion,))
            elif left != wanted:
                data = encode_reassignment(left)
                written = SetData(path=path, data=data, version=node.version)
                await transact_in_term(self._coordination, term, (written,))
        return bool(left)

    def _is_under_way(self, wanted: WantedReplicas) -> bool:
        """Begun or finished."""
        state = self._publisher.image.find_partition(*wanted.partition)
        return state is not None and target_replicas(state) == wanted.replicas

    def _is_on_its_way(self, wanted: WantedReplicas) -> bool:
        state = self._publisher.image.find_partition(*wanted.partition)
        return state is not None and is_moving(state) and self._is_under_way(wanted)

    async def _change_topic(
        self, term: ControllerTerm, name: str, numbers: Sequence[int], decide: Decide
    ) -> dict[int, KafkaError | None]:
        outcomes: dict[int, KafkaError | None] = {}
        pending = list(numbers)
        for _ in range(ATTEMPTS):
            plan = self._plan(name, pending, decide, outcomes)
            pending = []
            for part in parts_of(plan):
                if not await self._states.move(part, term=term):
                    pending += [planned.partition for planned in part]
            if not pending:
                return outcomes
        lost = RequestTimedOutError(f"topic {name!r} was changed by others {ATTEMPTS} times")
        return {**outcomes, **dict.fromkeys(pending, lost)}

    def _plan(
        self,
        name: str,
        numbers: Sequence[int],
        decide: Decide,
        outcomes: dict[int, KafkaError | None],
    ) -> list[PlannedState]:
        image = self._publisher.image
        topic = image.topics.get(name)
        plan = []
        for number in numbers:
            former = None if topic is None else topic.find_partition(number)
            outcomes[number] = None
            try:
                if topic is None or former is None:
                    raise UnknownTopicError(f"there is no partition {name}-{number}")
                if former.version == NO_NODE:
                    raise LeaderNotAvailableError(f"{name}-{number} is being made")
                state = decide(number, former, image.brokers.keys())
                if state is not None:
                    plan.append(PlannedState(topic, number, former, state))
            except KafkaError as error:
                outcomes[number] = error
        return plan


def _redirect(
    state: PartitionState,
    target: Sequence[int] | None,
    alive: Collection[BrokerId],
    controller_epoch: int,
    may_change_factor: bool,
) -> PartitionState | None:
    if target is None:
        return plan_cancellation(state, alive, controller_epoch)
    brokers = check_target(state, target, alive, may_change_factor=may_change_factor)
    return plan_redirection(state, brokers, alive, controller_epoch)
