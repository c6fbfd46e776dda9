"""Who in the broker wants to know what happens to partitions: fetch sessions, waiting requests, the
coordinators, and those who copy, keep the in-sync sets and look for damage.

A shell without state of its own; a `replication.partition.PartitionObserver`.
"""

from __future__ import annotations

from moldau.broker.fetch_sessions import FetchSessions
from moldau.broker.purgatory import Purgatory
from moldau.broker.share_coordination import ShareCoordination
from moldau.groups.coordinator import GroupCoordinator
from moldau.model import INTERNAL_TOPICS, Offset, TopicPartition
from moldau.replication.damage_watch import DamageWatch
from moldau.replication.isr_keeper import IsrKeeper
from moldau.replication.partition import Partition
from moldau.replication.partitions import Partitions
from moldau.replication.replica_fetchers import ReplicaFetchers
from moldau.shares.share_coordinator import ShareCoordinator
from moldau.transactions.coordinator import TransactionCoordinator


class PartitionEvents:
    """Passes on what partitions tell."""

    def __init__(self, purgatory: Purgatory, fetch_sessions: FetchSessions) -> None:
        self._purgatory = purgatory
        self._fetch_sessions = fetch_sessions
        self._partitions: Partitions | None = None
        self._coordinators: tuple[
            GroupCoordinator | TransactionCoordinator | ShareCoordinator, ...
        ] = ()
        self._shares: ShareCoordination | None = None
        self._isr_keeper: IsrKeeper | None = None
        self._damage_watch: DamageWatch | None = None
        self._fetchers: ReplicaFetchers | None = None
        # Straight: these are on the path of every produce.
        self.on_append = fetch_sessions.on_append
        self.on_replicable = fetch_sessions.on_replicable

    def connect(
        self,
        partitions: Partitions,
        groups: GroupCoordinator,
        transactions: TransactionCoordinator,
        shares: ShareCoordination,
        isr_keeper: IsrKeeper,
        damage_watch: DamageWatch,
        fetchers: ReplicaFetchers,
    ) -> None:
        """They know each other through this, and so come into being after it."""
        self._partitions = partitions
        self._coordinators = (groups, transactions, shares.coordinator)
        self._shares = shares
        self._isr_keeper = isr_keeper
        self._damage_watch = damage_watch
        self._fetchers = fetchers

    def on_commit(self, topic_partition: TopicPartition, high_watermark: Offset) -> None:
        self._fetch_sessions.on_commit(topic_partition)
        self._purgatory.on_commit(topic_partition, high_watermark)

    def on_change(self, topic_partition: TopicPartition) -> None:
        self._fetch_sessions.on_change(topic_partition)
        self._purgatory.on_change(topic_partition)
        if self._fetchers is not None:
            self._fetchers.look_again(topic_partition)
        if self._shares is not None:
            self._shares.on_partition_changed(topic_partition)
        if topic_partition.topic in INTERNAL_TOPICS and self._partitions is not None:
            found = self._partitions.find(*topic_partition)
            for coordinator in self._coordinators:
                coordinator.on_partition_changed(topic_partition, found)

    def on_catch_up(self, partition: Partition) -> None:
        if self._isr_keeper is not None:
            self._isr_keeper.on_catch_up(partition)

    def on_suspicion(self, partition: Partition, offset: Offset) -> None:
        if self._damage_watch is not None:
            self._damage_watch.on_suspicion(partition, offset)
