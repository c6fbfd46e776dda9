"""The logs that the replicas here begin with, and those that no replica here uses.

A replica's log is there already, or is a stray one that is taken back, or is made: empty, or, of a
branched topic, with what its origin holds here. A log whose directory failed cannot be opened: its
replica is offline.

A new log takes a few syncs of the disk. Those of one image are made a few at a time, each in a
worker; what has to be done in order (branches, stray logs) is not. Replicas are opened one after
the other all the same, and each meets the failure of its own log then.

A log is stray when the metadata does not account for it (`rules.stray_replicas`, DEL-1). It stays
in its folder, untouched, until its topic is there again. Two cases need more than that:

- A topic of the same name, under another id, may need the folder: then the log is kept under
  another name (`storage.log_table`), and taken back when its own id is there again.
- While a topic was away, nobody could say what its logs here are worth. That is written into the
  store before they are opened again (`Membership.return_late`); until then they are unjudged
  (REP-6). An empty log in the place of one that is missing must not count as in sync.

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
from moldau.cluster.rules.metadata_image import (
    NO_NODE,
    NO_TOPIC_ID,
    BranchOrigin,
    MetadataImage,
    PartitionState,
    TopicState,
    find_later_epoch,
)
from moldau.config.topic_options import TopicOptions
from moldau.errors import StorageError
from moldau.model import NO_BROKER, BrokerId, LeaderEpoch, TopicId, TopicPartition, format_uuid
from moldau.replication.metadata_apply_queue import MetadataApplyQueue
from moldau.replication.partition import Partition
from moldau.replication.rules.stray_replicas import ReplicaStatus, find_status, is_same_topic
from moldau.storage.log import Log
from moldau.storage.log_branch import stable_end
from moldau.storage.log_store import LogStore

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
        images: MetadataApplyQueue,
        *,
        broker_id: BrokerId,
        clock: Clock,
    ) -> None:
        self._log_store = log_store
        self._partitions = partitions
        self._images = images
        self._broker_id = broker_id
        self._clock = clock
        self.strays = StrayReplicas(log_store)
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

    def start_image(
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
            fate = find_status(key, log.topic_id, -1, image, self._broker_id)
            is_unused = key not in self._partitions and self._log_store.logs.get(key) is log
            if is_unused and fate is ReplicaStatus.ASSIGNED:
                continue  # it waits for its origin, or is tried again
            del self._unopened[key]
            if is_unused and fate is ReplicaStatus.DELETED:
                await self._log_store.delete_log(key)
            elif is_unused:
                self.strays.mark_stray(key, log, image)

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
            and not self.strays.is_unjudged(topic, key.partition)
            and not self._log_store.stray_logs.has(key, topic.topic_id)
            and not self._log_store.is_missed(key)
        )

    async def open_log(
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
        self.strays.on_open(key)
        return log

    async def _find(
        self, key: TopicPartition, topic: TopicState, options: TopicOptions
    ) -> Log | None:
        await self.strays.restore_log(topic, key.partition, options)
        log = self._log_store.logs.get(key)
        if log is None:
            return None
        self._made.pop(key, None)
        if not is_same_topic(log.topic_id, topic.topic_id):
            await self.strays.make_room_for(key, log, self._images.current)
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
            made = await branches.create_branch(key, topic.topic_id, options, log, find_end)
        except StorageError:
            if not log.is_closed:
                raise
            _log.error("%s is empty: %s was deleted while it was branched", key, origin.topic)
            return None
        _log.info(
            "%s begins with what %s has up to offset %d", key, origin.topic, made.log_end_offset
        )
        return made


class ServedState(NamedTuple):
    """What this broker last knew of a partition that it held."""

    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]


class StrayReplicas:
    """See the module."""

    def __init__(self, log_store: LogStore) -> None:
        self._log_store = log_store
        self._unjudged: dict[TopicPartition, TopicId | None] = {}
        self._unread: set[str] = set()  # topics whose nodes made no sense when the broker came
        self._served: dict[TopicPartition, ServedState] = {}  # until their topics vanished
        self._stateless: set[TopicPartition] = set()  # have records; had no state when we came
        self._moving = asyncio.Lock()  # held while a folder is given another name

    # Which

    def note_start(self, image: MetadataImage) -> None:
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

    def mark_stray(self, key: TopicPartition, log: Log, image: MetadataImage) -> None:
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

    async def mark_unserved(self, key: TopicPartition, log: Log, image: MetadataImage) -> None:
        """As `mark_stray`, of a log that the broker came with.

        One whose partition is elsewhere now gives its place up: it may be assigned again.
        """
        topic = image.topics.get(key.topic)
        is_elsewhere = topic is not None and is_same_topic(log.topic_id, topic.topic_id)
        if not is_elsewhere or image.find_partition(*key) is None:
            self.mark_stray(key, log, image)
            return
        self._unjudged[key] = log.topic_id
        folder = await self._log_store.stray_logs.set_aside(key)
        _log.warning(
            "%s was assigned to other brokers while this one was away: its log is kept in %s. "
            "Remove the folder once the partition is well there",
            key,
            folder,
        )

    def mark_served(
        self, key: TopicPartition, log: Log, state: ServedState, image: MetadataImage
    ) -> None:
        """As `mark_stray`, of a log that was in service until now."""
        self._served[key] = state
        self.mark_stray(key, log, image)

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

    async def restore_log(self, topic: TopicState, number: int, options: TopicOptions) -> None:
        """Put the log of a topic in its place that was set aside for another one's."""
        key = TopicPartition(topic.name, number)
        if not self._log_store.stray_logs.has(key, topic.topic_id):
            return
        async with self._moving:
            if not self._log_store.stray_logs.has(key, topic.topic_id):
                return  # somebody else was waiting for it, too
            log = self._log_store.logs.get(key)
            if log is not None and not is_same_topic(log.topic_id, topic.topic_id):
                await self._make_room(key, log, None)
                log = None
            if log is None:
                log = await self._log_store.stray_logs.restore_log(key, topic.topic_id, options)
                if log is not None:
                    _log.warning("%s is served again: it had been set aside", key)

    async def make_room_for(
        self, key: TopicPartition, log: Log, image: MetadataImage | None
    ) -> None:
        """Another topic has the name now, and a log must not be taken for that one's."""
        async with self._moving:
            if self._log_store.logs.get(key) is log:
                await self._make_room(key, log, image)

    async def _make_room(self, key: TopicPartition, log: Log, image: MetadataImage | None) -> None:
        if image is not None and image.was_deleted(key.topic, log.topic_id):
            await self._log_store.delete_log(key)
            return
        self._unjudged.pop(key, None)
        folder = await self._log_store.stray_logs.set_aside(key)
        _log.error(
            "%s on disk belongs to another topic of the same name, whose deletion nobody asked "
            "for: its log is kept in %s. Remove the folder if nobody needs its records",
            key,
            folder,
        )


