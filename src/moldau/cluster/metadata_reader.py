"""Reads the cluster's state from the coordination store into the values of `metadata_image`.

A shell without state. A topic's node, which holds the replicas, is read before the states of its
partitions and again behind them; if somebody wrote it meanwhile, all of it is read again. So each
state comes with the replicas that were assigned while it was in force (META-4).

A node that makes no sense is logged with its path and left out: one broken
topic must not keep the others from being served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar

from moldau.cluster import entity_znodes, znodes
from moldau.cluster.rules.metadata_image import (
    BrokerState,
    DeletedTopic,
    MetadataImage,
    PartitionState,
    TopicState,
)
from moldau.cluster.topic_operations import assignment_of
from moldau.cluster.znodes import find_topic_to_delete
from moldau.config.broker_options import UNKNOWN_BROKER_SETTINGS
from moldau.config.topic_options import UNKNOWN_TOPIC_SETTINGS
from moldau.coordination.port import Coordination, Node
from moldau.errors import MalformedNodeError
from moldau.model import (
    NO_BROKER,
    NO_TIMESTAMP,
    AclEntry,
    BrokerId,
    LeaderEpoch,
    ResourcePattern,
    TopicId,
)
from moldau.quotas import QuotaEntity

_log = logging.getLogger("moldau.cluster")

K = TypeVar("K")
R = TypeVar("R")


class TopicsRead(NamedTuple):
    """Each name that was read is in one of them."""

    topics: list[TopicState]
    missing: list[str]
    deleting: dict[str, TopicId]
    unreadable: set[str]  # their nodes make no sense: not there, and not gone either


class _Assigned(NamedTuple):
    """A topic's node, and what it says."""

    node: Node
    assignment: znodes.TopicAssignment


