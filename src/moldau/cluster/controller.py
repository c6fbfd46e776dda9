"""The controller's duties: every partition has a leader, every topic an id. A shell.

Serves a broker that is alone: it claims the controllership and elects itself where it can. What
many brokers need beyond that hangs on the same parts: watch the brokers and call `elect_leaders`
when one comes or goes, call `start` when `/controller` is free. All writes are fenced by the term
(`controllership`); who leads is decided by `rules/leader_election`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from moldau.cluster import layout, topic_operations
from moldau.cluster.cluster_identity import new_topic_id
from moldau.cluster.controllership import Controllership, Term
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.leader_election import PlannedState, plan_elections
from moldau.cluster.rules.metadata_image import (
    NO_NODE,
    NO_TOPIC_ID,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    Create,
    NodeExistsError,
    NoNodeError,
)
from moldau.model import BrokerId, TopicId

logger = logging.getLogger(__name__)

ATTEMPTS = 10
STATES_PER_WRITE = 1000
"""About 200 kB in one transaction; ZooKeeper refuses more than 1 MB."""


class Controller:
    """Acts only while this broker has the term."""

    def __init__(
        self,
        *,
        coordination: Coordination,
        publisher: MetadataPublisher,
        controllership: Controllership,
        unclean_allowed: Callable[[TopicState], bool],
        make_topic_id: Callable[[], TopicId] = new_topic_id,
    ) -> None:
        self._coordination = coordination
        self._publisher = publisher
        self._controllership = controllership
        self._unclean_allowed = unclean_allowed
        self._make_topic_id = make_topic_id

    async def start(self, restarted: Collection[BrokerId]) -> Term | None:
        """Become the controller if nobody is, and put the topics in order.

        `restarted` are brokers that have just come: what they led, they lead under a new epoch.
        """
        term = await self._controllership.claim()
        if term is None:
            return None
        await self._name_topics(term)
        await self.elect_leaders(restarted=restarted)
        return term

    async def elect_leaders(self, *, restarted: Collection[BrokerId] = ()) -> None:
        """Elect for each partition whose leader is gone, missing or restarted."""
        term = self._controllership.require_term()
        names: Collection[str] = self._publisher.image.topics.keys()
        for _ in range(ATTEMPTS):
            names = await self._try_elections(term, names, restarted)
            if not names:
                return
        logger.error("no leaders could be elected for %s", ", ".join(sorted(names)))

    async def _try_elections(
        self, term: Term, names: Collection[str], restarted: Collection[BrokerId]
    ) -> set[str]:
        """Returns the topics whose states changed meanwhile, after reading them again."""
        image = self._publisher.image
        plan = plan_elections(
            [image.topics[name] for name in names if name in image.topics],
            image.brokers.keys(),
            restarted=restarted,
            unclean_allowed=self._unclean_allowed,
            controller_epoch=term.epoch,
        )
        overtaken: set[str] = set()
        for start in range(0, len(plan), STATES_PER_WRITE):
            part = plan[start : start + STATES_PER_WRITE]
            if not await self._write_states(term, part):
                overtaken.update(planned.topic.name for planned in part)
        await self._publisher.refresh_topics(overtaken)
        return overtaken

    async def _write_states(self, term: Term, plan: Sequence[PlannedState]) -> bool:
        topics = sorted({planned.topic.name for planned in plan})
        folders = topic_operations.folders_of_states(plan)
        nodes = await self._coordination.get_many(folders)
        operations = [
            *(Create(path=p) for p, node in zip(folders, nodes, strict=True) if node is None),
            *map(topic_operations.state_write, plan),
            topic_operations.notification(topics),
        ]
        async with self._publisher.announcing:
            try:
                paths = await self._controllership.transact(term, operations)
            except (BadVersionError, NodeExistsError, NoNodeError) as error:
                # A leader changed its in-sync set, or a topic went.
                logger.warning("an election is held again: %s", error)
                return False
            self._publisher.skip_partition_change(paths[-1])
            self._publisher.apply_topics(_with_states(self._publisher.image, plan))
            return True

    async def _name_topics(self, term: Term) -> None:
        """Give an id to each topic that an old tool made without one."""
        unnamed = [t for t in self._publisher.image.topics.values() if t.topic_id == NO_TOPIC_ID]
        for topic in unnamed:
            named = replace(topic, topic_id=self._make_topic_id())
            node = await self._coordination.get(layout.topic_path(topic.name))
            if node is not None:
                write = topic_operations.assignment_write(named, node.version)
                try:
                    await self._controllership.transact(term, (write,))
                except (BadVersionError, NoNodeError):
                    await self._publisher.refresh_topics((topic.name,))
                else:
                    self._publisher.apply_topics((named,))


def _with_states(image: MetadataImage, plan: Iterable[PlannedState]) -> list[TopicState]:
    """The topics of the image with the states that were written."""
    partitions: dict[str, list[PartitionState]] = {}
    for planned in plan:
        name = planned.topic.name
        topic = image.topics.get(name)
        if topic is None or topic.topic_id != planned.topic.topic_id:
            continue  # deleted while the write was under way
        states = partitions.setdefault(name, list(topic.partitions))
        version = 0 if planned.former.version == NO_NODE else planned.former.version + 1
        states[planned.partition] = replace(planned.state, version=version)
    return [
        replace(image.topics[name], partitions=tuple(states)) for name, states in partitions.items()
    ]
