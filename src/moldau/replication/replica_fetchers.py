"""Who copies from whom: a fetcher for each broker that leads something followed here. A shell."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from moldau.model import BrokerId, TopicPartition
from moldau.replication.partition import Partition

if TYPE_CHECKING:
    from moldau.replication.replica_fetcher import ReplicaFetcher

Begin = Callable[[], Coroutine[Any, Any, None]]


class ReplicaFetchers:
    """The fetchers of one broker; owned by the event loop.

    `keep(name, begin)` runs what `begin` gives, and begins again when that fails.
    """

    def __init__(
        self, make: Callable[[BrokerId], ReplicaFetcher], keep: Callable[[str, Begin], object]
    ) -> None:
        self._make = make
        self._keep = keep
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}  # each with at least one partition
        self._leaders: dict[TopicPartition, BrokerId] = {}

    def follow(self, partition: Partition) -> None:
        """Copy from the partition's leader from now on."""
        leader = partition.leader_id
        if self._leaders.get(partition.topic_partition, leader) != leader:
            self.forget(partition.topic_partition)
        self._leaders[partition.topic_partition] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = self._make(leader)
            self._keep(f"copying from broker {leader}", self._copying(leader, fetcher))
        fetcher.add(partition)

    def _copying(self, leader: BrokerId, fetcher: ReplicaFetcher) -> Begin:
        """How to copy with this fetcher and, if it fails, with another in its place."""
        failed: ReplicaFetcher | None = None

        async def copy() -> None:
            nonlocal failed
            present = fetcher if failed is None else self._replace(leader, failed)
            if present is not None:
                failed = present
                await present.run()

        return copy

    def _replace(self, leader: BrokerId, failed: ReplicaFetcher) -> ReplicaFetcher | None:
        if self._fetchers.get(leader) is not failed:
            return None  # all it copied is copied from elsewhere, or by another one, by now
        fetcher = self._fetchers[leader] = self._make(leader)
        for partition in failed.partitions:
            fetcher.add(partition)
        return fetcher

    def look_again(self, topic_partition: TopicPartition) -> None:
        """Something happened to a partition here; nothing where it is not copied."""
        leader = self._leaders.get(topic_partition)
        if leader is not None:
            self._fetchers[leader].look_again(topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Copy a partition no longer."""
        leader = self._leaders.pop(topic_partition, None)
        if leader is None:
            return
        fetcher = self._fetchers[leader]
        fetcher.remove(topic_partition)
        if not len(fetcher):
            del self._fetchers[leader]
            fetcher.close()

    def forget_all(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._leaders.clear()
