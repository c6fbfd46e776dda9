"""The coordinators of one broker, made from its ports and rooms: groups, transactions and states of
share partitions.

Each keeps its state in a topic of its own and asks other brokers where that is needed. Whoever asks
the coordinator of this very broker calls its handler instead of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, cast

from moldau.broker.api import Services
from moldau.broker.auto_topic_creation import AutoTopicCreation
from moldau.broker.background_tasks import BackgroundTasks
from moldau.broker.commit_waits import Uncommitted, wait_until_committed
from moldau.broker.control_plane import NO_REPLICA, TRANSACTION_VERSION, LogEndRequests, random_uuid
from moldau.broker.handlers import add_partitions_to_txn, write_txn_markers
from moldau.broker.inter_broker import BrokerConnections
from moldau.broker.marker_sender import MarkerSender
from moldau.broker.ports import Ports
from moldau.broker.transaction_verifier import TransactionVerifier
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.producer_id_blocks import ProducerIdBlocks
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.groups.coordinator import GroupCoordinator
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.runtime.runtime import CoordinatorPorts
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
from moldau.net.peer import Peer
from moldau.replication.partition import Partition
from moldau.replication.partitions import Partitions
from moldau.tasks import TaskSupervisor

if TYPE_CHECKING:
    from kio.schema.add_partitions_to_txn.v5 import AddPartitionsToTxnRequest
    from kio.schema.write_txn_markers.v2 import WriteTxnMarkersRequest
    from kio.static.protocol import Payload

    from moldau.coordinators.groups.rules.outcome import LogMessage


class Coordinators(NamedTuple):
    """What `connect_coordinators` makes."""

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    marker_sender: MarkerSender
    share_coordinator: ShareCoordinator
    share_persister: SharePersister
    share_lag: ShareLag
    shares: Shares
    dead_letters: DeadLetterSender

    def run(self, duties: BackgroundTasks) -> None:
        duties.keep("expiry of offsets", self.groups.run_expiry)
        duties.keep("aborts of transactions", self.transactions.run_aborts)
        duties.keep("expiry of transactional ids", self.transactions.run_expiry)
        duties.keep("pruning of share states", self.share_coordinator.run_pruning)
        duties.keep("snapshots of share states", self.share_coordinator.run_cold_snapshots)

    async def close(self) -> None:
        self.shares.close()
        await self.dead_letters.close()
        self.share_coordinator.close()
        await self.share_persister.close()
        await self.transaction_verifier.close()
        self.transactions.close()
        await self.marker_sender.close()
        self.groups.close()


def connect_coordinators(
    ports: Ports,
    connections: BrokerConnections,
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
    clock, workers, spawn = ports.clock, ports.workers, supervisor.spawn

    def image() -> MetadataImage:
        return publisher.image

    def make_topic(name: str) -> InternalTopic:
        return InternalTopic(
            name,
            options=options,
            creator=topic_maker,
            image=image,
            wait_until_applied=lambda: partitions.wait_until_applied(publisher.image.version),
            spawn=spawn,
            clock=clock,
        )

    async def write_markers_here(request: WriteTxnMarkersRequest) -> Mapping[str, object]:
        return await write_txn_markers.write(request, services())

    async def verify_here(request: Payload) -> Mapping[str, object]:
        return await add_partitions_to_txn.add(
            cast("AddPartitionsToTxnRequest", request), services()
        )

    async def wait_until_all_committed(partition: Partition) -> None:
        written = Uncommitted(partition, partition.leader_epoch, partition.log.log_end_offset)
        deadline = clock.monotonic() + options().request_timeout_ms / 1000
        (error,) = await wait_until_committed([written], deadline, services())
        if error is not None:
            raise error

    of_all = CoordinatorPorts(
        broker_id=broker_id,
        options=options,
        image=image,
        clock=clock,
        workers=workers,
        duties=duties,
        spawn=spawn,
    )
    marker_sender = MarkerSender(
        broker_id,
        image=image,
        clock=clock,
        connect=connections.connect,
        timeout_ms=lambda: options().request_timeout_ms,
        write_here=write_markers_here,
        spawn=spawn,
    )
    share_coordinator = ShareCoordinator(make_topic(SHARE_GROUP_STATE_TOPIC), of_all)
    share_persister = SharePersister(
        share_coordinator,
        broker_id=broker_id,
        clock=clock,
        connect=connections.connect,
        spawn=spawn,
        timeout_ms=lambda: options().request_timeout_ms,
    )
    dead_letters = DeadLetterSender(
        broker_id=broker_id,
        options=options,
        image=image,
        partitions=partitions,
        clock=clock,
        workers=workers,
        create_topic=topic_maker.create_topic,
        wait_until_committed=wait_until_all_committed,
        connect=connections.connect,
    )
    return Coordinators(
        groups=GroupCoordinator(
            make_topic(GROUP_OFFSETS_TOPIC),
            of_all,
            persister=share_persister,
            make_uuid=partial(random_uuid, ports.random),
            on_message=on_group_message,
        ),
        transactions=TransactionCoordinator(
            make_topic(TRANSACTION_STATE_TOPIC),
            of_all,
            transaction_version=lambda: TRANSACTION_VERSION.last,
            next_producer_id=producer_ids.next_producer_id,
            send=marker_sender.send,
        ),
        transaction_verifier=TransactionVerifier(
            broker_id,
            image=image,
            clock=clock,
            connect=connections.connect,
            ask_local=verify_here,
            spawn=spawn,
            timeout_ms=lambda: options().request_timeout_ms,
        ),
        marker_sender=marker_sender,
        share_coordinator=share_coordinator,
        share_persister=share_persister,
        share_lag=ShareLag(
            broker_id, image=image, partitions=partitions, connect=connections.connect
        ),
        shares=Shares(
            store=share_persister,
            dead_letters=dead_letters,
            clock=clock,
            spawn=spawn,
            image=image,
            refresh_group_config=publisher.refresh_group_config,
            options=options,
        ),
        dead_letters=dead_letters,
    )


class ShareLag:
    """Asks the leaders of partitions where these end, for the lag of share groups. `connect` makes
    the way to a broker, which is closed again when it has answered."""

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
