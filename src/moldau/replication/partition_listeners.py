"""Who hears of what happens to one partition. A shell.

Coordinators watch single partitions for commits; the broker, which lets waiting requests go on,
hears of all of them.
"""

from __future__ import annotations

from collections.abc import Callable

from moldau.model import Offset, TopicPartition
from moldau.replication.rules.replica_state import ReplicaState


class PartitionListeners:
    """The listeners to one partition: coordinators, and the broker."""

    __slots__ = ("_on_change", "_on_commit", "_state", "_topic_partition", "of_commits")

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
        self.of_commits: tuple[Callable[[], object], ...] = ()  # called at each

    def add(self, listener: Callable[[], object]) -> None:
        self.of_commits = (*self.of_commits, listener)

    def remove(self, listener: Callable[[], object]) -> None:
        self.of_commits = tuple(one for one in self.of_commits if one != listener)

    def progress(self, has_committed: bool, was_settled: bool) -> None:
        """The high watermark may have moved, and a new leader may know now what is committed."""
        if has_committed:
            for listener in self.of_commits:
                listener()
            self._on_commit(self._topic_partition, self._state.high_watermark)
        if self._state.is_settled and not was_settled:
            self._on_change(self._topic_partition)

    def changed(self) -> None:
        self._on_change(self._topic_partition)
