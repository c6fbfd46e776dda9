"""What handlers use: the declaration of an API, what a request is handled with, responses.

`serves` declares an API. A `RequestContext` is what a handler is given beside its request: the
client, and the `Services` of this broker, which `broker.server` puts together. Large responses are
encoded in slices, so that they do not block the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from moldau.clock import finish_within
from moldau.errors import ErrorCode, KafkaError, RequestTimedOutError
from moldau.metrics.figures import ApiFigures
from moldau.model import AclOperation, Principal, TopicPartition
from moldau.net.port import Chunk, Connection
from moldau.wire.apis import Api
from moldau.wire.headers import RequestHeader
from moldau.wire.layout import element_class_of
from moldau.wire.shape import EncodedArray
from moldau.wire.values_writer import encode_values
from moldau.wire.versions import response_class
from moldau.workers import Workers

if TYPE_CHECKING:
    from kio.static.protocol import Entity

    from moldau.broker.authentication import SaslSession
    from moldau.broker.auto_topic_creation import AutoTopicCreation, InternalTopics
    from moldau.broker.coordinators import ShareLag
    from moldau.broker.fetch import FetchSessions
    from moldau.broker.monitoring.client_telemetry import ClientTelemetry
    from moldau.broker.purgatory import Purgatory
    from moldau.broker.throttling import RequestThrottle
    from moldau.broker.topic_metadata import EncodedTopics
    from moldau.broker.transaction_verifier import TransactionVerifier
    from moldau.clock import Clock
    from moldau.cluster.acl_writer import AclWriter
    from moldau.cluster.cluster_admin import ClusterAdmin
    from moldau.cluster.credentials import DelegationTokens, UserCredentials
    from moldau.cluster.metadata_publisher import MetadataPublisher
    from moldau.cluster.producer_id_blocks import ProducerIdBlocks
    from moldau.cluster.rules.metadata_image import BrokerState, MetadataImage
    from moldau.config.broker_options import BrokerOptions
    from moldau.coordinators.groups.coordinator import GroupCoordinator
    from moldau.coordinators.shares.coordinator import ShareCoordinator
    from moldau.coordinators.shares.persister import SharePersister
    from moldau.coordinators.shares.share_partitions import Shares
    from moldau.coordinators.transactions.coordinator import TransactionCoordinator
    from moldau.model import BrokerId
    from moldau.quotas import ClientQuotas
    from moldau.replication.partitions import Partitions
    from moldau.replication.replication_quota import ReplicationQuota
    from moldau.security.audit import AuditLog
    from moldau.security.authorizer import Authorizer
    from moldau.storage.log_store import LogStore


V = TypeVar("V")

Values: TypeAlias = dict[str, object]
"""A response, or a part of one, by the names of its fields."""


def error_values(error: KafkaError | None) -> Values:
    """How a response, or a part of one, states an error, or that there is none."""
    if error is None:
        return {"error_code": ErrorCode.none, "error_message": None}
    return {"error_code": error.code, "error_message": str(error)}


def group_by_topic(values: Mapping[TopicPartition, V]) -> dict[str, dict[int, V]]:
    """What is said of partitions, as responses list it: by topic, and there by partition."""
    topics: dict[str, dict[int, V]] = {}
    for (topic, partition), value in values.items():
        topics.setdefault(topic, {})[partition] = value
    return topics


class ServedApi(NamedTuple):
    """One API as this broker serves it."""

    name: str
    """kio's, and so is the handler's module name: `list_offsets`."""
    key: int
    first: int
    last: int
    droppable: frozenset[str]
    """Fields of the newest answer that an older version may lose, and `throttle_time`, which the
    dispatch adds."""
    by_hand: bool
    """The handler reads and writes its frames itself (Produce and Fetch)."""
    changes_cluster: bool
    """A request is finished, and audited, when the client has gone. It may have gone on purpose:
    what was sent to the store is done there, whoever waits for it."""
    cluster_operation: AclOperation | None
    """The right on the cluster that every request takes (`authorization.authorize`); None where the
    rights depend on what a request names."""


def serves(
    api: Api,
    *,
    needs: AclOperation | None = None,
    droppable: Iterable[str] = (),
    by_hand: bool = False,
    changes_cluster: bool = False,
) -> ServedApi:
    """Declare an API, in the versions that the table names."""
    first, last = api.served
    return ServedApi(
        name=api.snake_name,
        key=api.key,
        first=first,
        last=last,
        droppable=frozenset((*droppable, "throttle_time")),
        by_hand=by_hand,
        changes_cluster=changes_cluster,
        cluster_operation=needs,
    )


class DeferredResponse(NamedTuple):
    """What a handler returns that has done all but wait: the frame is not needed any more."""

    work: Awaitable[Sequence[Chunk] | None]


class Slices:
    """Counts the pieces of one answer and lets others have the loop after every `size` of them.

    What an answer says may change between two slices, so a handler takes what it reads from once
    (an image, a list) or says that its elements are of different moments.
    """

    __slots__ = ("_left", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._left = size

    async def piece_done(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._left = self._size
            await asyncio.sleep(0)


def answered_class(api: ServedApi, version: int, *arrays: str) -> type[Entity]:
    """The class of the elements of an array of an answer; of an array inside those, and so on."""
    found: type[Entity] = response_class(api.key, version)
    for name in arrays:
        found = element_class_of(found, name)
    return found


def encode_element(
    element_class: type[Entity], values: Mapping[str, object], api: ServedApi
) -> bytes:
    return encode_values(element_class, values, api.droppable)


async def encode_array(
    element_class: type[Entity],
    rows: Iterable[Mapping[str, object]],
    api: ServedApi,
    slices: Slices,
) -> EncodedArray:
    """The elements in slices; `rows` is lazy where making the values takes long too."""
    elements = []
    for row in rows:
        elements.append(encode_element(element_class, row, api))
        await slices.piece_done()
    return EncodedArray(elements)


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
    topic_maker: AutoTopicCreation
    internal_topics: InternalTopics
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

    __slots__ = ("connection", "figures", "header", "sasl", "services", "throttle", "version")

    def __init__(
        self,
        header: RequestHeader,
        connection: Connection,
        services: Services,
        figures: ApiFigures | None = None,
        throttle: RequestThrottle | None = None,
        sasl: SaslSession | None = None,
    ) -> None:
        self.header = header
        self.version = header.api_version
        self.connection = connection
        self.services = services
        self.figures = figures
        self.throttle = throttle  # None while there are no quotas
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
