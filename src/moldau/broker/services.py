"""What handlers work with: the rooms of one broker, put together by `broker.server`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from moldau.broker.api import ServedApi
from moldau.broker.encoded_topics import EncodedTopics
from moldau.broker.fetch_sessions import FetchSessions
from moldau.broker.monitoring.client_telemetry import ClientTelemetry
from moldau.broker.purgatory import Purgatory
from moldau.broker.share_lag import ShareLag
from moldau.broker.share_persister import SharePersister
from moldau.broker.shares import Shares
from moldau.broker.topic_maker import TopicMaker
from moldau.broker.transaction_verifier import TransactionVerifier
from moldau.clock import Clock
from moldau.cluster.acl_writer import AclWriter
from moldau.cluster.cluster_admin import ClusterAdmin
from moldau.cluster.leadership_admin import LeadershipAdmin
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.cluster.producer_id_blocks import ProducerIdBlocks
from moldau.cluster.rules.metadata_image import MetadataImage
from moldau.cluster.user_credentials import UserCredentials
from moldau.config.broker_options import BrokerOptions
from moldau.groups.coordinator import GroupCoordinator
from moldau.metrics.request_figures import RequestFigures
from moldau.model import BrokerId
from moldau.quotas.client_quotas import ClientQuotas
from moldau.replication.partitions import Partitions
from moldau.replication.replication_quota import ReplicationQuota
from moldau.security.audit import AuditLog
from moldau.security.authorizer import Authorizer
from moldau.shares.share_coordinator import ShareCoordinator
from moldau.storage.log_store import LogStore
from moldau.transactions.coordinator import TransactionCoordinator
from moldau.workers import Workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The rooms behind the handlers."""

    broker_id: BrokerId
    clock: Clock
    workers: Workers
    current_options: Callable[[], BrokerOptions]
    log_store: LogStore
    partitions: Partitions
    publisher: MetadataPublisher
    admin: ClusterAdmin
    credentials: UserCredentials
    leadership: LeadershipAdmin
    topic_maker: TopicMaker
    producer_ids: ProducerIdBlocks
    groups: GroupCoordinator
    transaction_verifier: TransactionVerifier
    transactions: TransactionCoordinator
    share_coordinator: ShareCoordinator
    share_persister: SharePersister
    share_lag: ShareLag
    shares: Shares
    purgatory: Purgatory
    leader_quota: ReplicationQuota
    quotas: ClientQuotas
    fetch_sessions: FetchSessions
    encoded_topics: EncodedTopics
    requests: RequestFigures
    telemetry: ClientTelemetry
    apis: Callable[[], tuple[ServedApi, ...]]
    authorizer: Authorizer | None
    """None where everybody may do everything."""
    acls: AclWriter
    audit: AuditLog

    @property
    def options(self) -> BrokerOptions:
        return self.current_options()

    @property
    def image(self) -> MetadataImage:
        return self.publisher.image

    async def wait_until_applied(self) -> None:
        """Return when the replicas here are what the current image says."""
        await self.partitions.wait_until_applied(self.publisher.image.version)
