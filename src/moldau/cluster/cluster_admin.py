"""Makes, grows, deletes and configures topics and brokers, for the handlers. A shell.

Each change is one transaction on the coordination store: all of it happened or none. It returns
after the published image shows the change, so a client that has its answer finds its topic. What
is allowed is decided by `rules.topic_creation` and `config.alterations`. Topics are changed by
the controller alone, under its term; configs by any broker, with versioned writes.

Between the write's return and the new image there is no `await`: images follow in the order of the
writes. Who loses a race against another writer begins again with what is there now.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from moldau.cluster import topic_operations, znodes
from moldau.cluster.broker_registration import new_topic_id, unregister_broker
from moldau.cluster.config_writer import BrokerConfigRules, ConfigRules, ConfigWriter
from moldau.cluster.controller_election import ControllerElection, ControllerTerm
from moldau.cluster.elections import Elections, Outcomes
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.reassignments import Reassignments, Targets
from moldau.cluster.rules.leader_election import PlannedState, first_partition_state
from moldau.cluster.rules.metadata_image import (
    NO_TOPIC_ID,
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.cluster.rules.reassignment import is_moving
from moldau.cluster.rules.replica_placement import Assignment, BrokerRack
from moldau.cluster.rules.topic_creation import (
    PlacementStart,
    TopicDefaults,
    TopicSpec,
    plan_partitions,
    plan_topic,
    plan_topic_branch,
)
from moldau.cluster.state_writer import MAX_WRITE_BYTES, StateWriter
from moldau.cluster.topic_deletion import TopicDeletion
from moldau.config.alterations import ConfigAlteration
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
    StoreLostError,
)
from moldau.errors import (
    InvalidReplicaAssignmentError,
    InvalidReplicationFactorError,
    NotControllerError,
    PolicyViolationError,
    RequestTimedOutError,
    TopicExistsError,
    UnknownTopicError,
)
from moldau.model import BrokerId, TopicId, TopicPartition
from moldau.quotas import QuotaEntity

_log = logging.getLogger("moldau.cluster")

T = TypeVar("T")

ATTEMPTS = 10
"""Losing a race this often in a row means that something else is wrong."""


class ClusterAdmin:
    """The changes that clients may ask for. Safe to call from many tasks of one loop at once."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        publisher: MetadataPublisher,
        controllership: ControllerElection,
        defaults: Callable[[], TopicDefaults],
        topic_config_rules: ConfigRules,
        broker_config_rules: BrokerConfigRules,
        group_config_rules: ConfigRules,
        elections: Elections,
        reassignments: Reassignments,
        deletion: TopicDeletion | None = None,
        choose: Callable[[int], int] = random.randrange,
        make_topic_id: Callable[[], TopicId] = new_topic_id,
    ) -> None:
        self._coordination = coordination
        self._publisher = publisher
        self._controllership = controllership
        self._defaults = defaults  # asked each time: they may change while the broker runs
        self._topic_config_rules = topic_config_rules
        self._configs = ConfigWriter(
            coordination, publisher, topic_config_rules, broker_config_rules, group_config_rules
        )
        self._deletion = deletion or TopicDeletion(coordination, publisher)
        self._elections = elections
        self._reassignments = reassignments
        self._states = StateWriter(coordination, publisher)
        self._choose = choose  # a number below its argument: where placement begins
        self._make_topic_id = make_topic_id

    async def create_topic(self, spec: TopicSpec, *, validate_only: bool = False) -> TopicState:
        """The topic as it was made; with `validate_only` as it would be, without an id."""
        with kafka_errors():
            term = self._controllership.require_term()
            topic = await self._with_enough_brokers(lambda away: self._plan_topic(spec, term, away))
            if validate_only:
                return replace(topic, topic_id=NO_TOPIC_ID)
            self._warn_of_away(topic, 0)
            await self._publisher.clock.sleep(0)
            return await self._retry(topic.name, lambda: self._write_topic(term, topic))

    async def delete_topic(self, name: str) -> TopicState:
        """The topic as it was. Its folders go when the brokers see the new image."""
        return await self._retry(name, lambda: self._delete_topic(name))

    async def create_partitions(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> TopicState:
        """Grow the topic to `total` partitions; `assignments` are those of the new ones."""
        return await self._retry(
            name, lambda: self._grow_topic(name, total, assignments, validate_only)
        )

    async def unregister_broker(self, broker_id: BrokerId) -> None:
        """Do not expect a broker back that is away: new replicas are not placed on it."""
        with kafka_errors():
            await unregister_broker(self._coordination, broker_id)

    async def alter_topic_configs(
        self, name: str, changes: ConfigAlteration, *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change some configs, or all of them; returns those that are set now."""
        return await self._retry(
            name, lambda: self._configs.alter_topic(name, changes, validate_only)
        )

    async def alter_broker_configs(
        self,
        broker_id: BrokerId | None,
        changes: ConfigAlteration,
        *,
        validate_only: bool = False,
    ) -> Mapping[str, str]:
        """Change configs of one broker, or of all of them (None)."""
        return await self._retry(
            None, lambda: self._configs.alter_broker(broker_id, changes, validate_only)
        )

    async def alter_group_configs(
        self, group_id: str, changes: ConfigAlteration, *, validate_only: bool = False
    ) -> Mapping[str, str]:
        """Change configs of a group, which need not exist."""
        return await self._retry(
            None, lambda: self._configs.alter_group(group_id, changes, validate_only)
        )

    async def alter_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None]
    ) -> Mapping[str, float]:
        """Set quotas of an entity, and remove those whose new limit is None; all that it has."""
        return await self._retry(None, lambda: self._configs.alter_quotas(entity, changes))

    async def elect_leaders(
        self, wanted: Collection[TopicPartition] | None, *, unclean: bool = False
    ) -> Outcomes:
        """Preferred leaders, or any, for these partitions or for all that need it (None)."""
        with kafka_errors():
            term = self._controllership.require_term()
            if unclean:
                return await self._elections.elect_unclean(term, wanted)
            return await self._elections.elect_preferred(term, wanted)

    async def alter_reassignments(
        self, targets: Targets, *, may_change_factor: bool = True
    ) -> Outcomes:
        """Begin, redirect or cancel moves."""
        with kafka_errors():
            term = self._controllership.require_term()
            return await self._reassignments.alter(
                term, targets, may_change_factor=may_change_factor
            )

    def list_reassignments(
        self, wanted: Collection[TopicPartition] | None
    ) -> Mapping[TopicPartition, PartitionState]:
        """Those of these partitions, or of all, that are on their way."""
        self._controllership.require_term()
        return {
            TopicPartition(topic.name, number): state
            for topic in self._publisher.image.topics.values()
            for number, state in enumerate(topic.partitions)
            if is_moving(state) and (wanted is None or TopicPartition(topic.name, number) in wanted)
        }

    async def _with_enough_brokers(self, plan: Callable[[Sequence[BrokerRack]], T]) -> T:
        """What `plan` makes of the living brokers; where they are too few, of those that are away
        as well. The living ones are counted again then: the news of one that already serves may be
        on its way. Which are away is read from the store, so every controller decides the same."""
        try:
            return plan(())
        except (InvalidReplicationFactorError, InvalidReplicaAssignmentError):
            return plan(_racks(await self._publisher.read_away_brokers()))

    def _warn_of_away(self, topic: TopicState, first: int) -> None:
        """Of the partitions from `first` on."""
        held = {broker for state in topic.partitions[first:] for broker in state.replicas}
        away = sorted(held - self._publisher.image.brokers.keys())
        if away:
            _log.warning(
                "%s gets replicas on brokers that are away: %s. They are in sync when these "
                "brokers are back. Unregister a broker that does not come back",
                topic.name,
                away,
            )

    def _plan_topic(
        self, spec: TopicSpec, term: ControllerTerm, away: Sequence[BrokerRack]
    ) -> TopicState:
        image = self._publisher.image
        if spec.branch_of is not None:
            return self._plan_branch(spec, spec.branch_of, term)
        broker_count = max(1, len(image.brokers))
        plan = plan_topic(
            spec,
            existing=image.topics.keys() | image.deleting.keys(),
            brokers=_racks(image.brokers.values()),
            away=away,
            defaults=self._defaults(),
            check_configs=self._topic_config_rules.check,
            start=PlacementStart(
                index=self._choose(broker_count), shift=self._choose(broker_count)
            ),
        )
        return TopicState(
            name=plan.name,
            topic_id=self._make_topic_id(),
            partitions=_first_states(plan.assignment, image, term),
            configs=plan.configs,
        )

    def _plan_branch(self, spec: TopicSpec, source: str, term: ControllerTerm) -> TopicState:
        image = self._publisher.image
        topic = plan_topic_branch(
            spec,
            self._require_topic(source),
            existing=image.topics.keys() | image.deleting.keys(),
            topic_id=self._make_topic_id(),
            controller_epoch=term.epoch,
        )
        self._topic_config_rules.check(topic.configs)
        if _end_of_first_write(topic, 0) < len(topic.partitions):
            # Who finishes what another controller began takes all replicas for empty.
            raise PolicyViolationError(
                f"topic {source!r} has more partitions than can be branched at once"
            )
        return topic

    async def _write_topic(self, term: ControllerTerm, topic: TopicState) -> TopicState:
        existing, config = await self._coordination.get_many(
            (znodes.topic_path(topic.name), znodes.topic_config_path(topic.name))
        )
        if existing is not None:
            raise TopicExistsError(f"topic {topic.name!r} already exists")
        end = _end_of_first_write(topic, 0)
        operations = topic_operations.create_topic(topic, config, end)
        await self._publisher.clock.sleep(0)  # thousands of them are work for a turn of the loop
        # Not later than in the store, however long the answer takes: commits are compared with it.
        made = replace(topic, version=0, created_ms=self._publisher.store_now_ms())
        await self._controllership.transact(term, operations)
        self._publisher.apply_topics((topic_operations.with_first_versions(made, 0, end),))
        return await self._write_rest(term, topic, end)

    async def _write_rest(self, term: ControllerTerm, topic: TopicState, first: int) -> TopicState:
        """The states for which the first transaction had no room; the controller's queue may be
        faster with some of them."""
        made = self._publisher.image.topics.get(topic.name, topic)
        plan = [
            PlannedState(made, number, made.partitions[number], topic.partitions[number])
            for number in range(first, len(topic.partitions))
        ]
        await self._states.write(plan, term=term)
        return self._publisher.image.topics.get(topic.name, made)

    async def _delete_topic(self, name: str) -> TopicState:
        term = self._controllership.require_term()
        topic = self._require_topic(name)
        await self._deletion.delete(term, topic)
        return topic

    async def _grow_topic(
        self,
        name: str,
        total: int,
        assignments: Sequence[Sequence[int]] | None,
        validate_only: bool,
    ) -> TopicState:
        term = self._controllership.require_term()
        topic = self._require_topic(name)
        added = await self._with_enough_brokers(
            lambda away: plan_partitions(
                topic,
                total,
                assignments,
                brokers=_racks(self._publisher.image.brokers.values()),
                away=away,
            )
        )
        states = _first_states(added, self._publisher.image, term)
        grown = replace(topic, partitions=(*topic.partitions, *states))
        if validate_only:
            return grown
        first = len(topic.partitions)
        self._warn_of_away(grown, first)
        node = await self._coordination.get(znodes.topic_path(name))
        if node is None or node.version != topic.version:
            raise BadVersionError(f"{znodes.topic_path(name)} is newer than the image")
        end = _end_of_first_write(grown, first)
        operations = topic_operations.add_partitions(grown, first, node.version, end)
        await self._publisher.clock.sleep(0)
        await self._controllership.transact(term, operations)
        grown = replace(grown, version=node.version + 1)
        self._publisher.apply_topics((topic_operations.with_first_versions(grown, first, end),))
        return await self._write_rest(term, grown, end)

    def _require_topic(self, name: str) -> TopicState:
        topic = self._publisher.image.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return topic

    async def _retry(self, topic: str | None, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try again with what is there now when another writer was faster."""
        lost: Exception | None = None
        with kafka_errors():
            for _ in range(ATTEMPTS):
                try:
                    return await attempt()
                except (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError) as error:
                    lost = error
                    if topic is not None:
                        await self._publisher.refresh_topics((topic,))
        raise RequestTimedOutError(f"another writer was faster {ATTEMPTS} times: {lost}")


def _end_of_first_write(topic: TopicState, first: int) -> int:
    """How many of the new partitions one transaction takes, beside the topic itself."""
    bytes_each = 400 + 4 * len(topic.name) + 11 * len(topic.partitions[0].replicas)
    return min(len(topic.partitions), first + max(1, MAX_WRITE_BYTES // bytes_each))


def _racks(brokers: Iterable[BrokerState]) -> list[BrokerRack]:
    return [BrokerRack(broker.id, broker.rack) for broker in brokers]


def _first_states(
    assignment: Assignment, image: MetadataImage, term: ControllerTerm
) -> tuple[PartitionState, ...]:
    """Partitions with the same replicas share a state: a topic may have thousands of them."""
    made = {
        replicas: first_partition_state(replicas, image.brokers, term.epoch)
        for replicas in set(assignment)
    }
    return tuple(made[replicas] for replicas in assignment)


@contextmanager
def kafka_errors() -> Iterator[None]:
    """Tell the client in its own words what became of the coordination store."""
    try:
        yield
    except StoreLostError as error:
        raise RequestTimedOutError(f"whether it was done is not known: {error}") from error
    except SessionExpiredError as error:
        raise NotControllerError(f"this broker has left the cluster: {error}") from error
