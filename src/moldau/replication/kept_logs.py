"""Logs on this broker that are out of service because the metadata does not account for them.

`rules.replica_fate` says which (DEL-1). Such a log stays in its folder, untouched, until its topic
is there again. Two things make that more than leaving it alone:

- A topic of the same name, under another id, may need the folder: then the log is set aside under
  another name (`storage.set_aside`), and taken back when its own id is there again.
- While a topic was away, nobody could say what its logs here are worth. That is written into the
  store before they are opened again (`Membership.return_late`); until then they are unjudged
  (REP-6). An empty log in the place of one that is missing must not count as in sync.

A shell, owned by `Partitions`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from moldau.cluster.rules.metadata_image import (
    NO_NODE,
    MetadataImage,
    PartitionState,
    TopicState,
    find_later_epoch,
)
from moldau.config.topic_options import TopicOptions
from moldau.model import BrokerId, LeaderEpoch, TopicId, TopicPartition, format_uuid
from moldau.replication.rules.replica_fate import is_same_topic
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore

_log = logging.getLogger("moldau.replication")


class ServedState(NamedTuple):
    """What this broker last knew of a partition that it held."""

    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]


class KeptLogs:
    """See the module."""

    def __init__(self, log_store: LogStore) -> None:
        self._log_store = log_store
        self._unjudged: dict[TopicPartition, TopicId | None] = {}
        self._unread: set[str] = set()  # topics whose nodes made no sense when the broker came
        self._served: dict[TopicPartition, ServedState] = {}  # until their topics vanished
        self._stateless: set[TopicPartition] = set()  # have records; had no state when we came
        self._moving = asyncio.Lock()  # held while a folder is given another name

    # Which

    def begin(self, image: MetadataImage) -> None:
        """The broker has said what its logs are worth, as far as the image has their states.

        A partition without a state is new to the controller, which takes every living replica for
        in sync. Where there are records already, the state was lost.
        """
        self._unread |= image.unreadable
        for key, log in self._log_store.logs.items():
            state = image.find_partition(*key)
            if state is not None and state.version == NO_NODE and log.log_end_offset > 0:
                self._unjudged[key] = log.topic_id
                self._stateless.add(key)

    def keep(self, key: TopicPartition, log: Log, image: MetadataImage) -> None:
        """A log has no part here any more, and that is no reason to delete it."""
        self._unjudged[key] = log.topic_id
        _log.error(
            "%s (topic id %s, %d bytes) is kept in %s and not served: the coordination store has "
            "no such topic or no later state of it, and nobody asked for its deletion. It is "
            "served again when its nodes are back (restore them from a backup of the store); if "
            "nobody needs its records, stop the broker and remove the folder",
            key,
            "unknown" if log.topic_id is None else format_uuid(log.topic_id),
            log.size_bytes,
            log.folder,
        )

    async def keep_unserved(self, key: TopicPartition, log: Log, image: MetadataImage) -> None:
        """As `keep`, of a log that the broker came with.

        One whose partition is elsewhere now gives its place up: it may be assigned again.
        """
        topic = image.topics.get(key.topic)
        is_elsewhere = topic is not None and is_same_topic(log.topic_id, topic.topic_id)
        if not is_elsewhere or image.find_partition(*key) is None:
            self.keep(key, log, image)
            return
        self._unjudged[key] = log.topic_id
        folder = await self._log_store.aside.set_aside(key)
        _log.warning(
            "%s was assigned to other brokers while this one was away: its log is kept in %s. "
            "Remove the folder once the partition is well there",
            key,
            folder,
        )

    def keep_served(
        self, key: TopicPartition, log: Log, state: ServedState, image: MetadataImage
    ) -> None:
        """As `keep`, of a log that was in service until now."""
        self._served[key] = state
        self.keep(key, log, image)

    def was_served(self, key: TopicPartition) -> bool:
        """Whether a log that is kept was in service since the broker was started."""
        return key in self._served

    def find_later_epoch(self, key: TopicPartition, state: PartitionState) -> LeaderEpoch | None:
        """An epoch later than the state's, if this broker knows that the state is not to be
        believed (DEL-2)."""
        if key in self._stateless:
            return LeaderEpoch(state.leader_epoch + 1)
        served = self._served.get(key)
        return None if served is None else find_later_epoch(*served, state)

    def is_unjudged(self, topic: TopicState, number: int) -> bool:
        """Whether the topic was away when the broker said what its logs are worth (REP-6)."""
        if topic.partitions[number].version != NO_NODE and topic.name in self._unread:
            return True
        key = TopicPartition(topic.name, number)
        return key in self._unjudged and is_same_topic(self._unjudged[key], topic.topic_id)

    def on_judged(self, topic: TopicState) -> None:
        """What this broker's logs of a topic are worth is in the store now."""
        self._unread.discard(topic.name)
        for number, state in enumerate(topic.partitions):
            if state.version != NO_NODE:
                key = TopicPartition(topic.name, number)
                self._unjudged.pop(key, None)
                self._stateless.discard(key)

    def on_gone(self, name: str) -> None:
        """Somebody took away a topic that could not be read: one that is made now is new."""
        self._unread.discard(name)

    def on_open(self, key: TopicPartition) -> None:
        self._served.pop(key, None)

    # Setting aside and taking back

    async def take_back(self, topic: TopicState, number: int, options: TopicOptions) -> None:
        """Put the log of a topic in its place that was set aside for another one's."""
        key = TopicPartition(topic.name, number)
        if not self._log_store.aside.has(key, topic.topic_id):
            return
        async with self._moving:
            if not self._log_store.aside.has(key, topic.topic_id):
                return  # somebody else was waiting for it, too
            log = self._log_store.logs.get(key)
            if log is not None and not is_same_topic(log.topic_id, topic.topic_id):
                await self._make_room(key, log, None)
                log = None
            if log is None:
                log = await self._log_store.aside.take_back(key, topic.topic_id, options)
                if log is not None:
                    _log.warning("%s is served again: it had been set aside", key)

    async def make_room(self, key: TopicPartition, log: Log, image: MetadataImage | None) -> None:
        """Another topic has the name now, and a log must not be taken for that one's."""
        async with self._moving:
            if self._log_store.logs.get(key) is log:
                await self._make_room(key, log, image)

    async def _make_room(self, key: TopicPartition, log: Log, image: MetadataImage | None) -> None:
        if image is not None and image.was_deleted(key.topic, log.topic_id):
            await self._log_store.delete_log(key)
            return
        self._unjudged.pop(key, None)
        folder = await self._log_store.aside.set_aside(key)
        _log.error(
            "%s on disk belongs to another topic of the same name, whose deletion nobody asked "
            "for: its log is kept in %s. Remove the folder if nobody needs its records",
            key,
            folder,
        )
