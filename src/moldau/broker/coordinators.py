"""The coordinators of one broker, made from its ports and rooms: groups, transactions and states of
share partitions.

Each keeps its state in a topic of its own and asks other brokers where that is needed. Whoever asks
the coordinator of this very broker calls its handler instead of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from moldau.broker.api import Services
from moldau.broker.auto_topic_creation import AutoTopicCreation
from moldau.broker.background_tasks import BackgroundTasks
from moldau.broker.control_plane import TRANSACTION_VERSION, random_uuid
from moldau.broker.marker_sender import MarkerSender
from moldau.broker.ports import Ports
from moldau.broker.replication import find_address
from moldau.broker.share_coordination import ShareCoordination
from moldau.broker.transaction_verifier import TransactionVerifier
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.producer_id_blocks import ProducerIdBlocks
from moldau.config.broker_options import BrokerOptions
from moldau.coordinators.groups.coordinator import GroupCoordinator
from moldau.coordinators.runtime.internal_topic import InternalTopic
from moldau.coordinators.transactions.coordinator import TransactionCoordinator
from moldau.model import (
    GROUP_OFFSETS_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    BrokerId,
)
from moldau.net.peer import Peer, PeerAddress
from moldau.replication.partitions import Partitions
from moldau.tasks import TaskSupervisor

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
_SHARE_ROOMS = "moldau.shares.share_state_shard", "moldau.shares.share_state_log"
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
        from moldau.broker.handlers import write_txn_markers

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
        from moldau.broker.handlers import add_partitions_to_txn

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
