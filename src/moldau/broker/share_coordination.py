"""Puts together what a broker has for share groups: the share coordinator, the persister that asks
it, the questions for a group's lag, and the share partitions of the partitions that it leads.

A part is made, and its modules are imported, when it is first asked for: a broker without share
groups has the coordinator alone, which waits for partitions of its topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from moldau.broker.commit_waits import Uncommitted, wait_until_committed
from moldau.clock import Clock
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.runtime import ShardDuties
from moldau.model import BrokerId, TopicPartition
from moldau.net.peer import Peer
from moldau.replication.partition import Partition
from moldau.replication.partitions import Partitions
from moldau.shares.share_coordinator import ShareCoordinator
from moldau.workers import Workers

if TYPE_CHECKING:
    from moldau.broker.api import Services
    from moldau.broker.dead_letters import DeadLetterSender
    from moldau.broker.share_lag import ShareLag
    from moldau.broker.share_persister import SharePersister
    from moldau.broker.shares import Shares


class ShareCoordination:
    """See the module. `connect` makes the way to a broker; `close` once."""

    def __init__(
        self,
        topic: InternalTopic,
        *,
        broker_id: BrokerId,
        options: Callable[[], BrokerOptions],
        image: Callable[[], MetadataImage],
        refresh_group_config: Callable[[str], Awaitable[None]],
        clock: Clock,
        workers: Workers,
        partitions: Partitions,
        connect: Callable[[BrokerId], Peer],
        duties: ShardDuties,
        spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]],
        services: Callable[[], Services],
    ) -> None:
        self._topic = topic
        self._broker_id = broker_id
        self._options = options
        self._image = image
        self._refresh_group_config = refresh_group_config
        self._clock = clock
        self._workers = workers
        self._partitions = partitions
        self._connect = connect
        self._spawn = spawn
        self._services = services
        self._persister: SharePersister | None = None
        self._dead_letters: DeadLetterSender | None = None
        self._shares: Shares | None = None
        self.coordinator = ShareCoordinator(
            broker_id=broker_id,
            topic=topic,
            image=image,
            options=options,
            clock=clock,
            workers=workers,
            duties=duties,
            spawn=spawn,
        )

    @property
    def persister(self) -> SharePersister:
        if self._persister is None:
            from moldau.broker.share_persister import SharePersister

            self._persister = SharePersister(
                self.coordinator,
                self._topic,
                broker_id=self._broker_id,
                clock=self._clock,
                connect=self._connect,
                spawn=self._spawn,
                timeout_ms=lambda: self._options().request_timeout_ms,
            )
        return self._persister

    @property
    def lag(self) -> ShareLag:
        from moldau.broker.share_lag import ShareLag

        return ShareLag(
            self._broker_id, image=self._image, partitions=self._partitions, connect=self._connect
        )

    @property
    def shares(self) -> Shares:
        if self._shares is None:
            from moldau.broker.dead_letters import DeadLetterSender
            from moldau.broker.shares import Shares

            self._dead_letters = DeadLetterSender(
                broker_id=self._broker_id,
                options=self._options,
                image=self._image,
                partitions=self._partitions,
                clock=self._clock,
                workers=self._workers,
                create_topic=lambda spec: self._services().topic_maker.create_topic(spec),
                wait_until_committed=self._wait_until_committed,
                connect=self._connect,
            )
            self._shares = Shares(
                store=self.persister,
                dead_letters=self._dead_letters,
                clock=self._clock,
                spawn=self._spawn,
                image=self._image,
                refresh_group_config=self._refresh_group_config,
                options=self._options,
            )
        return self._shares

    async def _wait_until_committed(self, partition: Partition) -> None:
        """All that is in its log now."""
        services = self._services()
        written = Uncommitted(partition, partition.leader_epoch, partition.log.log_end_offset)
        deadline = self._clock.monotonic() + self._options().request_timeout_ms / 1000
        (error,) = await wait_until_committed([written], deadline, services)
        if error is not None:
            raise error

    # What happens to parts that may not be there

    def on_partition_changed(self, topic_partition: TopicPartition) -> None:
        """A partition was opened, dropped, or has another leader."""
        if self._shares is not None:
            found = self._partitions.find(*topic_partition)
            self._shares.partitions.on_partition_changed(topic_partition, found)

    def on_connection_closed(self, connection: object) -> None:
        if self._shares is not None:
            self._shares.on_connection_closed(connection)

    async def close(self) -> None:
        if self._shares is not None:
            self._shares.close()
        if self._dead_letters is not None:
            await self._dead_letters.close()
        self.coordinator.close()
        if self._persister is not None:
            await self._persister.close()
