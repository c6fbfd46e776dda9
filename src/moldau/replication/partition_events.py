"""Who hears of what happens to one partition. A shell.

Coordinators watch single partitions for commits; the broker, which lets waiting requests go on,
hears of all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.model import Offset, TopicPartition
from moldau.replication.rules.replica_state import ReplicaState


class PartitionEvents:
    """The listeners of one partition, and what the broker wants to know of it."""

    __slots__ = ("_on_change", "_on_commit", "_state", "_topic_partition", "listeners")

    def __init__(
        self,
        topic_partition: TopicPartition,
        state: ReplicaState,
        *,
        on_commit: Callable[[TopicPartition, Offset], None],
        on_change: Callable[[TopicPartition], None],
    ) -> None:
        self._topic_partition = topic_partition
        self._state = state
        self._on_commit = on_commit
        self._on_change = on_change
        self.listeners: tuple[Callable[[], object], ...] = ()  # to commits

    def add_listener(self, listener: Callable[[], object]) -> None:
        self.listeners = (*self.listeners, listener)

    def remove_listener(self, listener: Callable[[], object]) -> None:
        self.listeners = tuple(one for one in self.listeners if one != listener)

    def progress(self, has_committed: bool, was_settled: bool) -> None:
        """The high watermark may have moved, and a new leader may know now what is committed."""
        if has_committed:
            for listener in self.listeners:
                listener()
            self._on_commit(self._topic_partition, self._state.high_watermark)
        if self._state.is_settled and not was_settled:
            self._on_change(self._topic_partition)

    def changed(self) -> None:
        self._on_change(self._topic_partition)
