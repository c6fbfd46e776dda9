"""Deletes topics, at once or when all their replicas can be reached. A shell.

Used by the controller alone, under its term. A topic is gone for everybody in one transaction, by a
mark under `/admin/delete_topics`: brokers drop its replicas, clients do not find it. Its nodes, and
with them its name, go when every broker that holds a replica is alive. A controller that dies in
between leaves the mark, and the next one goes on from there.

With the nodes goes the mark, and a broker may look only after that. So the transaction that takes
the first node away leaves a record of the deletion, a node under `/admin/deleted_topics` with the
topic's id as its name: without one, brokers keep a log whose topic is not there any more (DEL-1).
The last few thousand records are kept; whoever comes back after that keeps the log and says so.

Tools ask for a deletion by an empty node in the same place. It becomes a mark, or is taken away
where deletion is disabled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress

from moldau.cluster import topic_operations, znodes
from moldau.cluster.controller_election import ControllerTerm, transact_in_term
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID, DeletedTopic, TopicState
from moldau.cluster.znodes import encode_deletion, find_topic_to_delete
from moldau.coordination.port import (
    ANY_VERSION,
    Check,
    Coordination,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SetData,
    StoreLostError,
)
from moldau.model import TopicId

_log = logging.getLogger("moldau.cluster.controller")

DELETIONS_PER_WRITE = 2000
"""A path has up to 300 bytes; ZooKeeper refuses a request of more than 1 MB."""

PARTITIONS_PER_WRITE = 900
"""Each has two nodes."""

RECORDS_KEPT = 5000
"""So many deletions are remembered, the last ones."""

DELETIONS_PER_PRUNING = 500


class TopicDeletion:
    """The deletions of one cluster."""

    def __init__(self, coordination: Coordination, publisher: MetadataPublisher) -> None:
        self._coordination = coordination
        self._publisher = publisher
        self._finishing = asyncio.Lock()  # a client's request and the controller's queue meet here
        self._until_pruning = 1  # deletions until superfluous records are looked for

    async def delete(self, term: ControllerTerm, topic: TopicState) -> None:
        """In one transaction, if it can be done now; else mark it, and do what can be done.

        The rest is left to the controller's queue, which goes on with what is marked.
        """
        if len(topic.partitions) <= PARTITIONS_PER_WRITE and not await self._is_awaited(topic.name):
            await self._delete_nodes(term, topic.name, topic.topic_id)
            return
        await self._mark_topic(term, topic)
        with suppress(NoNodeError, NotEmptyError, StoreLostError):
            await self._maybe_finish(term, topic.name)

    async def process_requests(self, term: ControllerTerm, *, is_enabled: bool) -> None:
        """Do what tools ask for."""
        for name in await self._coordination.children(znodes.DELETE_TOPICS):
            path = znodes.delete_topic_path(name)
            node = await self._coordination.get(path)
            topic = self._publisher.image.topics.get(name)
            if node is None or name in self._publisher.image.deleting:
                continue
            if topic is not None and is_enabled:
                with suppress(NoNodeError, NodeExistsError):  # it went by itself
                    await self.delete(term, topic)
            elif find_topic_to_delete(name, node.data) is None:
                _log.warning("the request to delete %s is dropped: %s", name, _reason(topic))
                with suppress(NoNodeError):
                    await transact_in_term(self._coordination, term, (Delete(path=path),))
            else:
                await self._publisher.refresh_topics((name,))

    async def finish_deletions(self, term: ControllerTerm) -> None:
        """Finish the deletions that can be finished now."""
        for name in sorted(self._publisher.image.deleting):
            await self._maybe_finish(term, name)

    async def _mark_topic(self, term: ControllerTerm, topic: TopicState) -> None:
        path = znodes.delete_topic_path(topic.name)
        data = encode_deletion(topic.topic_id)
        node = await self._coordination.get(path)
        marked: Operation = (
            Create(path=path, data=data) if node is None else SetData(path=path, data=data)
        )
        exists = Check(path=znodes.topic_path(topic.name), version=ANY_VERSION)
        told = topic_operations.notify_topics([topic.name])
        await transact_in_term(self._coordination, term, (exists, marked, told))
        self._publisher.apply_deletion(topic)

    async def _maybe_finish(self, term: ControllerTerm, name: str) -> None:
        async with self._finishing:
            if name in self._publisher.image.deleting and not await self._is_awaited(name):
                await self._delete_nodes(term, name, self._publisher.image.deleting[name])

    async def _is_awaited(self, name: str) -> bool:
        """Whether a broker that holds a replica is away."""
        node = await self._coordination.get(znodes.topic_path(name))
        if node is not None:
            assignment = znodes.decode_topic(name, node.data)
            holders = {broker for replicas in assignment.replicas for broker in replicas}
            away = sorted(holders - self._publisher.image.brokers.keys())
            if away:
                _log.info("%s is deleted when these brokers are back: %s", name, away)
                return True
        return False

    async def _delete_nodes(self, term: ControllerTerm, name: str, topic_id: TopicId) -> None:
        partitions = await self._coordination.children(znodes.partitions_path(name))
        paths = topic_operations.list_topic_paths(name, partitions)
        nodes = await self._coordination.get_many(paths)
        present = [path for path, node in zip(paths, nodes, strict=True) if node is not None]
        record = await self._coordination.get(znodes.deleted_topic_path(topic_id))
        is_told = record is not None or topic_id == NO_TOPIC_ID
        first = [] if is_told else [topic_operations.record_deletion(name, topic_id)]
        *parts, last = _parts(present)
        for part in parts:
            operations = [*first, *(Delete(path=path) for path in part)]
            await transact_in_term(self._coordination, term, operations)
            first = []
        operations = [*first, *topic_operations.delete_topic(name, last)]
        deleted = {topic_id: DeletedTopic(name, self._publisher.store_now_ms())}
        await transact_in_term(self._coordination, term, operations)
        self._publisher.apply_topics((), removed=(name,), deleted=deleted)
        await self._maybe_prune(term)

    async def _maybe_prune(self, term: ControllerTerm) -> None:
        """Take the oldest records away where there are more than anybody needs."""
        self._until_pruning -= 1
        if self._until_pruning > 0:
            return
        self._until_pruning = DELETIONS_PER_PRUNING
        names = await self._coordination.children(znodes.DELETED_TOPICS)
        if len(names) <= RECORDS_KEPT:
            return
        paths = [f"{znodes.DELETED_TOPICS}/{name}" for name in names]
        nodes = await self._coordination.get_many(paths)
        aged = sorted(
            (node.modified_ms, path) for path, node in zip(paths, nodes, strict=True) if node
        )
        superfluous = [path for _, path in aged[: max(0, len(aged) - RECORDS_KEPT)]]
        for part in _parts(superfluous):
            with suppress(NoNodeError):  # the next time is early enough
                operations = [Delete(path=path) for path in part]
                await transact_in_term(self._coordination, term, operations)


def _parts(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """At least one part, which may be empty."""
    for start in range(0, max(1, len(paths)), DELETIONS_PER_WRITE):
        yield paths[start : start + DELETIONS_PER_WRITE]


def _reason(topic: TopicState | None) -> str:
    return "there is no such topic" if topic is None else "delete.topic.enable is false"
