"""The current metadata image, kept up with the store. A shell.

A change that this broker wrote itself is applied at once (`apply_topics` and the like), by the code
that wrote it, in the step in which the write returned: so images follow in the order of the writes.
A change that another broker wrote is noticed by one of five watches, whatever the number of topics:
the topics, the living brokers, the controller, and the two folders of notifications that say whose
configs and which partitions changed; with an authorizer two more, that say which access control
lists did. Only what changed is read again.

Everything runs on one loop; one task at a time reads again. Its reading may be overtaken by a
change that is applied meanwhile: each change notes its path, the reading is discarded and repeated,
and an image never goes back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum, auto
from typing import TypeVar

from moldau.clock import Clock
from moldau.cluster import entity_znodes, znodes
from moldau.cluster.change_notifications import ChangeNotifications, catch_up
from moldau.cluster.metadata_reader import MetadataReader
from moldau.cluster.rules.metadata_image import (
    NO_DELETIONS,
    NOTHING_DELETED,
    BrokerState,
    DeletedTopic,
    MetadataImage,
    TopicState,
    find_missing_ids,
    find_regressed_epochs,
    newest_states,
    split_changes,
)
from moldau.config.broker_options import UNKNOWN_BROKER_SETTINGS
from moldau.config.topic_options import UNKNOWN_TOPIC_SETTINGS
from moldau.coordination.port import Coordination, CoordinationError, SessionExpiredError, Watch
from moldau.errors import InvariantViolation, MoldauError
from moldau.model import AclEntry, BrokerId, LeaderEpoch, ResourcePattern, TopicId, TopicPartition
from moldau.quotas import QuotaEntity
from moldau.tasks import TaskSupervisor

Subscriber = Callable[[MetadataImage, MetadataImage, frozenset[str]], None]
"""Gets the old image, the new one, and the names of the topics made, changed or deleted."""


_log = logging.getLogger("moldau.cluster")

T = TypeVar("T")
K = TypeVar("K")
S = TypeVar("S")

RETRY_SECONDS = 1.0


class _Source(IntEnum):
    """What a watch looks at; what is read first of several that changed.

    Brokers come before topics: who sees a state that was written after a broker came back should
    know that it did.
    """

    BROKERS = auto()
    CONTROLLER = auto()
    TOPICS = auto()
    CONFIGS = auto()
    PARTITIONS = auto()
    ACLS = auto()


class MetadataPublisher:
    """The image, kept up with the store. Subscribers are called on the loop and must not raise."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        cluster_id: str,
        on_failure: Callable[[str, BaseException], None] | None = None,
        *,
        follows_acls: bool = False,
    ) -> None:
        self._image = MetadataImage(cluster_id=cluster_id)
        self._subscribers: list[Subscriber] = []
        self._overtaken: set[str] = set()  # paths that changed here since their reading began
        self._coordination = coordination
        self.clock = clock
        self.store_ahead_ms = 0  # of this broker's clock, when the broker was registered
        self._reader = MetadataReader(coordination)
        self._config_changes = ChangeNotifications(
            coordination, clock, znodes.CONFIG_CHANGES, znodes.decode_config_change
        )
        self._partition_changes = ChangeNotifications(
            coordination, clock, znodes.ISR_CHANGES, znodes.decode_isr_change
        )
        self._acl_changes = (
            (
                ChangeNotifications(
                    coordination,
                    clock,
                    entity_znodes.LITERAL_CHANGES,
                    entity_znodes.decode_literal_change,
                ),
                ChangeNotifications(
                    coordination,
                    clock,
                    entity_znodes.EXTENDED_CHANGES,
                    entity_znodes.decode_extended_change,
                ),
            )
            if follows_acls
            else ()
        )
        self._watches: list[Watch] = []
        self._dirty: set[_Source] = set()
        self._refreshing = False
        self._unread: set[TopicPartition] = set()  # that were notified of, and are not read yet
        self._unread_configs: dict[znodes.ConfigEntity, None] = {}  # likewise
        self._unread_acls: set[ResourcePattern] = set()  # likewise
        self._has_missed_acls = False
        self._has_missed = False  # notifications, and has not read everything since
        self._reading_topics = asyncio.Lock()
        self._reading_groups = asyncio.Lock()
        self._reading_acls = asyncio.Lock()
        self._is_held = False  # since the session was lost: nobody knows whose store is read next
        self.regressed_epochs: dict[TopicPartition, LeaderEpoch] = {}
        """Partitions whose states went back with a new session; and epochs later than both."""
        self._tasks = TaskSupervisor(on_failure or _report)
        # Held while this broker writes a notification, until it has said which one to skip.
        self.announcing = asyncio.Lock()

    @property
    def image(self) -> MetadataImage:
        return self._image

    def subscribe(self, callback: Subscriber) -> None:
        """Hear of every image after the current one."""
        self._subscribers.append(callback)

    async def start(self) -> MetadataImage:
        """Read everything, publish it as one change, and watch from then on.

        What changes meanwhile is read after that: else the image, which was begun before, would
        put the former state over it.
        """
        self._refreshing = True
        self._watch()
        try:
            await self._skip_old_changes()
            image = await self._reader.read_image(self._image.cluster_id)
            if self._acl_changes:
                patterns = await self._reader.list_acl_patterns()
                image = image.with_acls(await self._reader.read_acls(patterns))
            self._publish(image, frozenset(image.topics))
        finally:
            self._refreshing = False
        self._maybe_refresh()
        return image

    async def _skip_old_changes(self) -> None:
        for folder in (self._config_changes, self._partition_changes, *self._acl_changes):
            await folder.skip_to_end()

    def store_now_ms(self) -> int:
        """The time by the store's clock: brokers whose own clocks differ agree on it."""
        return self.clock.now_ms() + self.store_ahead_ms

    @property
    def is_held(self) -> bool:
        """Whether the session was lost, and what the next one leads to is not looked at yet."""
        return self._is_held

    def hold(self) -> None:
        """Read nothing for a watch's sake until `read_in_new_session`."""
        self._is_held = True

    async def read_in_new_session(self) -> None:
        """Read everything again, after a time without a session. Watches have stayed.

        What a session reads when it begins is what the store holds. So a state that is older than
        the one known here is no late news: the store was set back, and what it says counts (DEL-2).
        """
        await self._skip_old_changes()
        await self.read_again(is_new_session=True)
        self._is_held = False
        self._maybe_refresh()

    async def read_again(self, *, is_new_session: bool = False) -> None:
        """Read everything again."""
        names = await self._coordination.children(znodes.TOPICS)
        for source in (_Source.BROKERS, _Source.CONTROLLER):
            await self._refresh_source(source)
        configured = await self._coordination.children(znodes.BROKER_CONFIGS)
        ids = {BrokerId(int(name)) for name in configured if name.isdecimal()}
        for broker_id in (None, *sorted(ids | self._image.broker_configs.keys())):
            await self._refresh_broker_config(broker_id)
        group_ids = await self._reader.read_configured_groups()
        await self._refresh_group_configs({*group_ids, *self._image.group_configs})
        if self._acl_changes:
            await self._read_all_acls()
        await self._refresh_quotas({*await self._reader.read_quota_entities(), *self._image.quotas})
        known = {*self._image.topics, *self._image.deleting, *self._image.unreadable}
        async with self._reading_topics:
            await self._read_until_current({*names, *known}, is_new_session=is_new_session)

    async def stop(self) -> None:
        for watch in self._watches:
            watch.cancel()
        self._watches.clear()
        await self._tasks.close()

    def skip_partition_change(self, path: str) -> None:
        """A notification by this broker itself, of what it has applied already."""
        self._partition_changes.skip_notification(path)

    # Changes that this broker has written

    def apply_topics(
        self,
        changed: Iterable[TopicState],
        removed: Collection[str] = (),
        deleted: Mapping[TopicId, DeletedTopic] = NO_DELETIONS,
    ) -> None:
        topics = tuple(changed)
        names = (*(topic.name for topic in topics), *removed)
        self._overtaken.update(map(znodes.topic_path, names))
        self._publish_topics(topics, removed, deleted=deleted)

    def apply_deletion(self, topic: TopicState) -> None:
        """The topic is marked: it exists no more, but its name is not free yet."""
        self._overtaken.add(znodes.topic_path(topic.name))
        self._publish_topics((), (), {topic.name: topic.topic_id})

    def apply_topic_configs(self, name: str, configs: Mapping[str, str]) -> None:
        topic = self._image.topics.get(name)
        if topic is not None:
            self.apply_topics((replace(topic, configs=dict(configs)),))

    def apply_broker_configs(self, broker_id: BrokerId | None, configs: Mapping[str, str]) -> None:
        self._overtaken.add(znodes.broker_config_path(broker_id))
        self._publish(self._image.with_broker_config(broker_id, configs))

    def apply_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        self._overtaken.add(znodes.group_config_path(group_id))
        self._publish(self._image.with_group_configs({group_id: configs}))

    def apply_acls(self, changed: Mapping[ResourcePattern, frozenset[AclEntry]]) -> None:
        self._overtaken.update(map(entity_znodes.acl_path, changed))
        self._publish(self._image.with_acls(changed))

    def apply_quotas(self, entity: QuotaEntity, limits: Mapping[str, float]) -> None:
        self._overtaken.add(entity_znodes.quota_path(entity))
        self._publish(self._image.with_quotas({entity: limits}))

    def apply_broker(self, broker: BrokerState) -> None:
        self._overtaken.add(znodes.BROKER_IDS)
        alive = {**self._image.brokers, broker.id: broker}
        self._publish(self._image.with_brokers(alive.values()))

    def apply_controller(self, controller_id: BrokerId) -> None:
        self._overtaken.add(znodes.CONTROLLER)
        self._publish(self._image.with_controller(controller_id))

    def _publish_topics(
        self,
        topics: Iterable[TopicState],
        removed: Collection[str],
        deleting: Mapping[str, TopicId] = NOTHING_DELETED,
        deleted: Mapping[TopicId, DeletedTopic] = NO_DELETIONS,
        *,
        may_go_back: bool = False,
    ) -> None:
        present = self._image.topics
        newest = [
            topic if may_go_back else newest_states(present.get(topic.name), topic)
            for topic in topics
        ]
        changed = [topic for topic in newest if present.get(topic.name) != topic]
        absent = self._image.deleting.keys() | self._image.unreadable
        gone = [n for n in removed if n in present or n in absent]
        going = {n: i for n, i in deleting.items() if self._image.deleting.get(n) != i}
        if changed or gone or going:
            names = frozenset((*(topic.name for topic in changed), *gone, *going))
            self._publish(self._image.with_topics(changed, gone, going, deleted), names)

    def _publish(self, image: MetadataImage, changed_topics: frozenset[str] = frozenset()) -> None:
        if image is self._image:  # nothing has changed by it
            return
        if image.version <= self._image.version:
            raise InvariantViolation(f"META-1: image {image.version} after {self._image.version}")
        former, self._image = self._image, image
        for subscriber in tuple(self._subscribers):
            subscriber(former, image, changed_topics)

    # Changes written by others

    def _watch(self) -> None:
        watch_children = self._coordination.watch_children
        self._watches += [
            watch_children(znodes.TOPICS, lambda: self._schedule_refresh(_Source.TOPICS)),
            watch_children(znodes.BROKER_IDS, lambda: self._schedule_refresh(_Source.BROKERS)),
            watch_children(znodes.CONFIG_CHANGES, lambda: self._schedule_refresh(_Source.CONFIGS)),
            watch_children(znodes.ISR_CHANGES, lambda: self._schedule_refresh(_Source.PARTITIONS)),
            self._coordination.watch_data(
                znodes.CONTROLLER, lambda: self._schedule_refresh(_Source.CONTROLLER)
            ),
        ]

        if self._acl_changes:
            self._watches += [
                watch_children(folder, lambda: self._schedule_refresh(_Source.ACLS))
                for folder in (entity_znodes.LITERAL_CHANGES, entity_znodes.EXTENDED_CHANGES)
            ]

    def _schedule_refresh(self, source: _Source) -> None:
        self._dirty.add(source)
        self._maybe_refresh()

    def _maybe_refresh(self) -> None:
        if self._dirty and not self._refreshing and not self._is_held:
            self._refreshing = True
            self._tasks.spawn("metadata-refresh", self._refresh())

    async def _refresh(self) -> None:
        try:
            while self._dirty and not self._is_held:
                source = min(self._dirty)
                self._dirty.remove(source)
                try:
                    await self._refresh_source(source)
                except SessionExpiredError:
                    raise
                except (CoordinationError, MoldauError) as error:
                    _log.warning("metadata may be old, reading it again soon: %s", error)
                    self._dirty.add(source)
                    await self.clock.sleep(RETRY_SECONDS)
        except SessionExpiredError:
            self._dirty.clear()  # the broker ends or joins anew, and then reads everything
        finally:
            self._refreshing = False

    async def _refresh_source(self, source: _Source) -> None:
        match source:
            case _Source.TOPICS:
                await self._refresh_topic_list()
            case _Source.BROKERS:
                brokers = await self._read_current(znodes.BROKER_IDS, self._reader.read_brokers)
                self._publish(self._image.with_brokers(brokers))
            case _Source.CONTROLLER:
                controller = await self._read_current(
                    znodes.CONTROLLER, self._reader.read_controller
                )
                self._publish(self._image.with_controller(controller))
            case _Source.CONFIGS:
                await self._refresh_configs()
            case _Source.PARTITIONS:
                await self._refresh_partitions()
            case _Source.ACLS:
                await self._refresh_acls()

    async def _refresh_topic_list(self) -> None:
        names = frozenset(await self._coordination.children(znodes.TOPICS))
        known = self._image.topics.keys() | self._image.deleting.keys()
        await self.refresh_topics(names ^ known)

    async def _refresh_partitions(self) -> None:
        async with self.announcing:
            new = await self._partition_changes.read_new()
        self._unread.update(*new.found)
        await self._read_missed_changes(new.is_complete)
        changed = frozenset(self._unread)
        whole, some = split_changes(changed, self._image)
        await self.refresh_topics(whole)
        await self._refresh_states({name: sorted(some[name]) for name in sorted(some)})
        self._unread -= changed

    async def _read_missed_changes(self, is_complete: bool) -> None:
        """Read everything, where notifications were gone before this broker came to read them."""
        self._has_missed |= not is_complete
        if self._has_missed:
            _log.warning("notifications of changes were missed: everything is read again")
            await self.read_again()
            self._has_missed = False

    async def _refresh_states(self, changed: Mapping[str, Sequence[int]]) -> None:
        """Read some states of topics; their versions tell whether they are news."""
        topics = self._image.topics
        known = [
            (topics[name], numbers)
            for name, numbers in changed.items()
            if name in topics and numbers[-1] < len(topics[name].partitions)
        ]
        read = []
        for (topic, _), states in zip(known, await self._reader.read_states(known), strict=True):
            present = self._image.topics.get(topic.name)
            if states is None or present is None or present.topic_id != topic.topic_id:
                continue
            # They belong to the topic as it was; what was published since is newer, or the same.
            partitions = (states.get(number, old) for number, old in enumerate(topic.partitions))
            read.append(replace(topic, configs=present.configs, partitions=tuple(partitions)))
        self._publish_topics(read, ())
        await self.refresh_topics(changed.keys() - {topic.name for topic in read})

    async def _refresh_configs(self) -> None:
        topics: set[str] = set()
        brokers: dict[BrokerId | None, None] = {}
        groups: set[str] = set()
        entities: set[QuotaEntity] = set()
        new = await self._config_changes.read_new()
        self._unread_configs.update(dict.fromkeys(new.found))
        await self._read_missed_changes(new.is_complete)
        changes = tuple(self._unread_configs)
        for kind, name in changes:
            if kind == "topics":
                topics.add(name)
            elif kind == "brokers" and name == znodes.DEFAULT_BROKER:
                brokers[None] = None
            elif kind == "brokers" and name.isdecimal():
                brokers[BrokerId(int(name))] = None
            elif kind == "groups":
                groups.add(znodes.decode_group_name(name))
            elif entity := entity_znodes.find_quota_entity(f"{kind}/{name}"):
                entities.add(entity)
        await self.refresh_topics(topics)
        for broker_id in brokers:
            await self._refresh_broker_config(broker_id)
        await self._refresh_group_configs(groups)
        await self._refresh_quotas(entities)
        for change in changes:
            self._unread_configs.pop(change, None)

    async def _refresh_acls(self) -> None:
        async with self._reading_acls:
            for folder in self._acl_changes:
                new = await folder.read_new()
                self._unread_acls.update(new.found)
                self._has_missed_acls |= not new.is_complete
            if self._has_missed_acls:
                await self._read_all_acls()
                self._has_missed_acls = False
            changed = frozenset(self._unread_acls)
            await self._read_acls(changed)
            self._unread_acls -= changed

    async def _read_all_acls(self) -> None:
        patterns = await self._reader.list_acl_patterns()
        await self._read_acls({*patterns, *self._image.acls})

    async def _read_acls(self, patterns: Collection[ResourcePattern]) -> None:
        await self._read_rows(
            {entity_znodes.acl_path(pattern): pattern for pattern in sorted(patterns)},
            self._reader.read_acls,
            lambda rows: self._image.with_acls(rows),
        )

    async def refresh_brokers(self) -> None:
        """Read who lives again now, for somebody who misses a broker that has just come."""
        await self._refresh_source(_Source.BROKERS)

    async def refresh_group_config(self, group_id: str) -> None:
        """Read the settings of a group again now. Afterwards this broker knows every change that
        was confirmed before the call."""
        await catch_up(self._coordination)
        await self._refresh_group_configs((group_id,))

    async def refresh_acls(self) -> None:
        """Read what changed in the access control lists now. Afterwards this broker knows every
        change that was confirmed before the call."""
        await catch_up(self._coordination)
        await self._refresh_acls()

    async def read_away_brokers(self) -> list[BrokerState]:
        """Those that are registered and not alive, read now: they are expected back."""
        await self.refresh_brokers()
        registered = await self._reader.read_brokers(znodes.REGISTERED_BROKERS)
        return [broker for broker in registered if broker.id not in self._image.brokers]

    async def refresh_topics(self, names: Collection[str]) -> None:
        """Read these topics again now, for a writer that was overtaken by another one."""
        async with self._reading_topics:
            await self._read_until_current(set(names), is_new_session=False)

    async def _read_until_current(self, pending: set[str], *, is_new_session: bool) -> None:
        while pending:
            pending = await self._read_topics(pending, is_new_session=is_new_session)

    async def _read_topics(self, names: set[str], *, is_new_session: bool) -> set[str]:
        """Returns the topics whose reading was overtaken."""
        self._overtaken.difference_update(map(znodes.topic_path, names))
        read = await self._reader.read_topics(sorted(names))
        asked = {*(topic.name for topic in read.topics), *read.missing, *read.deleting}
        gone = find_missing_ids(self._image, asked & names, read.topics)
        deleted = await self._reader.read_deleted(gone)
        current = {name for name in names if znodes.topic_path(name) not in self._overtaken}
        topics = [self._with_known_configs(t) for t in read.topics if t.name in current]
        if is_new_session:
            for topic in topics:
                self.regressed_epochs.update(
                    find_regressed_epochs(self._image.topics.get(topic.name), topic)
                )
        self._publish_topics(
            topics,
            removed=[name for name in read.missing if name in current],
            deleting={name: i for name, i in read.deleting.items() if name in current},
            deleted=deleted,
            may_go_back=is_new_session,
        )
        return names - current

    def _with_known_configs(self, topic: TopicState) -> TopicState:
        """A topic whose settings cannot be read goes on with those that are known."""
        known = self._image.topics.get(topic.name)
        is_known = known is not None and known.topic_id == topic.topic_id
        if topic.configs is UNKNOWN_TOPIC_SETTINGS and known is not None and is_known:
            return replace(topic, configs=known.configs)
        return topic

    async def _refresh_broker_config(self, broker_id: BrokerId | None) -> None:
        config = await self._read_current(
            znodes.broker_config_path(broker_id),
            lambda: self._reader.read_broker_config(broker_id),
        )
        if config is not UNKNOWN_BROKER_SETTINGS:  # else those that are known stay in force
            self._publish(self._image.with_broker_config(broker_id, config))

    async def _refresh_group_configs(self, group_ids: Collection[str]) -> None:
        paths = {znodes.group_config_path(group_id): group_id for group_id in sorted(group_ids)}
        async with self._reading_groups:
            await self._read_rows(
                paths,
                self._reader.read_group_configs,
                lambda rows: self._image.with_group_configs(rows),
            )

    async def _refresh_quotas(self, entities: Collection[QuotaEntity]) -> None:
        paths = {entity_znodes.quota_path(entity): entity for entity in entities}
        await self._read_rows(
            dict(sorted(paths.items())),
            self._reader.read_quotas,
            lambda rows: self._image.with_quotas(rows),
        )

    async def _read_rows(
        self,
        pending: Mapping[str, K],
        read: Callable[[Sequence[K]], Awaitable[dict[K, S]]],
        put_in: Callable[[Mapping[K, S]], MetadataImage],
    ) -> None:
        """All in one round; those that were overtaken meanwhile in another. Keys by their paths."""
        while pending:
            self._overtaken.difference_update(pending)
            rows = await read(tuple(pending.values()))
            pending = {path: key for path, key in pending.items() if path in self._overtaken}
            for key in pending.values():
                rows.pop(key, None)
            self._publish(put_in(rows))

    async def _read_current(self, path: str, read: Callable[[], Awaitable[T]]) -> T:
        """Read until nothing was applied to the path while it was read."""
        while True:
            self._overtaken.discard(path)
            value = await read()
            if path not in self._overtaken:
                return value


def _report(name: str, error: BaseException) -> None:
    _log.error("%s ended: metadata may be old", name, exc_info=error)
