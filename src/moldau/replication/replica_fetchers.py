"""Who copies from whom: a fetcher for each broker that leads something followed here. A shell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from moldau.model import BrokerId, TopicPartition
from moldau.replication.partition import Partition
from moldau.replication.replica_fetcher import ReplicaFetcher

Spawn = Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]


class ReplicaFetchers:
    """The fetchers of one broker; owned by the event loop."""

    def __init__(self, make: Callable[[BrokerId], ReplicaFetcher], spawn: Spawn) -> None:
        self._make = make
        self._spawn = spawn
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
            self._spawn(f"copying from broker {leader}", fetcher.run())
        fetcher.add(partition)

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
