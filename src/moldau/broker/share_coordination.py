"""Puts together what a broker does for share groups beside leading their partitions: the share
coordinator, the persister that asks it, and the questions for a group's lag."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple

from moldau.broker.share_lag import ShareLag
from moldau.broker.share_persister import SharePersister
from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.model import BrokerId
from moldau.net.peer import Peer
from moldau.replication.partitions import Partitions
from moldau.shards.leads import ShardDuties
from moldau.shards.state_topic import StateTopic
from moldau.shares.share_coordinator import ShareCoordinator
from moldau.workers import Workers


class ShareCoordination(NamedTuple):
    """What is put together here."""

    coordinator: ShareCoordinator
    persister: SharePersister
    lag: ShareLag
    connect: Callable[[BrokerId], Peer]
    """Makes the way to a broker."""


def connect_share_coordination(
    topic: StateTopic,
    *,
    broker_id: BrokerId,
    options: Callable[[], BrokerOptions],
    image: Callable[[], MetadataImage],
    clock: Clock,
    workers: Workers,
    partitions: Partitions,
    connect: Callable[[BrokerId], Peer],
    duties: ShardDuties,
    spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
) -> ShareCoordination:
    """They know each other, and none of them runs yet. `connect` makes the way to a broker."""
    coordinator = ShareCoordinator(
        broker_id=broker_id,
        topic=topic,
        image=image,
        options=options,
        clock=clock,
        workers=workers,
        duties=duties,
        spawn=spawn,
    )
    persister = SharePersister(
        coordinator,
        topic,
        broker_id=broker_id,
        clock=clock,
        connect=connect,
        spawn=spawn,
        timeout_ms=lambda: options().request_timeout_ms,
    )
    lag = ShareLag(broker_id, image=image, partitions=partitions, connect=connect)
    return ShareCoordination(coordinator, persister, lag, connect)
