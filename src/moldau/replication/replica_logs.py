"""The logs that the replicas here begin with.

A replica's log is there already, or was set aside (`kept_logs`), or is made: empty, or, of a
branched topic, with what its origin holds here (`rules.branch_start`). A log whose directory failed
cannot be opened: its replica is offline.

A new log takes a few syncs of the disk. Those of one image are made a few at a time, each in a
worker; what has to be done in order (branches, logs that were set aside) is not. Replicas are
opened one after the other all the same, and each meets the failure of its own log then.

A shell, owned by `Partitions`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import NO_TOPIC_ID, MetadataImage, TopicState
from moldau.config.topic_options import TopicOptions
from moldau.errors import StorageError
from moldau.model import NO_BROKER, BrokerId, TopicId, TopicPartition
from moldau.replication.kept_logs import KeptLogs
from moldau.replication.partition import Partition
from moldau.replication.published_images import PublishedImages
from moldau.replication.rules.branch_start import find_origin, may_take_origin, origins_first
from moldau.replication.rules.replica_fate import Fate, decide_fate, is_same_topic
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.storage.rules.branching import stable_end

_log = logging.getLogger("moldau.replication")

RETRY_SECONDS = 10.0

MADE_AT_ONCE = 8
"""New logs. Fewer than `background.threads` by default: flushes need some of them meanwhile."""


class _NewLog(NamedTuple):
    """A log that is made empty."""

    key: TopicPartition
    topic: TopicState
    options: TopicOptions


class ReplicaLogs:
    """See the module. `partitions` changes as replicas come and go."""

    def __init__(
        self,
        log_store: LogStore,
        partitions: Mapping[TopicPartition, Partition],
        images: PublishedImages,
        *,
        broker_id: BrokerId,
        clock: Clock,
    ) -> None:
        self._log_store = log_store
        self._partitions = partitions
        self._images = images
        self._broker_id = broker_id
        self._clock = clock
        self.kept = KeptLogs(log_store)
        # Ours, but their log directory failed; and the topic, which may be made again.
        self.offline: dict[TopicPartition, TopicId] = {}
        self.may_be_new = False  # else every log that is missing was here before
        self._upcoming: Iterator[_NewLog] = iter(())  # read as far as it is needed
        self._made: dict[TopicPartition, Log | BaseException] = {}  # ahead, and not opened yet
        self._unopened: dict[TopicPartition, Log] = {}  # made for an image that became obsolete

    def forget_offline(self, name: str, image: MetadataImage) -> None:
        """A topic that was deleted is not missed; one that vanished may come back."""
        gone = [
            key
            for key, topic_id in self.offline.items()
            if key.topic == name and image.was_deleted(name, topic_id)
        ]
        for key in gone:
            del self.offline[key]

    def begin(
        self,
        image: MetadataImage,
        names: Iterable[str],
        options_of: Callable[[TopicState], TopicOptions],
    ) -> Sequence[str]:
        """An image is applied next: returns the order in which its topics are to be opened.

        What was made for an image that was not applied to its end is found in its place later, or
        settled (`settle_unopened`).
        """
        ordered = origins_first(image, names)
        self._upcoming = self._find_new(image, ordered, options_of)
        self._unopened.update((key, log) for key, log in self._made.items() if isinstance(log, Log))
        self._made.clear()
        return ordered

    async def settle_unopened(self, image: MetadataImage) -> None:
        """Logs that were made ahead and do not belong here any more go, or are kept (DEL-1)."""
        for key, log in tuple(self._unopened.items()):
            fate = decide_fate(key, log.topic_id, -1, image, self._broker_id)
            is_unused = key not in self._partitions and self._log_store.logs.get(key) is log
            if is_unused and fate is Fate.SERVE:
                continue  # it waits for its origin, or is tried again
            del self._unopened[key]
            if is_unused and fate is Fate.DELETE:
                await self._log_store.delete_log(key)
            elif is_unused:
                self.kept.keep(key, log, image)

    def _find_new(
        self,
        image: MetadataImage,
        names: Sequence[str],
        options_of: Callable[[TopicState], TopicOptions],
    ) -> Iterator[_NewLog]:
        for topic in filter(None, map(image.topics.get, names)):
            for number, state in enumerate(topic.partitions):
                key = TopicPartition(topic.name, number)
                if self._broker_id in state.replicas and self._is_new(key, topic):
                    yield _NewLog(key, topic, options_of(topic))

    def _is_new(self, key: TopicPartition, topic: TopicState) -> bool:
        """Whether a replica begins with an empty log, whatever becomes of others."""
        return (
            key not in self._log_store.logs
            and key not in self._made
            and find_origin(topic, key.partition) is None
            and not self.kept.is_unjudged(topic, key.partition)
            and not self._log_store.aside.has(key, topic.topic_id)
            and not self._log_store.is_missed(key)
        )

    async def open(
        self, key: TopicPartition, topic: TopicState, options: TopicOptions
    ) -> Log | None:
        """The log of a replica that is not served yet; None when it has to wait, or is offline."""
        try:
            log = await self._find(key, topic, options)
            if log is None:
                if self._awaits_origin(key, topic):
                    again = partial(self._images.apply_again, topic.name)
                    self._clock.call_later(RETRY_SECONDS, again)
                    return None
                self._require_unmissed(key, topic)
                log = await self._branch(key, topic, options)
                log = log or await self._create(key, topic, options)
        except StorageError as error:
            # The topic's other partitions go on. Of a directory that is offline everybody was told,
            # and it has thousands of partitions, each of which is tried with every change.
            is_told = any(each.failure is not None for each in self._log_store.directories)
            _log.log(logging.INFO if is_told else logging.ERROR, "cannot open %s: %s", key, error)
            self.offline[key] = topic.topic_id
            return None
        self.offline.pop(key, None)
        self.kept.on_open(key)
        return log

    async def _find(
        self, key: TopicPartition, topic: TopicState, options: TopicOptions
    ) -> Log | None:
        await self.kept.take_back(topic, key.partition, options)
        log = self._log_store.logs.get(key)
        if log is None:
            return None
        self._made.pop(key, None)
        if not is_same_topic(log.topic_id, topic.topic_id):
            await self.kept.make_room(key, log, self._images.current)
            return None
        log.directory.require_online()  # its log may outlive it in the store's table
        log.update_options(options)
        return log

    def _require_unmissed(self, key: TopicPartition, topic: TopicState) -> None:
        """While nobody leads, an empty log in the place of one that is gone would be taken for the
        best that there is. Who leads was elected for what others have, or uncleanly (LOG-14)."""
        nobody_leads = topic.partitions[key.partition].leader == NO_BROKER
        if nobody_leads and self._log_store.is_missed(key):
            raise StorageError("its folder is gone, and nobody leads that could be copied")

    async def _create(self, key: TopicPartition, topic: TopicState, options: TopicOptions) -> Log:
        """Together with those that come next, where it was not made with others before."""
        if key not in self._made:
            others = (each for each in self._upcoming if each.key != key)
            new = (_NewLog(key, topic, options), *islice(others, MADE_AT_ONCE - 1))
            made = await asyncio.gather(*(self._make(*one) for one in new), return_exceptions=True)
            self._made.update(zip((one.key for one in new), made, strict=True))
        outcome = self._made.pop(key)
        if isinstance(outcome, BaseException):
            raise outcome
        outcome.directory.require_online()  # another one may have found its disk broken
        return outcome

    async def _make(self, key: TopicPartition, topic: TopicState, options: TopicOptions) -> Log:
        # What was offline when the broker began is so still: an empty log would lead on.
        is_new = self.may_be_new and self.offline.get(key) != topic.topic_id
        topic_id = None if topic.topic_id == NO_TOPIC_ID else topic.topic_id
        return await self._log_store.create_log(key, topic_id, options, is_new=is_new)

    # Branches

    def _awaits_origin(self, key: TopicPartition, topic: TopicState) -> bool:
        """Whether a leader has to take its records of a log that belongs here and is not open."""
        origin, image = find_origin(topic, key.partition), self._images.current
        if origin is None or image is None:
            return False
        if topic.partitions[key.partition].leader != self._broker_id:
            return False
        source = image.topics.get(origin.topic)
        if source is None or source.topic_id != origin.topic_id:
            return False
        source_key = TopicPartition(origin.topic, key.partition)
        if source_key in self.offline:
            raise StorageError(f"{source_key}, its origin, is offline")
        state = source.find_partition(key.partition)
        belongs_here = state is not None and self._broker_id in state.replicas
        return belongs_here and source_key not in self._partitions

    async def _branch(
        self, key: TopicPartition, topic: TopicState, options: TopicOptions
    ) -> Log | None:
        """A log with what the origin of a branch holds here; None when there is nothing to take.

        A follower can do without: it copies the leader's, as ever.
        """
        origin = find_origin(topic, key.partition)
        if origin is None:
            return None
        is_leader = topic.partitions[key.partition].leader == self._broker_id
        source = self._partitions.get(TopicPartition(origin.topic, key.partition))
        if source is None or source.topic_id != origin.topic_id:
            if is_leader:
                _log.error("%s is empty: %s, its origin, is not here any more", key, origin.topic)
            return None
        log = source.log
        if not may_take_origin(
            is_leader=is_leader,
            was_seen_made=self._images.has_appeared(topic),
            is_compacted=log.cleaned_offset > 0 or "compact" in log.options.cleanup_policy,
        ):
            return None

        def find_end() -> int:
            end_offset, stable_offset = log.log_end_offset, source.last_stable_offset
            return stable_end(log.epochs, origin.newest_epoch, end_offset, stable_offset)

        branches = self._log_store.branches
        try:
            made = await branches.create(key, topic.topic_id, options, log, find_end)
        except StorageError:
            if not log.is_closed:
                raise
            _log.error("%s is empty: %s was deleted while it was branched", key, origin.topic)
            return None
        _log.info(
            "%s begins with what %s has up to offset %d", key, origin.topic, made.log_end_offset
        )
        return made