# The leader's log is the branch, whatever it takes of the origin. A follower has to have the same
# records. It may take its own of the origin while the branch is made; later the origin has gone its
# own way: retention and compaction have removed records there that the branch still has, and nobody
# would fetch them again. Compaction even does so at once, for the sake of records that are behind
# the end of the branch. Such a follower copies the leader's log, as ever.


def find_origin(topic: TopicState, number: int) -> BranchOrigin | None:
    """Where the records of a partition come from; those that were added to a branch have none."""
    origin = topic.origin
    return None if origin is None or number >= origin.partitions else origin


def may_take_origin(*, is_leader: bool, was_seen_made: bool, is_compacted: bool) -> bool:
    """Whether a replica begins with what its origin holds here (BRA-4).

    `was_seen_made` says that the branch is new to this broker, which has run all the time;
    `is_compacted`, that the origin's log is compacted, or was.
    """
    return is_leader or (was_seen_made and not is_compacted)


def origins_first(image: MetadataImage, names: Iterable[str]) -> list[str]:
    """By name, but every branch behind its origin, which it takes its records from."""
    return sorted(names, key=lambda name: (_count_origins(image, name), name))


def _count_origins(image: MetadataImage, name: str) -> int:
    """How many branches are between a topic and one that is none."""
    seen: set[str] = set()
    topic = image.topics.get(name)
    while topic is not None and topic.origin is not None and topic.name not in seen:
        seen.add(topic.name)  # a name may have been given again
        topic = image.topics.get(topic.origin.topic)
    return len(seen)
