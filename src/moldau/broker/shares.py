"""What the broker has for share groups at the leaders of partitions: share partitions and share
sessions, and what happens to both when a member or its connection goes.

A shell, owned by the event loop. Part of the composition root.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple

from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import CoordinationError
from moldau.errors import CoordinatorNotAvailableError
from moldau.model import TopicPartition
from moldau.shares.port import DeadLetters, ShareStateStore
from moldau.shares.share_partition import SharePartition, Spawn
from moldau.shares.share_partitions import SharePartitions
from moldau.shares.share_sessions import SessionPartitionKey, ShareSession, ShareSessions
from moldau.shares.share_settings import ShareSettings, share_settings

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
