"""Reads the cluster's state from the coordination store into the values of `metadata_image`.

A shell without state. A node that makes no sense is logged with its path and left out: one broken
topic must not keep the others from being served.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.cluster import layout
from moldau.cluster.admin_nodes import find_topic_to_delete
from moldau.cluster.rules.metadata_image import (
    NO_BROKER,
    BrokerState,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.cluster.topic_operations import assignment_of
from moldau.coordination.port import Coordination, Node
from moldau.errors import MalformedNodeError
from moldau.model import BrokerId, LeaderEpoch, TopicId

logger = logging.getLogger(__name__)


class TopicsRead(NamedTuple):
    """A topic whose nodes make no sense is in none of them."""

    topics: list[TopicState]
    missing: list[str]
    deleting: dict[str, TopicId]


class MetadataReader:
    """Reads; changes nothing."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination

    async def read_image(self, cluster_id: str) -> MetadataImage:
        names = await self._coordination.children(layout.TOPICS)
        read = await self.read_topics(names)
        image = MetadataImage(
            cluster_id=cluster_id,
            controller_id=await self.read_controller(),
            broker_configs=await self._read_broker_configs(),
            default_broker_config=await self.read_broker_config(None),
        )
        brokers = await self.read_brokers()
        return image.with_brokers(brokers).with_topics(read.topics, deleting=read.deleting)

    async def read_topics(self, names: Collection[str]) -> TopicsRead:
        """All of it in few rounds: topics, those to be deleted, partitions, configs."""
        assignments, missing = await self._read_assignments(tuple(names))
        deleting = await self._read_deletions(assignments)
        for name in deleting:
            del assignments[name]
        states = await self._coordination.get_many(
            [
                layout.partition_state_path(name, partition)
                for name, assignment in assignments.items()
                for partition in range(len(assignment.replicas))
            ]
        )
        configs = await self._coordination.get_many(
            [layout.topic_config_path(name) for name in assignments]
        )
        topics = _assemble(assignments, iter(states), configs)
        return TopicsRead(topics, missing, deleting)

    async def read_states(
        self, topic: TopicState, numbers: Sequence[int]
    ) -> dict[int, PartitionState] | None:
        """The states of some partitions of a topic that is known.

        None when they cannot be told apart from those of another topic of the same name, or make
        no sense: then the topic is to be read as a whole. Its own node is read last, so what was
        read before belongs to the topic that it names.
        """
        paths = [layout.partition_state_path(topic.name, number) for number in numbers]
        *nodes, own = await self._coordination.get_many([*paths, layout.topic_path(topic.name)])
        states = {}
        try:
            assignment = layout.decode_topic(topic.name, b"" if own is None else own.data)
            if assignment != assignment_of(topic):
                return None
            for number, node in zip(numbers, nodes, strict=True):
                if node is None:
                    return None
                states[number] = _partition(topic.name, number, node, assignment)
        except MalformedNodeError:
            return None
        return states

    async def _read_deletions(
        self, assignments: Mapping[str, layout.TopicAssignment]
    ) -> dict[str, TopicId]:
        """The topics whose deletion the controller has begun. A mere request is left to it."""
        marked = await self._coordination.children(layout.DELETE_TOPICS)
        names = [name for name in marked if name in assignments]
        nodes = await self._coordination.get_many([layout.delete_topic_path(n) for n in names])
        deleting = {}
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                topic_id = find_topic_to_delete(name, node.data)
                if topic_id == assignments[name].topic_id:
                    deleting[name] = topic_id
        return deleting

    async def _read_assignments(
        self, names: Sequence[str]
    ) -> tuple[dict[str, layout.TopicAssignment], list[str]]:
        nodes = await self._coordination.get_many([layout.topic_path(name) for name in names])
        assignments: dict[str, layout.TopicAssignment] = {}
        missing: list[str] = []
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                missing.append(name)
                continue
            try:
                assignments[name] = layout.decode_topic(name, node.data)
            except MalformedNodeError as error:
                logger.error("topic %s is left out: %s", name, error)
        return assignments, missing

    async def read_brokers(self) -> list[BrokerState]:
        names = await self._coordination.children(layout.BROKER_IDS)
        ids = [BrokerId(int(name)) for name in names if name.isdecimal()]
        nodes = await self._coordination.get_many([layout.broker_path(id_) for id_ in ids])
        brokers = []
        for broker_id, node in zip(ids, nodes, strict=True):
            try:
                if node is not None:
                    brokers.append(
                        layout.decode_broker(broker_id, node.data, epoch=node.created_id)
                    )
            except MalformedNodeError as error:
                logger.error("broker %d is left out: %s", broker_id, error)
        return brokers

    async def read_controller(self) -> BrokerId:
        node = await self._coordination.get(layout.CONTROLLER)
        try:
            return NO_BROKER if node is None else layout.decode_controller(node.data)
        except MalformedNodeError as error:
            logger.error("the controller is not known: %s", error)
            return NO_BROKER

    async def read_broker_config(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        path = layout.broker_config_path(broker_id)
        return _config(path, await self._coordination.get(path))

    async def _read_broker_configs(self) -> dict[BrokerId, Mapping[str, str]]:
        names = await self._coordination.children(layout.BROKER_CONFIGS)
        ids = [BrokerId(int(name)) for name in names if name.isdecimal()]
        configs = {broker_id: await self.read_broker_config(broker_id) for broker_id in ids}
        return {broker_id: config for broker_id, config in configs.items() if config}


def _assemble(
    assignments: Mapping[str, layout.TopicAssignment],
    states: Iterable[Node | None],
    configs: Sequence[Node | None],
) -> list[TopicState]:
    topics = []
    state_nodes = iter(states)
    for (name, assignment), config in zip(assignments.items(), configs, strict=True):
        nodes = [next(state_nodes) for _ in assignment.replicas]
        try:
            partitions = tuple(
                _partition(name, number, node, assignment) for number, node in enumerate(nodes)
            )
        except MalformedNodeError as error:
            logger.error("topic %s is left out: %s", name, error)
            continue
        topics.append(
            TopicState(
                name=name,
                topic_id=assignment.topic_id,
                partitions=partitions,
                configs=_config(layout.topic_config_path(name), config),
            )
        )
    return topics


def _partition(
    topic: str, number: int, node: Node | None, assignment: layout.TopicAssignment
) -> PartitionState:
    if node is not None:
        return layout.decode_partition_state(topic, number, node.data, node.version, assignment)
    return PartitionState(
        leader=NO_BROKER,
        leader_epoch=LeaderEpoch(0),
        isr=(),
        replicas=assignment.replicas[number],
    )


def _config(path: str, node: Node | None) -> Mapping[str, str]:
    try:
        return {} if node is None else layout.decode_config(path, node.data)
    except MalformedNodeError as error:
        logger.error("a config counts as empty: %s", error)
        return {}