class MetadataReader:
    """Reads; changes nothing."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination

    async def read_image(self, cluster_id: str) -> MetadataImage:
        deleted = await self.read_all_deleted()
        names = await self._coordination.children(znodes.TOPICS)
        read = await self.read_topics(names)
        image = MetadataImage(
            cluster_id=cluster_id,
            controller_id=await self.read_controller(),
            broker_configs=await self._read_broker_configs(),
            default_broker_config=await self.read_broker_config(None),
        )
        group_ids = await self.read_configured_groups()
        image = image.with_group_configs(await self.read_group_configs(group_ids))
        image = image.with_quotas(await self.read_quotas(await self.read_quota_entities()))
        brokers = await self.read_brokers()
        image = image.with_brokers(brokers).with_topics(
            read.topics, deleting=read.deleting, deleted=deleted
        )
        return replace(image, unreadable=frozenset(read.unreadable))

    async def read_all_deleted(self) -> dict[TopicId, DeletedTopic]:
        """All topics that are known to have been deleted."""
        names = await self._coordination.children(znodes.DELETED_TOPICS)
        found = map(znodes.find_deleted_topic, names)
        return await self.read_deleted([topic_id for topic_id in found if topic_id is not None])

    async def read_deleted(self, topic_ids: Collection[TopicId]) -> dict[TopicId, DeletedTopic]:
        """Those of these topics that were deleted, and did not merely vanish (DEL-1), in the order
        of their deletions."""
        paths = [znodes.deleted_topic_path(topic_id) for topic_id in topic_ids]
        nodes = await self._coordination.get_many(paths)
        pairs = zip(topic_ids, nodes, strict=True)
        found = [(topic_id, node) for topic_id, node in pairs if node is not None]
        found.sort(key=lambda pair: pair[1].created_id)
        return {
            topic_id: DeletedTopic(node.data.decode(errors="replace"), node.modified_ms)
            for topic_id, node in found
        }

    async def read_topics(self, names: Collection[str]) -> TopicsRead:
        """All of it in few rounds; what was moved meanwhile in a few more."""
        read = TopicsRead([], [], {}, set())
        pending: Sequence[str] = tuple(names)
        while pending:
            pending = await self._read_into(read, pending)
        found = {topic.name for topic in read.topics}
        read.unreadable.update(set(names).difference(found, read.missing, read.deleting))
        return read

    async def _read_into(self, read: TopicsRead, names: Sequence[str]) -> list[str]:
        """Three rounds: topics, those to be deleted, partitions and configs.

        Returns the topics that were written meanwhile, of which nothing was taken.
        """
        assignments, missing = await self._read_assignments(names)
        read.missing.extend(missing)
        deleting = await self._read_deletions(assignments)
        read.deleting.update(deleting)
        for name in deleting:
            del assignments[name]
        places = [
            (name, partition)
            for name, assigned in assignments.items()
            for partition in range(len(assigned.assignment.replicas))
        ]
        nodes = await self._coordination.get_many(
            [
                *(znodes.partition_state_path(*place) for place in places),
                *map(znodes.topic_path, assignments),
                *map(znodes.topic_config_path, assignments),
                *map(znodes.partitions_path, assignments),
            ]
        )
        states: dict[str, list[Node | None]] = {name: [] for name in assignments}
        for (name, _), node in zip(places, nodes, strict=False):
            states[name].append(node)
        rest, count = nodes[len(places) :], len(assignments)
        written = []
        for (name, assigned), end, config, folder in zip(
            assignments.items(), rest[:count], rest[count:-count], rest[-count:], strict=True
        ):
            if end is None or not _is_same(assigned.node, end):
                written.append(name)
                continue
            topic = _find_topic(name, assigned, states[name], config, folder)
            if topic is not None:
                read.topics.append(topic)
        return written

    async def read_states(
        self, wanted: Sequence[tuple[TopicState, Sequence[int]]]
    ) -> list[dict[int, PartitionState] | None]:
        """The states of some partitions of topics that are known, of all topics in one round.

        None when the topic's own node, which is read last, is not what it was when the topic was
        read, or when something makes no sense: then the topic is to be read as a whole.
        """
        nodes = await self._coordination.get_many(
            [
                *(
                    znodes.partition_state_path(topic.name, number)
                    for topic, numbers in wanted
                    for number in numbers
                ),
                *(znodes.topic_path(topic.name) for topic, _ in wanted),
            ]
        )
        states = iter(nodes)
        owns = nodes[len(nodes) - len(wanted) :]
        return [
            _find_states(topic, {number: next(states) for number in numbers}, own)
            for (topic, numbers), own in zip(wanted, owns, strict=True)
        ]

    async def _read_deletions(self, assignments: Mapping[str, _Assigned]) -> dict[str, TopicId]:
        """The topics whose deletion the controller has begun. A mere request is left to it."""
        marked = await self._coordination.children(znodes.DELETE_TOPICS)
        names = [name for name in marked if name in assignments]
        nodes = await self._coordination.get_many([znodes.delete_topic_path(n) for n in names])
        deleting = {}
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                topic_id = find_topic_to_delete(name, node.data)
                if topic_id == assignments[name].assignment.topic_id:
                    deleting[name] = topic_id
        return deleting

    async def _read_assignments(
        self, names: Sequence[str]
    ) -> tuple[dict[str, _Assigned], list[str]]:
        nodes = await self._coordination.get_many([znodes.topic_path(name) for name in names])
        assignments: dict[str, _Assigned] = {}
        missing: list[str] = []
        for name, node in zip(names, nodes, strict=True):
            if node is None:
                missing.append(name)
                continue
            try:
                assignments[name] = _Assigned(node, znodes.decode_topic(name, node.data))
            except MalformedNodeError as error:
                _log.error("topic %s is left out: %s", name, error)
        return assignments, missing

    async def _read_rows(
        self,
        keys: Sequence[K],
        path_of: Callable[[K], str],
        decode: Callable[[K, Node | None], R],
        failure: str,
    ) -> dict[K, R]:
        """In one round; those whose nodes are damaged are left out, and `failure` is logged."""
        nodes = await self._coordination.get_many([path_of(key) for key in keys])
        rows: dict[K, R] = {}
        for key, node in zip(keys, nodes, strict=True):
            try:
                rows[key] = decode(key, node)
            except MalformedNodeError as error:
                _log.error(failure, key, error)
        return rows

    async def read_brokers(self, folder: str = znodes.BROKER_IDS) -> list[BrokerState]:
        """The living brokers; or those of `REGISTERED_BROKERS`, alive or not."""

        def decode(broker_id: BrokerId, node: Node | None) -> BrokerState | None:
            if node is None:
                return None
            return znodes.decode_broker(broker_id, node.data, epoch=node.created_id)

        names = await self._coordination.children(folder)
        ids = [BrokerId(int(name)) for name in names if name.isdecimal()]
        rows = await self._read_rows(
            ids, lambda one: f"{folder}/{one}", decode, "broker %d is left out: %s"
        )
        return [broker for broker in rows.values() if broker is not None]

    async def read_controller(self) -> BrokerId:
        node = await self._coordination.get(znodes.CONTROLLER)
        try:
            return NO_BROKER if node is None else znodes.decode_controller(node.data)
        except MalformedNodeError as error:
            _log.error("the controller is not known: %s", error)
            return NO_BROKER

    async def read_broker_config(self, broker_id: BrokerId | None) -> Mapping[str, str]:
        """`UNKNOWN_BROKER_SETTINGS` where the node is damaged."""
        path = znodes.broker_config_path(broker_id)
        return _config(path, await self._coordination.get(path), UNKNOWN_BROKER_SETTINGS)

    async def _read_broker_configs(self) -> dict[BrokerId, Mapping[str, str]]:
        names = await self._coordination.children(znodes.BROKER_CONFIGS)
        ids = [BrokerId(int(name)) for name in names if name.isdecimal()]
        configs = {broker_id: await self.read_broker_config(broker_id) for broker_id in ids}
        return {broker_id: config for broker_id, config in configs.items() if config}

    async def read_configured_groups(self) -> list[str]:
        names = await self._coordination.children(znodes.GROUP_CONFIGS)
        return [znodes.decode_group_name(name) for name in names]

    async def read_group_configs(self, group_ids: Sequence[str]) -> dict[str, Mapping[str, str]]:
        """In one round; groups whose nodes are damaged are left out."""

        def decode(group_id: str, node: Node | None) -> Mapping[str, str]:
            path = znodes.group_config_path(group_id)
            return {} if node is None else znodes.decode_config(path, node.data)

        return await self._read_rows(
            group_ids,
            znodes.group_config_path,
            decode,
            "settings of group %s cannot be read, those known before stay in force. Mend them with "
            "`moldau configs alter`: %s",
        )

    async def list_acl_patterns(self) -> list[ResourcePattern]:
        """The patterns that access control lists are kept for."""
        found = []
        for pattern_type, root in entity_znodes.STORES.items():
            for label in await self._coordination.children(root):
                kind = entity_znodes.find_acl_type(label)
                if kind is not None:
                    names = await self._coordination.children(f"{root}/{label}")
                    found += [entity_znodes.read_pattern(kind, one, pattern_type) for one in names]
        return found

    async def read_acls(
        self, patterns: Sequence[ResourcePattern]
    ) -> dict[ResourcePattern, frozenset[AclEntry]]:
        """In one round; no entries where there is no node."""
        paths = [entity_znodes.acl_path(pattern) for pattern in patterns]
        nodes = await self._coordination.get_many(paths)
        return {
            pattern: frozenset() if node is None else entity_znodes.decode_acls(path, node.data)
            for pattern, path, node in zip(patterns, paths, nodes, strict=True)
        }

    async def read_quota_entities(self) -> list[QuotaEntity]:
        """All that have a node, with quotas or without."""
        children = self._coordination.children
        users = await children(znodes.USER_CONFIGS)
        paths = [f"users/{user}" for user in users]
        paths += [f"clients/{client}" for client in await children(znodes.CLIENT_CONFIGS)]
        paths += [f"ips/{ip}" for ip in await children(znodes.IP_CONFIGS)]
        of_users = await asyncio.gather(
            *(children(f"{znodes.USER_CONFIGS}/{user}/clients") for user in users)
        )
        for user, clients in zip(users, of_users, strict=True):
            paths += [f"users/{user}/clients/{client}" for client in clients]
        found = map(entity_znodes.find_quota_entity, paths)
        return [entity for entity in found if entity is not None]

    async def read_quotas(
        self, entities: Sequence[QuotaEntity]
    ) -> dict[QuotaEntity, dict[str, float]]:
        """In one round; those whose nodes are damaged are left out."""
        return await self._read_rows(
            entities,
            entity_znodes.quota_path,
            lambda entity, node: (
                {} if node is None else entity_znodes.decode_quotas(entity, node.data)
            ),
            "quotas of %s cannot be read, those known before stay in force. Mend them with "
            "`moldau quotas set`: %s",
        )


def _is_same(one: Node, other: Node) -> bool:
    """Whether nobody wrote a node between two readings of it."""
    return (one.version, one.created_id) == (other.version, other.created_id)


def _find_topic(
    name: str,
    assigned: _Assigned,
    states: Sequence[Node | None],
    config: Node | None,
    folder: Node | None,
) -> TopicState | None:
    """None when its nodes make no sense. The folder of its partitions is made with the topic and
    never written again."""
    node, assignment = assigned
    try:
        partitions = tuple(
            _partition(name, number, state, assignment) for number, state in enumerate(states)
        )
    except MalformedNodeError as error:
        _log.error("topic %s is left out: %s", name, error)
        return None
    return TopicState(
        name=name,
        topic_id=assignment.topic_id,
        partitions=partitions,
        configs=_config(znodes.topic_config_path(name), config, UNKNOWN_TOPIC_SETTINGS),
        version=node.version,
        origin=assignment.origin,
        created_ms=NO_TIMESTAMP if folder is None else folder.modified_ms,
    )


def _find_states(
    topic: TopicState, nodes: Mapping[int, Node | None], own: Node | None
) -> dict[int, PartitionState] | None:
    states = {}
    try:
        if own is None or own.version != topic.version:
            return None
        assignment = znodes.decode_topic(topic.name, own.data)
        if assignment != assignment_of(topic):
            return None  # another topic of the same name
        for number, node in nodes.items():
            if node is None:
                return None
            states[number] = _partition(topic.name, number, node, assignment)
    except MalformedNodeError:
        return None
    return states


def _partition(
    topic: str, number: int, node: Node | None, assignment: znodes.TopicAssignment
) -> PartitionState:
    if node is not None:
        return znodes.decode_partition_state(topic, number, node.data, node.version, assignment)
    return PartitionState(
        leader=NO_BROKER,
        leader_epoch=LeaderEpoch(0),
        isr=(),
        replicas=assignment.replicas[number],
    )


def _config(path: str, node: Node | None, unknown: Mapping[str, str]) -> Mapping[str, str]:
    """`unknown`, this very object, where the node is damaged: no settings would be a guess."""
    try:
        return {} if node is None else znodes.decode_config(path, node.data)
    except MalformedNodeError as error:
        _log.error(
            "settings cannot be read: those known before stay in force, and where none are known "
            "nothing is deleted or compacted. Mend it with `moldau configs alter`: %s",
            error,
        )
        return unknown
