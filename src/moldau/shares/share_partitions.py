"""The share partitions of one broker: those of the partitions that it leads, as far as somebody
reads them.

One is made, and its state read, when a member asks for it. It goes when the partition has another
leader or leader epoch, when the coordinator has fenced it, or when no member of its group is here
and nothing of it is under way: then the state may be altered elsewhere, and is read again.

A shell, owned by the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from moldau.clock import Clock
from moldau.errors import NotLeaderError
from moldau.model import TopicPartition
from moldau.replication.partition import Partition
from moldau.shares.port import DeadLetters, ShareStateStore
from moldau.shares.rules.delivery_state import SharePartitionKey
from moldau.shares.share_partition import SharePartition, Spawn
from moldau.shares.share_settings import ShareSettings


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
