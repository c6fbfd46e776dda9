"""What a handler is given beside its request: the parts of one broker, and the client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from moldau.clock import finish_within
from moldau.errors import RequestTimedOutError
from moldau.metrics.figures import ApiFigures
from moldau.model import Principal
from moldau.net.port import Connection
from moldau.wire.headers import RequestHeader

if TYPE_CHECKING:
    from moldau.broker.authentication import SaslSession
    from moldau.broker.auto_topic_creation import AutoTopicCreation, InternalTopics
    from moldau.broker.fetch import FetchSessions
    from moldau.broker.monitoring.client_telemetry import ClientTelemetry
    from moldau.broker.purgatory import Purgatory
    from moldau.broker.share_coordination import ShareCoordination
    from moldau.broker.share_lag import ShareLag
    from moldau.broker.share_persister import SharePersister
    from moldau.broker.shares import Shares
    from moldau.broker.throttling import RequestThrottle
    from moldau.broker.topic_metadata import EncodedTopics
    from moldau.broker.transaction_verifier import TransactionVerifier
    from moldau.clock import Clock
    from moldau.cluster.acl_writer import AclWriter
    from moldau.cluster.cluster_admin import ClusterAdmin
    from moldau.cluster.delegation_tokens import DelegationTokens
    from moldau.cluster.leadership_admin import LeadershipAdmin
    from moldau.cluster.metadata_publisher import MetadataPublisher
    from moldau.cluster.producer_id_blocks import ProducerIdBlocks
    from moldau.cluster.rules.metadata_image import BrokerState, MetadataImage
    from moldau.cluster.user_credentials import UserCredentials
    from moldau.config.broker_options import BrokerOptions
    from moldau.coordinators.transactions.coordinator import TransactionCoordinator
    from moldau.groups.coordinator import GroupCoordinator
    from moldau.model import BrokerId
    from moldau.quotas import ClientQuotas
    from moldau.replication.partitions import Partitions
    from moldau.replication.replication_quota import ReplicationQuota
    from moldau.security.audit import AuditLog
    from moldau.security.authorizer import Authorizer
    from moldau.shares.share_coordinator import ShareCoordinator
    from moldau.storage.log_store import LogStore
    from moldau.workers import Workers


_APPLIED_WITHIN_SECONDS: Final = 8.0
"""Less than the ten seconds that the most impatient clients give such a request."""

_LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Services:
    """The rooms behind the handlers."""

    broker_id: BrokerId
    describe_self: Callable[[], BrokerState]
    clock: Clock
    spawn: Callable[[str, Coroutine[Any, Any, None]], asyncio.Task[None]]
    workers: Workers
    current_options: Callable[[], BrokerOptions]
    log_store: LogStore
    partitions: Partitions
    publisher: MetadataPublisher
    admin: ClusterAdmin
    credentials: UserCredentials
    open_tokens: Callable[[], DelegationTokens]
    leadership: LeadershipAdmin
    topic_maker: AutoTopicCreation
    internal_topics: InternalTopics
    producer_ids: ProducerIdBlocks
    groups: GroupCoordinator
    transaction_verifier: TransactionVerifier
    transactions: TransactionCoordinator
    share_coordination: ShareCoordination
    purgatory: Purgatory
    leader_quota: ReplicationQuota
    quotas: ClientQuotas
    fetch_sessions: FetchSessions
    encoded_topics: EncodedTopics
    telemetry: ClientTelemetry
    authorizer: Authorizer | None
    """None where everybody may do everything."""
    acls: AclWriter
    audit: AuditLog

    @property
    def options(self) -> BrokerOptions:
        return self.current_options()

    @property
    def tokens(self) -> DelegationTokens:
        """Made anew, as it remembers nothing: most brokers never need it."""
        return self.open_tokens()

    @property
    def image(self) -> MetadataImage:
        return self.publisher.image

    @property
    def told_brokers(self) -> Mapping[BrokerId, BrokerState]:
        """Those that clients are told of: all that are registered, and always this one.

        It is not registered for a while when it has lost its session. A client that is told of no
        broker at all has nobody left to ask, and librdkafka's may never come back from that.
        """
        brokers = self.image.brokers
        if self.broker_id in brokers:
            return brokers
        return {**brokers, self.broker_id: self.describe_self()}

    @property
    def share_coordinator(self) -> ShareCoordinator:
        return self.share_coordination.coordinator

    @property
    def share_persister(self) -> SharePersister:
        return self.share_coordination.persister

    @property
    def share_lag(self) -> ShareLag:
        return self.share_coordination.lag

    @property
    def shares(self) -> Shares:
        return self.share_coordination.shares

    async def change_topics(
        self, work: Coroutine[Any, Any, None], changed: Iterable[str], timeout_ms: int
    ) -> None:
        """Do what a request wants of topics; return when it is usable, or at the request's timeout.

        The work goes on then. It is done when it has ended and every partition of the topics in
        `changed`, which the work fills, has a living leader. The replicas here are waited for as
        well, eight seconds at most: the client may use the topics then, and is told to ask again
        by what is late. With a timeout of zero or less only the work itself is waited for.
        """
        task = self.spawn("change of topics", work)
        seconds = timeout_ms / 1000
        end = self.clock.monotonic() + seconds
        try:
            limit = seconds if seconds > 0 else _APPLIED_WITHIN_SECONDS
            await finish_within(asyncio.shield(task), self.clock, limit)
            if seconds > 0:
                left = end - self.clock.monotonic()
                await finish_within(self._wait_until_led(changed), self.clock, left)
                await self.wait_until_applied(end - self.clock.monotonic())
        except TimeoutError:
            return

    async def _wait_until_led(self, names: Iterable[str]) -> None:
        while not all(map(self.is_led, names)):
            await self.clock.sleep(_LOOK_SECONDS)

    def is_led(self, name: str) -> bool:
        """Whether every partition of a topic has a living leader; true where there is no topic."""
        topic = self.image.topics.get(name)
        states = () if topic is None else topic.partitions
        return all(state.leader in self.image.brokers for state in states)

    async def wait_until_applied(self, within_seconds: float = _APPLIED_WITHIN_SECONDS) -> None:
        """Return when the replicas here are what the current image says, so that whoever asked for
        a change can use it at once; or after a while. The change is decided then, and a client that
        is early is told to ask again."""
        applied = self.partitions.wait_until_applied(self.publisher.image.version)
        limit = min(within_seconds, _APPLIED_WITHIN_SECONDS)
        with suppress(TimeoutError):
            await finish_within(applied, self.clock, limit)


def late_topics(
    services: Services, unfinished: Iterable[str], changed: Iterable[str], timeout_ms: int
) -> dict[str, RequestTimedOutError]:
    """What those of a request are told that are not as they shall be at its timeout."""
    unled = (name for name in changed if timeout_ms <= 0 or not services.is_led(name))
    return {
        name: RequestTimedOutError(f"{name} is not ready after {timeout_ms} ms; the change goes on")
        for name in (*unfinished, *unled)
    }


class RequestContext:
    """One is made for each request. Slots, and not a named tuple: they are read in a seventh of
    the time, and handlers read a dozen of them."""

    __slots__ = ("charge", "connection", "figures", "header", "sasl", "services", "version")

    def __init__(
        self,
        header: RequestHeader,
        connection: Connection,
        services: Services,
        figures: ApiFigures | None = None,
        charge: RequestThrottle | None = None,
        sasl: SaslSession | None = None,
    ) -> None:
        self.header = header
        self.version = header.api_version
        self.connection = connection
        self.services = services
        self.figures = figures
        self.charge = charge  # None while there are no quotas
        self.sasl = sasl  # the login of the connection, on listeners that ask for one

    @property
    def principal(self) -> Principal:
        """Who asks."""
        return self.connection.principal

    @property
    def host(self) -> str:
        """The address that the request comes from."""
        return self.connection.peer_host

    @property
    def listener(self) -> str:
        """The name of the listener that the client came in by."""
        return self.connection.listener_name

    def count_error(self, code: int) -> None:
        """An answer by hand has an error in it; 0 is none."""
        if code and self.figures is not None:
            self.figures.count_error(code)
