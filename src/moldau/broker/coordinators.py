"""The coordinators of one broker, made from its ports and rooms: groups, transactions and states of
share partitions.

Each keeps its state in a topic of its own and asks other brokers where that is needed. Whoever asks
the coordinator of this very broker calls its handler instead of the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from moldau.broker.api import Services
from moldau.broker.auto_topic_creation import AutoTopicCreation
from moldau.broker.background_tasks import BackgroundTasks
from moldau.broker.commit_waits import Uncommitted, wait_until_committed
from moldau.broker.control_plane import NO_REPLICA, TRANSACTION_VERSION, LogEndRequests, random_uuid
from moldau.broker.handlers import add_partitions_to_txn, write_txn_markers
from moldau.broker.marker_sender import MarkerSender
from moldau.broker.ports import Ports
from moldau.broker.replication import find_address
from moldau.broker.transaction_verifier import TransactionVerifier
from moldau.clock import Clock
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.producer_id_blocks import ProducerIdBlocks
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.groups.coordinator import GroupCoordinator
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.runtime import ShardDuties
from moldau.coordinators.shares.coordinator import ShareCoordinator
from moldau.coordinators.shares.dead_letters import DeadLetterSender
from moldau.coordinators.shares.persister import SharePersister
from moldau.coordinators.shares.share_partitions import Shares
from moldau.coordinators.transactions.coordinator import TransactionCoordinator
from moldau.model import (
    GROUP_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
    TopicPartition,
)
from moldau.net.peer import Peer, PeerAddress
from moldau.replication.partition import Partition
from moldau.replication.partitions import Partitions
from moldau.tasks import TaskSupervisor
from moldau.workers import Workers

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v5 import AddPartitionsToTxnRequest
    from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest
    from kio.static.protocol import Payload

    from moldau.coordinators.groups.coordinator import StatePersister
    from moldau.coordinators.groups.rules.outcome import LogMessage


_GROUP_ROOMS = (
    "moldau.coordinators.groups.shard",
    "moldau.coordinators.groups.rules.records",
    "moldau.coordinators.groups.rules.outcome",
)
_TRANSACTION_ROOMS = (
    "moldau.coordinators.transactions.coordinator",
    "moldau.coordinators.transactions.rules.records",
)
_SHARE_ROOMS = "moldau.coordinators.shares.coordinator", "moldau.coordinators.shares.rules.records"
"""What shards are made of, imported when their topic is made."""


class Coordinators(NamedTuple):
    """What `connect_coordinators` makes."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    marker_sender: MarkerSender
    shares: ShareCoordination

    def run(self, duties: BackgroundTasks) -> None:
        duties.keep("expiry of offsets", self.groups.run_expiry)
        duties.keep("aborts of transactions", self.transactions.run_aborts)
        duties.keep("expiry of transactional ids", self.transactions.run_expiry)
        duties.keep("pruning of share states", self.shares.coordinator.run_pruning)
        duties.keep("snapshots of share states", self.shares.coordinator.run_cold_snapshots)

    async def close(self) -> None:
        await self.shares.close()
        await self.transaction_verifier.close()
        self.transactions.close()
        await self.marker_sender.close()
        self.groups.close()


class _Surroundings(NamedTuple):
    """What all of them are made from."""

    ports: Ports
    broker_id: BrokerId
    options: Callable[[], BrokerOptions]
    topic_maker: AutoTopicCreation
    publisher: MetadataPublisher
    partitions: Partitions
    supervisor: TaskSupervisor
    duties: BackgroundTasks
    services: Callable[[], Services]
    on_group_message: Callable[[LogMessage], None]

    def state_topic(self, name: str, rooms: Sequence[str]) -> InternalTopic:
        publisher, partitions, workers = self.publisher, self.partitions, self.ports.workers
        return InternalTopic(
            name,
            options=self.options,
            maker=self.topic_maker,
            image=lambda: publisher.image,
            wait_until_applied=lambda: partitions.wait_until_applied(publisher.image.version),
            spawn=self.supervisor.spawn,
            load_rooms=lambda: workers.run(lambda: [import_module(room) for room in rooms]),
            clock=self.ports.clock,
        )

    def connect(self, other: BrokerId) -> Peer:
        def find() -> PeerAddress | None:
            return find_address(self.publisher.image.brokers.get(other), self.options())

        return Peer(self.ports.network, self.ports.clock, find, name=f"broker {other}")


