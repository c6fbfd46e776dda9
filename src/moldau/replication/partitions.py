"""The replicas on this broker: opened, closed and given their part as the metadata says.

A shell, owned by one task, which applies one image after the other (`metadata_apply_queue`). The
log that a replica begins with comes from `replica_logs`. Handlers look partitions up between two
steps.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import NO_NODE, MetadataImage, PartitionState, TopicState
from moldau.config.broker_options import BrokerOptions
from moldau.config.topic_options import UNKNOWN_TOPIC_SETTINGS, TopicOptions
from moldau.errors import InvalidConfigError, NotLeaderError, StorageError, UnknownTopicError
from moldau.metrics.figures import TopicTraffics
from moldau.model import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from moldau.replication.incoming_batches import Unpacker
from moldau.replication.metadata_apply_queue import MetadataApplyQueue
from moldau.replication.partition import Partition, PartitionObserver
from moldau.replication.replica_fetcher import ReplicaFetchers
from moldau.replication.replica_logs import RETRY_SECONDS, ReplicaLogs, ServedState, find_origin
from moldau.replication.rules.stray_replicas import ReplicaStatus, find_status
from moldau.storage.log import Log
from moldau.storage.log_store import LogStore
from moldau.workers import Workers

_log = logging.getLogger("moldau.replication")

_REPLICAS_PER_TURN = 50
"""Applied before somebody else may use the loop: each takes some ten microseconds, and one topic
may have thousands of them."""


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
        observer: PartitionObserver,
        lease_end: Callable[[], float] = lambda: math.inf,
        traffics: TopicTraffics | None = None,
    ) -> None:
        self._log_store = log_store
        self._traffics = traffics or TopicTraffics()
        self._broker_id = broker_id
        self._options = options
        self._clock = clock
        self._unpacker = Unpacker(workers, clock)
        self._observer = observer
        self._lease_end = lease_end
        self._fetchers: ReplicaFetchers | None = None
        self._partitions = ReplicasHere()
        self._images = MetadataApplyQueue()
        self._logs = ReplicaLogs(
            log_store, self._partitions, self._images, broker_id=broker_id, clock=clock
        )
        self.on_offline: Callable[[], None] | None = None  # told when more of them were found
        self.strays = self._logs.strays
        self.on_return: Callable[[str], None] | None = None  # told of topics to be judged
        self._judged: set[str] = set()  # and not applied since
        self._former_epochs: Mapping[TopicPartition, LeaderEpoch] = {}
        self._left_of_turn = _REPLICAS_PER_TURN
        self.wait_until_applied = self._images.wait_until_applied

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def find(self, topic: str, partition: int) -> Partition | None:
        return self._partitions.get(TopicPartition(topic, partition))

    def require_leader(self, topic: str, partition: int) -> Partition:
        """The replica that this broker leads; raises what tells the client where to go instead."""
        # A plain pair finds the same, and is made in a quarter of the time.
        pair: Any = (topic, partition)
        found = self._partitions.get(pair)
        if found is not None and found.state.is_leader:
            return found
        image = self._images.current
        state = None if image is None else image.find_partition(topic, partition)
        if found is None and state is None:
            raise UnknownTopicError(f"there is no partition {topic}-{partition} here")
        if TopicPartition(topic, partition) in self._logs.offline:
            raise StorageError(f"the log directory of {topic}-{partition} is offline")
        if state is not None and state.leader == self._broker_id:
            raise NotLeaderError(f"{topic}-{partition} is being opened")
        raise NotLeaderError(f"{topic}-{partition} is not led by broker {self._broker_id}")

    def require_replica(self, topic: str, partition: int) -> Partition:
        """The replica here, if it leads or follows somebody: consumers may read it (KIP-392)."""
        pair: Any = (topic, partition)
        found = self._partitions.get(pair)
        if found is not None and (found.state.is_leader or found.state.is_following):
            return found
        return self.require_leader(topic, partition)

    def require_any_replica(self, topic: str, partition: int) -> Partition:
        """The replica here, also where nobody leads."""
        found = self._partitions.get(TopicPartition(topic, partition))
        if found is None or TopicPartition(topic, partition) in self._logs.offline:
            return self.require_leader(topic, partition)
        return found

    def broker_epoch(self, broker_id: BrokerId) -> int:
        """The epoch of a broker that lives, -1 of one that does not."""
        image = self._images.current
        broker = None if image is None else image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def note_idle(self, key: TopicPartition, follower: BrokerId, until: float) -> None:
        """A follower has asked for the end of a partition until a time, and it has news now."""
        partition = self._partitions.get(key)
        if partition is not None:
            partition.state.note_idle(follower, until)

    # Following the metadata

    def connect(self, fetchers: ReplicaFetchers) -> None:
        """Who copies what is followed here; without it nothing is."""
        self._fetchers = fetchers

    def refuse_former_epochs(self, image: MetadataImage) -> None:
        """Lead nothing under an epoch that a former life of this broker led (REP-1).

        Call it with what the store holds before the broker registers: what came after its records
        then may be elsewhere, under the same epoch and at the same offsets.
        """
        self._former_epochs = {
            TopicPartition(name, number): state.leader_epoch
            for name, topic in image.topics.items()
            for number, state in enumerate(topic.partitions)
            if state.leader == self._broker_id
        }

    async def apply_first_image(self, image: MetadataImage) -> None:
        """Give every log that was loaded its part, before the first request is answered.

        A log whose topic was deleted goes. One without a topic stays where it is, out of service
        (DEL-1): the metadata may be what is wrong, after a restore for example. So may it be of one
        whose partition is assigned elsewhere, which is mostly what a reassignment leaves on a
        broker that was away: that one is set aside.
        """
        self._images.forget_waiting()  # all of them are older, and may know topics that are no more
        for key, log in tuple(self._log_store.logs.items()):
            if self._status_of(key, log.topic_id, log, image) is ReplicaStatus.ASSIGNED:
                continue
            with contextlib.suppress(StorageError):  # reported by the directory
                if image.was_deleted(key.topic, log.topic_id):
                    await self._log_store.delete_log(key)
                elif not self._has_part(image.find_partition(*key)):  # else it makes room later
                    await self.strays.mark_unserved(key, log, image)
        self.strays.note_start(image)
        await self.apply(image, tuple(image.topics))
        self._former_epochs = {}  # a topic that is made from now on has no past
        self._logs.may_be_new = True

    def on_image(self, image: MetadataImage, changed_topics: Iterable[str]) -> None:
        """A new image was published; it is applied by the task that runs `run`.

        What has gone is not served from now on, though it is still open: clients hear from the same
        image that its name is another topic's.
        """
        gone = self._images.publish(image, frozenset(changed_topics))
        here = [one for name in sorted(gone) for one in self._partitions.of_topic(name).values()]
        for partition in here:
            key = partition.topic_partition
            if self._images.has_gone(key.topic, partition.topic_id):
                partition.suspend()
                if self._fetchers is not None:
                    self._fetchers.forget(key)
                self._observer.on_change(key)

    def suspend(self) -> None:
        """The session is over: lead and follow nothing, at once, until `resume`."""
        self._images.suspend()
        if self._fetchers is not None:
            self._fetchers.forget_all()
        for topic_partition, partition in tuple(self._partitions.items()):
            partition.suspend()
            self._observer.on_change(topic_partition)

    def resume(self, image: MetadataImage) -> None:
        """There is a session again, and this image was read in it."""
        self._images.resume(image, {key.topic for key in self._partitions})

    async def run(self) -> None:
        while True:
            image, changed = await self._images.next_image()
            if image is not None:
                await self.apply(image, changed)

    async def apply(self, image: MetadataImage, changed_topics: Iterable[str]) -> None:
        """Make the replicas here what the image says of these topics."""
        former = self._images.start_applying(image)
        if former is not None and former.brokers is not image.brokers:
            self._forget_restarted(former)
        former_offline = frozenset(self._logs.offline.items())
        for name in self._logs.start_image(image, changed_topics, self._options_for):
            await self._maybe_yield()
            if self._images.is_obsolete(image):
                return
            try:
                await self._apply_topic(name, image)
            except Exception:  # noqa: BLE001 a bug costs one topic, the others are served
                _log.exception("topic %s is not as the metadata says, trying again soon", name)
                self._clock.call_later(RETRY_SECONDS, partial(self._images.apply_again, name))
        if self.on_offline is not None and not self._logs.offline.items() <= former_offline:
            self.on_offline()
        with contextlib.suppress(StorageError):  # reported by the directory
            await self._logs.settle_unopened(image)
        await self._images.note_applied(image)

    def _forget_restarted(self, former: MetadataImage) -> None:
        """What a follower's log held before its broker went says nothing about it now (ISR-2)."""
        changed = [
            broker.id
            for broker in former.brokers.values()
            if self.broker_epoch(broker.id) != broker.epoch
        ]
        for partition in self._partitions.values() if changed else ():
            self._observer.on_change(partition.topic_partition)  # its next fetch is looked at
            for broker_id in changed:
                partition.state.forget_follower(broker_id)

    async def _apply_topic(self, name: str, image: MetadataImage) -> None:
        """What is as the image says already is passed over, which nearly all of a topic is."""
        topic = image.topics.get(name)
        options = None if topic is None else self._find_options(topic)
        for partition in tuple(self._partitions.of_topic(name).values()):
            if is_settled(partition, topic, options):
                continue
            await self._maybe_yield()
            if self._partitions.get(partition.topic_partition) is partition:
                await self._apply_status(partition, image)
        if name in self._judged:
            self._judged.discard(name)
            await self._set_unassigned_aside(name, image)
        if topic is not None:
            await self._apply_partitions(topic, image, options)
            return
        self._logs.forget_offline(name, image)
        if name not in image.unreadable:
            self.strays.on_gone(name)

    async def _apply_partitions(
        self, topic: TopicState, image: MetadataImage, options: TopicOptions | None
    ) -> None:
        is_late = False  # some of it is to be judged, and has a state by which it can be
        for number, state in enumerate(topic.partitions):
            if not self._has_part(state):
                continue
            held = self._partitions.of_topic(topic.name).get(number)
            if held is not None and is_settled(held, topic, options):
                continue
            await self._maybe_yield()
            if self._images.is_obsolete(image):
                continue
            if self.strays.is_unjudged(topic, number):
                is_late |= state.version != NO_NODE
            else:
                await self._apply_partition(number, topic, image, options)
        if is_late and self.on_return is not None:
            self.on_return(topic.name)  # and the topic is applied again afterwards

    async def _maybe_yield(self) -> None:
        self._left_of_turn -= 1
        if not self._left_of_turn:
            self._left_of_turn = _REPLICAS_PER_TURN
            await self._clock.sleep(0)

    async def _set_unassigned_aside(self, name: str, image: MetadataImage) -> None:
        """A log may have been taken back just as its partition was assigned to others."""
        for key, log in tuple(self._log_store.logs.items()):
            is_served = key.topic != name or key in self._partitions
            if not is_served and not self._has_part(image.find_partition(*key)):
                with contextlib.suppress(StorageError):  # reported by the directory
                    await self.strays.mark_unserved(key, log, image)

    async def _apply_status(self, partition: Partition, image: MetadataImage) -> None:
        key = partition.topic_partition
        match self._status_of(key, partition.topic_id, partition.log, image):
            case ReplicaStatus.DELETED:
                await self._drop(key)
            case ReplicaStatus.STRAY:
                self._mark_stray(partition, image)
            case (
                ReplicaStatus.ASSIGNED
            ):  # an old tool's topic may have got its id from the controller
                topic_id = image.topics[key.topic].topic_id
                if partition.topic_id != topic_id:
                    partition.topic_id = topic_id
                    self._observer.on_change(key)

    def _has_part(self, state: PartitionState | None) -> bool:
        return state is not None and self._broker_id in state.replicas

    # Logs that are out of service

    def _status_of(
        self, key: TopicPartition, topic_id: TopicId | None, log: Log, image: MetadataImage
    ) -> ReplicaStatus:
        served = self._partitions.get(key)
        seen_epoch = -1 if log.latest_epoch is None else log.latest_epoch
        if served is not None:
            seen_epoch = max(seen_epoch, served.leader_epoch)
        return find_status(key, topic_id, seen_epoch, image, self._broker_id)

    def _mark_stray(self, partition: Partition, image: MetadataImage) -> None:
        """Take a replica out of service, and leave its log where it is (DEL-1)."""
        key = partition.topic_partition
        served = ServedState(partition.leader_epoch, partition.state.isr)
        self._take_out(key)
        self._log_store.checkpoints.note_high_watermark(key, partition.high_watermark)
        self.strays.mark_served(key, partition.log, served, image)

    def on_judged(self, topic: TopicState, image: MetadataImage) -> None:
        """What the logs of a topic that came back are worth is in the store: open them."""
        self.strays.on_judged(topic)
        self._judged.add(topic.name)
        self.on_image(image, (topic.name,))

    async def restore_log(self, topic: TopicState, number: int) -> None:
        """Put the log of a topic in its place that was set aside for another one's."""
        await self.strays.restore_log(topic, number, self._options_for(topic))

    # Options

    def _find_options(self, topic: TopicState) -> TopicOptions | None:
        """None when its settings cannot be, which somebody wrote past the brokers: then those in
        force stay, and a log that is opened is neither deleted from nor compacted.

        What its replicas have already, where that says the same: who compares sees that at once.
        """
        try:
            options = TopicOptions.resolve(topic.configs, self._options())
        except InvalidConfigError as error:
            _log.error("the settings of topic %s are not taken: %s", topic.name, error)
            return None
        for partition in self._partitions.of_topic(topic.name).values():
            known = partition.log.options
            return known if known.has_values_of(options) else options
        return options

    def _unknown_options(self) -> TopicOptions:
        return TopicOptions.resolve(UNKNOWN_TOPIC_SETTINGS, self._options())

    def _options_for(self, topic: TopicState) -> TopicOptions:
        return self._find_options(topic) or self._unknown_options()

    async def _apply_partition(
        self, number: int, topic: TopicState, image: MetadataImage, options: TopicOptions | None
    ) -> None:
        topic_partition = TopicPartition(topic.name, number)
        partition = self._partitions.get(topic_partition)
        if partition is None:
            partition = await self._open(topic_partition, topic, options or self._unknown_options())
            if partition is None:
                return
        elif options is not None:
            partition.update_options(options)
        async with partition.truncating:  # nobody leads before a truncation is written down
            if not self._is_decided_by(image, partition):
                return
            if not await self._complete_truncation(partition):
                return
            if not self._is_decided_by(image, partition):  # the disk took its time
                return
            former = partition.state.replicas
            is_news = partition.apply_state(topic.partitions[number])
            is_news |= partition.state.replicas != former
        if is_news:
            self._follow(partition)
            self._observer.on_change(topic_partition)

    def _is_decided_by(self, image: MetadataImage, partition: Partition) -> bool:
        """Whether an image may say what a replica is, and it is still open."""
        key = partition.topic_partition
        is_open = self._partitions.get(key) is partition
        return is_open and self._images.decides(image, key.topic, partition.topic_id)

    async def _complete_truncation(self, partition: Partition) -> bool:
        """Whether no truncation is left that might come undone under what a leader appends."""
        try:
            await self._log_store.checkpoints.complete_truncation(partition.log)
        except StorageError as error:  # the next image tries again, unless the disk is gone
            _log.error("%s is not led: %s", partition.topic_partition, error)
            return False
        return True

    def _follow(self, partition: Partition) -> None:
        if self._fetchers is None:
            return
        if partition.is_following:
            self._fetchers.follow(partition)
        else:
            self._fetchers.forget(partition.topic_partition)

    async def _open(
        self, topic_partition: TopicPartition, topic: TopicState, options: TopicOptions
    ) -> Partition | None:
        log = await self._logs.open_log(topic_partition, topic, options)
        if log is None:
            return None
        origin = find_origin(topic, topic_partition.partition)
        partition = Partition(
            log,
            topic.topic_id,
            broker_id=self._broker_id,
            clock=self._clock,
            unpacker=self._unpacker,
            observer=self._observer,
            lease_end=self._lease_end,
            broker_epoch_of=self.broker_epoch,
            known_high_watermark=self._log_store.checkpoints.take_high_watermark(topic_partition),
            refused_epoch=self._former_epochs.get(topic_partition, -1),
            origin_epoch=-1 if origin is None else origin.newest_epoch,
            traffic=self._traffics.of(topic_partition.topic),
        )
        self._partitions.add(partition)
        return partition

    async def _drop(self, topic_partition: TopicPartition) -> None:
        self._take_out(topic_partition)
        try:
            await self._log_store.delete_log(topic_partition)
        except StorageError as error:
            _log.error("cannot delete %s: %s", topic_partition, error)

    @property
    def offline_count(self) -> int:
        """Replicas that belong here and cannot be served, since their disk failed."""
        return len(self._logs.offline)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether a replica belongs here and cannot be served, since its disk failed."""
        return topic_partition in self._logs.offline

    def drop_offline(self, folder: Path) -> None:
        """A log directory failed: its replicas are not served any more."""
        gone = [
            (topic_partition, partition.topic_id)
            for topic_partition, partition in self._partitions.items()
            if partition.log.directory.folder == folder
        ]
        for topic_partition, topic_id in gone:
            self._logs.offline[topic_partition] = topic_id
            self._take_out(topic_partition)

    def _take_out(self, topic_partition: TopicPartition) -> None:
        partition = self._partitions.take_out(topic_partition)
        partition.suspend()
        if self._fetchers is not None:
            self._fetchers.forget(topic_partition)
        self._observer.on_change(topic_partition)

    def refresh_options(self) -> None:
        """The broker's own defaults changed: every topic's effective options may have, too."""
        image = self._images.current
        if image is None:
            return
        resolved: dict[str, TopicOptions | None] = {}
        for topic_partition, partition in self._partitions.items():
            topic = image.topics.get(topic_partition.topic)
            if topic is None:
                continue
            if topic.name not in resolved:
                resolved[topic.name] = self._find_options(topic)
            options = resolved[topic.name]
            if options is not None:
                partition.update_options(options)

    def high_watermarks(self) -> dict[TopicPartition, Offset]:
        """For the checkpoint."""
        return {key: partition.high_watermark for key, partition in self._partitions.items()}


_NONE: Mapping[int, Partition] = {}


class ReplicasHere(dict[TopicPartition, Partition]):
    """By topic and number. Changed by `add` and `take_out` alone."""

    def __init__(self) -> None:
        super().__init__()
        self._by_topic: dict[str, dict[int, Partition]] = {}  # the same; no empty ones

    def of_topic(self, name: str) -> Mapping[int, Partition]:
        """By number: a change of one topic costs what the topic has, not what the broker has."""
        return self._by_topic.get(name, _NONE)

    def add(self, partition: Partition) -> None:
        topic, number = partition.topic_partition
        self[partition.topic_partition] = partition
        self._by_topic.setdefault(topic, {})[number] = partition

    def take_out(self, key: TopicPartition) -> Partition:
        here = self._by_topic[key.topic]
        del here[key.partition]
        if not here:
            del self._by_topic[key.topic]
        return self.pop(key)


def is_settled(
    partition: Partition, topic: TopicState | None, options: TopicOptions | None
) -> bool:
    """Whether to apply what is said of a replica that is open here would change nothing."""
    if topic is None or partition.topic_id != topic.topic_id:
        return False
    state = topic.find_partition(partition.topic_partition.partition)
    is_in_force = state is not None and partition.state.is_in_force(state)
    return is_in_force and (options is None or partition.log.options is options)
