"""Who in the broker wants to know what happens to partitions: waiting fetches, and the groups.

A shell without state of its own; `replication.partitions` calls it (`Progress`).
"""

from __future__ import annotations

from moldau.broker.waiting_room import WaitingRoom
from moldau.groups.coordinator import GroupCoordinator
from moldau.model import TopicPartition
from moldau.replication.partitions import Partitions


class PartitionEvents:
    """Passes on what `Partitions` tells."""

    def __init__(self, waiting_room: WaitingRoom) -> None:
        self._waiting_room = waiting_room
        self._partitions: Partitions | None = None
        self._groups: GroupCoordinator | None = None
        self.on_append = waiting_room.on_append  # straight: this is the path of every produce

    def connect(self, partitions: Partitions, groups: GroupCoordinator) -> None:
        """They know each other through this, and so come into being after it."""
        self._partitions = partitions
        self._groups = groups

    def on_change(self, topic_partition: TopicPartition) -> None:
        self._waiting_room.on_change(topic_partition)
        if self._partitions is not None and self._groups is not None:
            found = self._partitions.find(*topic_partition)
            self._groups.on_partition_changed(topic_partition, found)