def connect_coordinators(
    ports: Ports,
    *,
    broker_id: BrokerId,
    options: Callable[[], BrokerOptions],
    topic_maker: AutoTopicCreation,
    publisher: MetadataPublisher,
    partitions: Partitions,
    producer_ids: ProducerIdBlocks,
    supervisor: TaskSupervisor,
    duties: BackgroundTasks,
    services: Callable[[], Services],
    on_group_message: Callable[[LogMessage], None],
) -> Coordinators:
    around = _Surroundings(
        ports=ports,
        broker_id=broker_id,
        options=options,
        topic_maker=topic_maker,
        publisher=publisher,
        partitions=partitions,
        supervisor=supervisor,
        duties=duties,
        services=services,
        on_group_message=on_group_message,
    )
    sender = _make_marker_sender(around)
    shares = _make_shares(around)
    return Coordinators(
        groups=_make_groups(around, lambda: shares.persister),
        transactions=_make_transactions(around, producer_ids, sender),
        transaction_verifier=_make_verifier(around),
        marker_sender=sender,
        shares=shares,
    )


def _make_shares(around: _Surroundings) -> ShareCoordination:
    return ShareCoordination(
        around.state_topic(SHARE_GROUP_STATE_TOPIC, _SHARE_ROOMS),
        broker_id=around.broker_id,
        options=around.options,
        image=lambda: around.publisher.image,
        refresh_group_config=around.publisher.refresh_group_config,
        clock=around.ports.clock,
        workers=around.ports.workers,
        partitions=around.partitions,
        connect=around.connect,
        duties=around.duties,
        spawn=around.supervisor.spawn,
        services=around.services,
    )


def _make_groups(
    around: _Surroundings, share_states: Callable[[], StatePersister]
) -> GroupCoordinator:
    return GroupCoordinator(
        broker_id=around.broker_id,
        topic=around.state_topic(GROUP_OFFSETS_TOPIC, _GROUP_ROOMS),
        image=lambda: around.publisher.image,
        options=around.options,
        clock=around.ports.clock,
        workers=around.ports.workers,
        duties=around.duties,
        spawn=around.supervisor.spawn,
        make_uuid=partial(random_uuid, around.ports.random),
        on_message=around.on_group_message,
        share_states=share_states,
    )


def _make_transactions(
    around: _Surroundings, producer_ids: ProducerIdBlocks, sender: MarkerSender
) -> TransactionCoordinator:
    return TransactionCoordinator(
        broker_id=around.broker_id,
        topic=around.state_topic(TRANSACTION_STATE_TOPIC, _TRANSACTION_ROOMS),
        options=around.options,
        transaction_version=lambda: TRANSACTION_VERSION.last,
        clock=around.ports.clock,
        workers=around.ports.workers,
        duties=around.duties,
        next_producer_id=producer_ids.next_producer_id,
        send=sender.send,
    )


def _make_marker_sender(around: _Surroundings) -> MarkerSender:
    async def write_here(request: WriteTxnMarkersRequest) -> Mapping[str, object]:
        return await write_txn_markers.write(request, around.services())

    return MarkerSender(
        around.ports,
        broker_id=around.broker_id,
        image=lambda: around.publisher.image,
        options=around.options,
        write_here=write_here,
        spawn=around.supervisor.spawn,
    )


def _make_verifier(around: _Surroundings) -> TransactionVerifier:
    async def ask_here(request: Payload) -> Mapping[str, object]:
        return await add_partitions_to_txn.add(
            cast("AddPartitionsToTxnRequest", request), around.services()
        )

    return TransactionVerifier(
        around.broker_id,
        image=lambda: around.publisher.image,
        clock=around.ports.clock,
        connect=around.connect,
        ask_local=ask_here,
        spawn=around.supervisor.spawn,
        timeout_ms=lambda: around.options().request_timeout_ms,
    )


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
        return ShareLag(
            self._broker_id, image=self._image, partitions=self._partitions, connect=self._connect
        )

    @property
    def shares(self) -> Shares:
        if self._shares is None:
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


class ShareLag:
    """`connect` makes the way to a broker, which is closed again when it has answered."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        image: Callable[[], MetadataImage],
        partitions: Partitions,
        connect: Callable[[BrokerId], Peer],
    ) -> None:
        self._broker_id = broker_id
        self._image = image
        self._partitions = partitions
        self._questions = LogEndRequests(connect, f"broker-{broker_id}", replica_id=NO_REPLICA)

    async def find_ends(self, wanted: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """High watermarks; those that are not told in time are left out."""
        image = self._image()
        ends: dict[TopicPartition, int] = {}
        elsewhere: dict[BrokerId, list[TopicPartition]] = {}
        for one in wanted:
            topic = image.topics.get(one.topic)
            state = None if topic is None else topic.find_partition(one.partition)
            if state is None or state.leader not in image.brokers:
                continue
            if state.leader == self._broker_id:
                partition = self._partitions.find(*one)
                if partition is not None:
                    ends[one] = partition.high_watermark
            else:
                elsewhere.setdefault(state.leader, []).append(one)
        if elsewhere:
            for key, told in (await self._questions.ask(elsewhere)).items():
                for end in told.values():
                    ends[key] = end.end_offset
        return ends
