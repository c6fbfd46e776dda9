"""The replicas on this broker: opened, closed and given their part as the metadata says.

A shell, owned by one task: images are applied one after the other, in the order in which they were
published. Handlers look partitions up between two of its steps.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage, TopicState
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import TopicOptions
from moldau.errors import NotLeaderError, StorageError, UnknownTopicError
from moldau.model import BrokerId, Offset, TopicPartition
from moldau.replication.partition import Partition
from moldau.storage.log_store import LogStore
from moldau.workers import Workers

_log = logging.getLogger(__name__)


class Progress(Protocol):
    """Who wants to know what happens to partitions (the broker's waiting room)."""

    def on_append(self, topic_partition: TopicPartition, size_bytes: int) -> None: ...

    def on_change(self, topic_partition: TopicPartition) -> None: ...


class Partitions:
    """Every replica here, by topic and number."""

    def __init__(
        self,
        log_store: LogStore,
        *,
        broker_id: BrokerId,
        options: Callable[[], BrokerOptions],
        clock: Clock,
        workers: Workers,
        progress: Progress,
    ) -> None:
        self._log_store = log_store
        self._broker_id = broker_id
        self._options = options
        self._clock = clock
        self._workers = workers
        self._progress = progress
        self._partitions: dict[TopicPartition, Partition] = {}
        self._offline: set[TopicPartition] = set()  # ours, but their log directory failed
        self._image: MetadataImage | None = None
        self._waiting: asyncio.Queue[tuple[MetadataImage, frozenset[str]]] = asyncio.Queue()
        self._has_begun = False
        self._applied_version = -1
        self._applied = asyncio.Condition()

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get(TopicPartition(topic, partition))

    def require_leader(self, topic: str, partition: int) -> Partition:
        """The replica that this broker leads; raises what tells the client where to go instead."""
        found = self._partitions.get(TopicPartition(topic, partition))
        if found is not None and found.is_leader:
            return found
        state = None if self._image is None else self._image.find_partition(topic, partition)
        if found is None and state is None:
            raise UnknownTopicError(f"there is no partition {topic}-{partition} here")
        if TopicPartition(topic, partition) in self._offline:
            raise StorageError(f"the log directory of {topic}-{partition} is offline")
        if state is not None and state.leader == self._broker_id:
            raise NotLeaderError(f"{topic}-{partition} is being opened")
        raise NotLeaderError(f"{topic}-{partition} is not led by broker {self._broker_id}")

    # Following the metadata

    async def begin(self, image: MetadataImage) -> None:
        """Give every log that was loaded its part, before the first request is answered.

        A log without a topic is what a crash in the middle of a deletion leaves. It is put aside
        and not deleted, since the metadata may be what is wrong, after a restore for example.
        """
        unknown = [
            topic_partition
            for topic_partition in self._log_store.logs
            if image.find_partition(*topic_partition) is None
        ]
        for topic_partition in unknown:
            with contextlib.suppress(StorageError):  # reported by the directory
                folder = await self._log_store.set_aside(topic_partition)
                _log.warning("%s has no topic, its files are kept in %s", topic_partition, folder)
        await self.apply(image, tuple(image.topics))
        self._has_begun = True

    def on_image(self, image: MetadataImage, changed_topics: Iterable[str]) -> None:
        """A new image was published; it is applied by the task that runs `run`."""
        self._waiting.put_nowait((image, frozenset(changed_topics)))

    async def run(self) -> None:
        while True:
            image, changed = await self._waiting.get()
            await self.apply(image, changed)

    async def wait_until_applied(self, version: int) -> None:
        """Return when the image of this version, or a later one, is in force here."""
        async with self._applied:
            await self._applied.wait_for(lambda: self._applied_version >= version)

    async def apply(self, image: MetadataImage, changed_topics: Iterable[str]) -> None:
        """Make the replicas here what the image says of these topics."""
        self._image = image
        for name in changed_topics:
            await self._apply_topic(name, image.topics.get(name))
        async with self._applied:
            self._applied_version = max(self._applied_version, image.version)
            self._applied.notify_all()

    async def _apply_topic(self, name: str, topic: TopicState | None) -> None:
        for topic_partition in [key for key in self._partitions if key.topic == name]:
            held = self._partitions[topic_partition]
            if (
                topic is None
                or held.topic_id != topic.topic_id
                or topic_partition.partition >= len(topic.partitions)
            ):
                await self._drop(topic_partition)
        if topic is None:
            return
        options = TopicOptions.resolve(topic.configs, self._options())
        for number, state in enumerate(topic.partitions):
            if self._broker_id not in state.replicas:
                continue
            topic_partition = TopicPartition(name, number)
            partition = self._partitions.get(topic_partition)
            if partition is None:
                partition = await self._open(topic_partition, topic, options)
                if partition is None:
                    continue
            else:
                partition.update_options(options)
            partition.apply_state(state)
            self._progress.on_change(topic_partition)

    async def _open(
        self, topic_partition: TopicPartition, topic: TopicState, options: TopicOptions
    ) -> Partition | None:
        try:
            log = self._log_store.logs.get(topic_partition)
            if log is not None and log.topic_id not in (None, topic.topic_id):
                _log.warning("%s on disk is another topic's, deleting it", topic_partition)
                await self._log_store.delete_log(topic_partition)
                log = None
            if log is None:
                log = await self._log_store.create_log(
                    topic_partition, topic.topic_id, options, is_new=self._has_begun
                )
            else:
                log.update_options(options)
        except StorageError as error:
            # The directory is offline, everybody was told; the topic's other partitions go on.
            _log.error("cannot open %s: %s", topic_partition, error)
            self._offline.add(topic_partition)
            return None
        partition = Partition(
            log,
            topic.topic_id,
            broker_id=self._broker_id,
            clock=self._clock,
            workers=self._workers,
            on_append=self._progress.on_append,
        )
        self._partitions[topic_partition] = partition
        self._offline.discard(topic_partition)
        return partition

    async def _drop(self, topic_partition: TopicPartition) -> None:
        del self._partitions[topic_partition]
        self._progress.on_change(topic_partition)
        try:
            await self._log_store.delete_log(topic_partition)
        except StorageError as error:
            _log.error("cannot delete %s: %s", topic_partition, error)

    def drop_offline(self, folder: Path) -> None:
        """A log directory failed: its replicas are not served any more."""
        gone = [
            topic_partition
            for topic_partition, partition in self._partitions.items()
            if partition.log.directory.folder == folder
        ]
        for topic_partition in gone:
            del self._partitions[topic_partition]
            self._offline.add(topic_partition)
            self._progress.on_change(topic_partition)

    def refresh_options(self) -> None:
        """The broker's own defaults changed: every topic's effective options may have, too."""
        image = self._image
        if image is None:
            return
        broker = self._options()
        resolved: dict[str, TopicOptions] = {}
        for topic_partition, partition in self._partitions.items():
            topic = image.topics.get(topic_partition.topic)
            if topic is None:
                continue
            options = resolved.get(topic.name)
            if options is None:
                options = resolved[topic.name] = TopicOptions.resolve(topic.configs, broker)
            partition.update_options(options)

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        """For the checkpoint."""
        return {key: partition.high_watermark for key, partition in self._partitions.items()}
