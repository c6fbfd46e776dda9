"""What the broker has for share groups at the leaders of partitions: share partitions and share
sessions, and what happens to both when a member or its connection goes.

A shell, owned by the event loop. Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import CoordinationError
from moldau.coordinators.shares.rules.records import SharePartitionKey
from moldau.coordinators.shares.share_partition import (
    DeadLetters,
    SharePartition,
    ShareSettings,
    ShareStateStore,
    Spawn,
    share_settings,
)
from moldau.coordinators.shares.share_session import (
    SessionPartitionKey,
    ShareSession,
    ShareSessions,
)
from moldau.errors import CoordinatorNotAvailableError, NotLeaderError
from moldau.model import TopicPartition
from moldau.replication.partition import Partition

_MOST_KNOWN: Final = 1000
"""Groups whose settings are remembered; clients name them, so there may be any number."""


class _Known(NamedTuple):
    """Settings, and what they were read from."""

    config: Mapping[str, str]
    options: BrokerOptions
    settings: ShareSettings


class Shares:
    """See the module."""

    def __init__(
        self,
        *,
        store: ShareStateStore,
        dead_letters: DeadLetters,
        clock: Clock,
        spawn: Spawn,
        image: Callable[[], MetadataImage],
        refresh_group_config: Callable[[str], Awaitable[None]],
        options: Callable[[], BrokerOptions],
    ) -> None:
        self._image = image
        self._refresh_group_config = refresh_group_config
        self._options = options
        self._known: dict[str, _Known] = {}
        self.sessions = ShareSessions(lambda: options().group_share_max_share_sessions)
        self.partitions = SharePartitions(
            store=store,
            dead_letters=dead_letters,
            clock=clock,
            spawn=spawn,
            settings_of=self.settings_of,
            refresh_settings=self._refresh_settings,
            has_members=self.sessions.has_group,
        )

    def settings_of(self, group_id: str) -> ShareSettings:
        """What is in force for a group; read once, until something is set."""
        config, options = self._image().group_config(group_id), self._options()
        known = self._known.get(group_id)
        if known is None or known.config is not config or known.options is not options:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = _Known(config, options, share_settings(config, options))
            self._known[group_id] = known
        return known.settings

    async def _refresh_settings(self, group_id: str) -> None:
        try:
            await self._refresh_group_config(group_id)
        except CoordinationError as error:
            raise CoordinatorNotAvailableError(
                f"the settings of share group {group_id!r} cannot be read: {error}"
            ) from error

    def begin_taking(self, group_id: str, partitions: Iterable[SessionPartitionKey]) -> None:
        """A member begins to take from these partitions."""
        for key in partitions:
            found = self._find(key, group_id)
            if found is not None:
                found.require_check()

    def _find(self, key: SessionPartitionKey, group_id: str) -> SharePartition | None:
        topic_id, index = key
        topic = self._image().topics_by_id.get(topic_id)
        if topic is None:
            return None
        found = self.partitions.find(TopicPartition(topic.name, index), group_id)
        return found if found is not None and found.key.topic_id == topic_id else None

    def leave(self, session: ShareSession) -> None:
        """A member has closed its session, or its connection has ended. What it had counts as
        delivered: one that fails because of a record must not make all others fail, too."""
        group_id, member_id = session.key
        self.sessions.close(session.key)
        for key in session.partitions:
            found = self._find(key, group_id)
            if found is not None:
                found.release(member_id)
        if not self.sessions.has_group(group_id):
            self.partitions.forget_idle(group_id)

    def on_connection_closed(self, connection: object) -> None:
        for session in self.sessions.close_connection(connection):
            self.leave(session)

    def close(self) -> None:
        self.partitions.close()


# One is made, and its state read, when a member asks for it. It goes when the partition has another
# leader or leader epoch, when the coordinator has fenced it, or when no member of its group is here
# and nothing of it is under way: then the state may be altered elsewhere, and is read again.
#
# A shell, owned by the event loop.


class SharePartitions:
    """By partition and group."""

    def __init__(
        self,
        *,
        store: ShareStateStore,
        dead_letters: DeadLetters,
        clock: Clock,
        spawn: Spawn,
        settings_of: Callable[[str], ShareSettings],
        refresh_settings: Callable[[str], Awaitable[None]],
        has_members: Callable[[str], bool],
    ) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._clock = clock
        self._spawn = spawn
        self._settings_of = settings_of
        self._refresh_settings = refresh_settings
        self._has_members = has_members  # of a group, at this broker
        self._by_partition: dict[TopicPartition, dict[str, SharePartition]] = {}  # no empty ones

    def __len__(self) -> int:
        return sum(len(groups) for groups in self._by_partition.values())

    def __iter__(self) -> Iterator[SharePartition]:
        return (one for groups in self._by_partition.values() for one in groups.values())

    def find(self, topic_partition: TopicPartition, group_id: str) -> SharePartition | None:
        """The one whose state is here, if there is one."""
        return self._by_partition.get(topic_partition, {}).get(group_id)

    def require(self, partition: Partition, group_id: str) -> SharePartition:
        """The one for a partition that is led here. One that has failed is made anew, except that
        whoever asks first is told when another leader has followed us."""
        found = self.find(partition.topic_partition, group_id)
        if found is not None:
            if found.partition is partition and found.is_current:
                found.check_soon()
                return found
            failure = found.failure
            self._end(found)
            if isinstance(failure, NotLeaderError):
                raise failure
        made = SharePartition(
            SharePartitionKey(group_id, partition.topic_id, partition.topic_partition.partition),
            partition,
            store=self._store,
            dead_letters=self._dead_letters,
            clock=self._clock,
            spawn=self._spawn,
            settings=lambda: self._settings_of(group_id),
            refresh_settings=lambda: self._refresh_settings(group_id),
            on_rest=self._on_rest,
        )
        self._by_partition.setdefault(partition.topic_partition, {})[group_id] = made
        return made

    def on_partition_changed(
        self, topic_partition: TopicPartition, partition: Partition | None
    ) -> None:
        """Another leader, another epoch, or gone (None): who waits has to look again."""
        for found in tuple(self._by_partition.get(topic_partition, {}).values()):
            if found.is_over or found.partition is not partition:
                self._end(found)

    def forget_idle(self, group_id: str) -> None:
        """The last member of a group at this broker has gone."""
        for one in tuple(self):
            if one.key.group_id == group_id:
                self._on_rest(one)

    def close(self) -> None:
        for one in tuple(self):
            self._end(one)

    def _on_rest(self, found: SharePartition) -> None:
        if not self._has_members(found.key.group_id) and found.is_idle:
            self._end(found)

    def _end(self, found: SharePartition) -> None:
        self._remove(found)
        found.fail(NotLeaderError(f"this broker does not lead {found} any more"))

    def _remove(self, found: SharePartition) -> None:
        topic_partition, group_id = found.partition.topic_partition, found.key.group_id
        groups = self._by_partition.get(topic_partition)
        if groups is not None and groups.get(group_id) is found:
            del groups[group_id]
            if not groups:
                del self._by_partition[topic_partition]
