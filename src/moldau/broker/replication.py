"""Puts the parts together that copy partitions between brokers. Part of the composition root."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from moldau.broker.background_tasks import BackgroundTasks
from moldau.broker.inter_broker import BrokerConnections
from moldau.broker.ports import Ports
from moldau.cluster import znodes
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.state_writer import StateWriter
from moldau.config.broker_options import BrokerOptions
from moldau.coordination.port import Coordination
from moldau.model import BrokerId
from moldau.replication.damage_watch import DamageWatch
from moldau.replication.isr_keeper import IsrKeeper
from moldau.replication.partitions import Partitions
from moldau.replication.replica_fetcher import RemoteLeaderEndPoint, ReplicaFetcher, ReplicaFetchers
from moldau.replication.replication_quota import ReplicationQuota
from moldau.storage.log_store import LogStore
from moldau.tasks import TaskSupervisor


class Replication(NamedTuple):
    """The parts that others talk to."""

    fetchers: ReplicaFetchers
    isr_keeper: IsrKeeper
    damage_watch: DamageWatch
    leader_quota: ReplicationQuota


def connect_replication(
    ports: Ports,
    connections: BrokerConnections,
    *,
    supervisor: TaskSupervisor,
    tasks: BackgroundTasks,
    options: Callable[[], BrokerOptions],
    broker_id: BrokerId,
    coordination: Coordination,
    publisher: MetadataPublisher,
    log_store: LogStore,
    partitions: Partitions,
) -> Replication:
    """Make the parts; the keeper of in-sync sets has still to be run."""
    clock = ports.clock
    follower_quota = ReplicationQuota(
        clock,
        broker_id,
        lambda: options().follower_replication_throttled_rate,
        lambda topic: topic.follower_replication_throttled_replicas,
    )

    def make_fetcher(leader_id: BrokerId) -> ReplicaFetcher:
        return ReplicaFetcher(
            leader_id,
            RemoteLeaderEndPoint(connections.connect(leader_id), broker_id, options),
            broker_id=broker_id,
            broker_epoch=lambda: _own_epoch(publisher, broker_id),
            clock=clock,
            options=options,
            truncations=log_store.checkpoints,
            quota=follower_quota,
        )

    async def read_broker_epochs(brokers: Collection[BrokerId]) -> Mapping[BrokerId, int]:
        known = tuple(brokers)
        nodes = await coordination.get_many([znodes.broker_path(broker) for broker in known])
        found = zip(known, nodes, strict=True)
        return {broker: node.created_id for broker, node in found if node is not None}

    fetchers = ReplicaFetchers(make_fetcher, tasks.keep)
    partitions.connect(fetchers)
    writer = StateWriter(coordination, publisher)
    return Replication(
        fetchers,
        IsrKeeper(
            partitions=partitions,
            image=lambda: publisher.image,
            writes=writer,
            read_broker_epochs=read_broker_epochs,
            clock=clock,
            options=options,
        ),
        DamageWatch(
            broker_id=broker_id,
            image=lambda: publisher.image,
            writes=writer,
            workers=ports.workers,
            spawn=supervisor.spawn,
        ),
        ReplicationQuota(
            clock,
            broker_id,
            lambda: options().leader_replication_throttled_rate,
            lambda topic: topic.leader_replication_throttled_replicas,
        ),
    )


def _own_epoch(publisher: MetadataPublisher, broker_id: BrokerId) -> int:
    own = publisher.image.brokers.get(broker_id)
    return -1 if own is None else own.epoch
