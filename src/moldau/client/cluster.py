"""A client's view of a whole cluster: asks any broker, the controller, a leader, a coordinator.

Answers for finding the right broker, for metadata, and for trying again; the requests themselves
are written by the modules around it (admin, producer, consumer, range_fetch). A shell, used by
the tasks of one loop.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar, cast

from kio.schema.errors import ErrorCode

from moldau import __version__
from moldau.client.connections import BrokerConnection, ConnectionPool, ConnectionSettings
from moldau.client.rules.broker_errors import (
    Backoff,
    describe_missing_right,
    error_for,
    is_retriable,
    may_retry,
)
from moldau.client.rules.cluster_metadata import (
    Address,
    Broker,
    ClusterMetadata,
    PartitionMetadata,
    TopicMetadata,
    parse_bootstrap,
)
from moldau.clock import Clock, SystemClock, finish_within
from moldau.config.client_options import ClientOptions
from moldau.errors import ClientError, KafkaError, MoldauError, UnknownTopicError
from moldau.model import NO_LEADER_EPOCH, TopicPartition
from moldau.net.port import Network
from moldau.net.sockets import SocketNetwork
from moldau.wire.apis import FIND_COORDINATOR, METADATA, Api

if TYPE_CHECKING:
    from kio.schema.find_coordinator.v2.response import (
        FindCoordinatorResponse as SingleCoordinatorResponse,
    )
    from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
    from kio.schema.metadata.v13.response import (
        MetadataResponse,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )
    from kio.static.protocol import Payload

    from moldau.net.secured import ClientSecurity
    from moldau.wire.shape import Values


K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


MayGoOn = Callable[[MoldauError, int, float], bool]
"""Of the failure, the number of attempts before it, and the seconds until the next one begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What a client may be told beside the address."""

    connection: ConnectionSettings = field(default_factory=ConnectionSettings)
    timeout_seconds: float = 60.0  # for one operation with all its attempts
    backoff: Backoff = field(default_factory=Backoff)


class ClusterClient:
    """Connections and metadata of one client."""

    def __init__(
        self,
        bootstrap: str,
        settings: ClientSettings | None = None,
        *,
        network: Network | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.random = random or Random()  # noqa: S311 spreads clients, keeps no secret
        self.settings = settings or ClientSettings()
        self.clock: Clock = clock or SystemClock()
        self.pool = ConnectionPool(
            parse_bootstrap(bootstrap),
            network or SocketNetwork(self.clock),
            self.clock,
            self.settings.connection,
        )
        self.metadata = MetadataCache(self.pool)

    async def close(self) -> None:
        await self.pool.close()

    def backoff_seconds(self, attempt: int) -> float:
        """The pause after the failed attempt number `attempt`, counted from 0."""
        return self.settings.backoff.delay_seconds(attempt, self.random.random)

    async def connect_to_broker(self, broker_id: int) -> BrokerConnection:
        if broker_id not in self.metadata.current.brokers:
            await self.metadata.refresh(())
        return await self.pool.to_broker(broker_id)

    async def connect_to_controller(self) -> BrokerConnection:
        """The controller; where none is named, any broker passes requests on to it (KIP-500)."""
        metadata = self.metadata.current
        if not metadata.brokers:
            metadata = await self.metadata.refresh(())
        if metadata.controller_id in metadata.brokers:
            return await self.pool.to_broker(metadata.controller_id)
        return await self.pool.to_any()

    async def call_controller(self, api: Api, values: Values) -> Payload:
        connection = await self.connect_to_controller()
        return await connection.call(api, values)

    async def connect_to_leader(self, partition: TopicPartition) -> BrokerConnection:
        """A connection to the partition's leader as far as it is known now."""
        if partition.topic not in self.metadata.current.topics:
            await self.metadata.refresh((partition.topic,))
        return await self.pool.to_broker(self.metadata.current.require_leader(partition))

    async def wait_until_topic_is_ready(
        self, topic: str, *, may_create: bool = False
    ) -> TopicMetadata:
        """The topic once it exists and has no error; raises what still stands in the way."""

        async def read_topic() -> TopicMetadata:
            found = await self.metadata.refresh((topic,), may_create=may_create)
            return found.require_topic(topic)

        return await self.retry(read_topic)

    async def retry(
        self,
        work: Callable[[], Awaitable[T]],
        *,
        refresh: Collection[str] | None = None,
        timeout_seconds: float | None = None,
        wait_for_cluster: bool = False,
        may_go_on: MayGoOn | None = None,
    ) -> T:
        """Do the work, again and again while its failure may pass; then raise the failure.

        Nothing of it goes on after `timeout_seconds`.
        `refresh` are topics whose metadata is asked for anew before each further attempt; an
        empty collection asks for the brokers alone.
        `wait_for_cluster` goes on while no broker answers at all. `may_go_on` decides instead of
        `may_retry`.
        """
        if timeout_seconds is None:
            timeout_seconds = self.settings.timeout_seconds
        if may_go_on is None:
            may_go_on = partial(_may_retry, wait_for_cluster)
        begun = self.clock.monotonic()
        attempt = 0
        failure: MoldauError | None = None
        while True:
            left = timeout_seconds - (self.clock.monotonic() - begun)
            try:
                return await self._attempt(work, refresh if attempt else None, left)
            except TimeoutError:
                raise failure or self.pool.no_answer_within(timeout_seconds) from None
            except (KafkaError, ClientError) as error:
                failure = error
                delay = self.backoff_seconds(attempt)
                waited = self.clock.monotonic() + delay - begun
                if waited > timeout_seconds or not may_go_on(error, attempt, waited):
                    raise
            await self.clock.sleep(delay)
            attempt += 1

    async def _attempt(
        self, work: Callable[[], Awaitable[T]], refresh: Collection[str] | None, seconds: float
    ) -> T:
        """A single request may take longer than the whole operation; raises TimeoutError then."""

        async def attempt() -> T:
            if refresh is not None:
                await self.metadata.refresh(refresh)
            return await work()

        if seconds == math.inf:
            return await attempt()
        return await finish_within(attempt(), self.clock, seconds)

    async def retry_each(
        self,
        keys: Collection[K],
        send_request: Callable[[Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]],
        *,
        refresh: Collection[str],
    ) -> Mapping[K, T | KafkaError]:
        """Answers by key. Only what failed for the moment is asked again, after fresh metadata.

        When the time is up, the last answers stand, unless some keys were never answered.
        """
        answers: dict[K, T | KafkaError] = {}
        if not keys:
            return answers

        async def ask_about_those_left() -> None:
            left = [key for key in keys if key not in answers or _find_passing(answers[key])]
            answers.update(await send_request(left))
            for answer in answers.values():
                passing = _find_passing(answer)
                if passing is not None:
                    raise passing

        try:
            await self.retry(ask_about_those_left, refresh=refresh)
        except KafkaError:
            if not answers.keys() >= set(keys):
                raise
        return answers


def _may_retry(wait_for_cluster: bool, error: MoldauError, attempt: int, waited: float) -> bool:
    return may_retry(error, attempt, wait_for_cluster=wait_for_cluster)


def _find_passing(answer: object) -> KafkaError | None:
    """The answer, if it is a failure that may pass."""
    return answer if isinstance(answer, KafkaError) and is_retriable(answer) else None


# Metadata


_ALL_TOPICS = None
_METADATA_DROPPABLE = frozenset(
    {
        "allow_auto_topic_creation",
        "include_topic_authorized_operations",
        "include_cluster_authorized_operations",
        "topic_id",
    }
)


class MetadataCache:
    """Owned by one client. `current` is what is known; `refresh` asks again."""

    def __init__(self, pool: ConnectionPool) -> None:
        self.current = ClusterMetadata()
        self._pool = pool

    async def refresh(
        self, topics: Collection[str] | None = _ALL_TOPICS, *, may_create: bool = False
    ) -> ClusterMetadata:
        """Ask about these topics, or about all. `may_create` lets the broker make missing ones."""
        connection = await self._pool.to_any()
        answer = await _request_metadata(connection, topics, may_create)
        self._pool.learn_brokers({row.id: row.address for row in answer.brokers.values()})
        self.current = answer if topics is None else answer.with_older(self.current)
        return self.current


async def _request_metadata(
    connection: BrokerConnection, topics: Collection[str] | None, may_create: bool
) -> ClusterMetadata:
    values = {
        "topics": None if topics is None else [{"name": t, "topic_id": None} for t in topics],
        "allow_auto_topic_creation": may_create,
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    answer = await connection.call(METADATA, values, _METADATA_DROPPABLE)
    return _read_metadata(cast("MetadataResponse", answer))


def _read_metadata(answer: MetadataResponse) -> ClusterMetadata:
    code = getattr(answer, "error_code", ErrorCode.none)  # from version 13 on
    if code is not ErrorCode.none:
        raise error_for(code, None, "metadata")
    brokers: dict[int, Broker] = {
        row.node_id: Broker(id=row.node_id, address=Address(row.host, row.port), rack=row.rack)
        for row in answer.brokers
    }
    topics = [_read_topic(row) for row in answer.topics]
    return ClusterMetadata(
        cluster_id=getattr(answer, "cluster_id", None),  # from version 2 on
        controller_id=answer.controller_id,
        brokers=MappingProxyType(brokers),
        topics=MappingProxyType({topic.name: topic for topic in topics}),
    )


def _read_topic(row: MetadataResponseTopic) -> TopicMetadata:
    name = row.name or ""
    failed = row.error_code is not ErrorCode.none
    return TopicMetadata(
        name=name,
        topic_id=getattr(row, "topic_id", None),  # from version 10 on
        is_internal=row.is_internal,
        partitions=tuple(map(_read_partition, sorted(row.partitions, key=_index_of))),
        error=_topic_error(row.error_code, name) if failed else None,
    )


def _topic_error(code: ErrorCode, name: str) -> KafkaError:
    if code is ErrorCode.unknown_topic_or_partition:
        return UnknownTopicError(f"there is no topic {name!r}")
    is_denied = code is ErrorCode.topic_authorization_failed
    message = describe_missing_right("Describe", f"Topic:{name}") if is_denied else None
    return error_for(code, message, f"topic {name!r}")


def _index_of(row: MetadataResponsePartition) -> int:
    return row.partition_index


def _read_partition(row: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        index=row.partition_index,
        leader_id=row.leader_id,
        leader_epoch=getattr(row, "leader_epoch", NO_LEADER_EPOCH),  # from version 7 on
        replicas=tuple(row.replica_nodes),
        in_sync_replicas=tuple(row.isr_nodes),
        offline_replicas=tuple(getattr(row, "offline_replicas", ())),  # from version 5 on
    )


# From the options of a client to what its connections and attempts need


def connection_settings(options: ClientOptions) -> ConnectionSettings:
    return ConnectionSettings(
        security=client_security(options),
        client_id=options.client_id,
        client_version=__version__,
        connect_seconds=options.socket_connection_setup_timeout_ms / 1000,
        request_seconds=options.request_timeout_ms / 1000,
    )


def client_security(options: ClientOptions) -> ClientSecurity | None:
    """None for a client in the clear, which does not pay for importing the rest."""
    if options.security_protocol == "PLAINTEXT":
        return None
    from moldau.net.secured import ClientSecurity
    from moldau.security.client_security import secure_client

    found = secure_client(options)
    return None if found is None else ClientSecurity(*found, client_id=options.client_id)


def client_settings(options: ClientOptions, *, timeout_ms: int) -> ClientSettings:
    """The time-out is that of one operation with all its attempts."""
    return ClientSettings(
        connection=connection_settings(options),
        timeout_seconds=timeout_ms / 1000,
        backoff=Backoff(
            first_seconds=options.retry_backoff_ms / 1000,
            max_seconds=max(options.retry_backoff_max_ms, options.retry_backoff_ms) / 1000,
        ),
    )


# Coordinators of groups and transactional ids: found, and followed when they move, load, or are not
# there for a while


GROUP_KEY = 0
TRANSACTION_KEY = 1
"""What a coordinator is asked for by; share groups have a third one."""

_NAMES = {GROUP_KEY: "group", TRANSACTION_KEY: "transactional id"}
_FIRST_WITH_SEVERAL_KEYS = 4
_COORDINATOR_DROPPABLE = frozenset({"key_type"})


async def find_coordinator(client: ClusterClient, group_id: str) -> Broker:
    """The broker that looks after a group; asks again while there is none."""

    async def find() -> Broker:
        return await find_coordinator_once(client, group_id)

    return await client.retry(find, refresh=())


AskAboutOne = Callable[[BrokerConnection], Awaitable[T]]
AskAboutMany = Callable[[Broker, BrokerConnection, Sequence[str]], Awaitable[Mapping[str, T]]]


async def ask_coordinator(client: ClusterClient, group_id: str, send_request: AskAboutOne[T]) -> T:
    """Ask a group's coordinator, wherever it is; `send_request` raises at the wrong broker."""

    async def find_and_ask() -> T:
        broker = await find_coordinator_once(client, group_id)
        return await send_request(await client.connect_to_broker(broker.id))

    return await client.retry(find_and_ask, refresh=())


async def ask_coordinators(
    client: ClusterClient,
    group_ids: Collection[str],
    send_request: AskAboutMany[T | KafkaError],
    key_type: int = GROUP_KEY,
) -> Mapping[str, T | KafkaError]:
    """Ask each coordinator about its groups, or transactional ids, until each of them has a lasting
    answer."""

    async def ask_about(left: Sequence[str]) -> Mapping[str, T | KafkaError]:
        found = await _find_coordinators(client, left, key_type)
        groups: defaultdict[Broker, list[str]] = defaultdict(list)
        answers: dict[str, T | KafkaError] = {}
        for group_id, broker in found.items():
            if isinstance(broker, KafkaError):
                answers[group_id] = broker
            else:
                groups[broker].append(group_id)
        work = [
            _connect_and_ask(client, broker, ids, send_request) for broker, ids in groups.items()
        ]
        for some in await asyncio.gather(*work):
            answers.update(some)
        return answers

    return await client.retry_each(group_ids, ask_about, refresh=())


async def _connect_and_ask(
    client: ClusterClient,
    broker: Broker,
    group_ids: Sequence[str],
    send_request: AskAboutMany[T | KafkaError],
) -> Mapping[str, T | KafkaError]:
    return await send_request(broker, await client.connect_to_broker(broker.id), group_ids)


async def find_coordinator_once(
    client: ClusterClient, key: str, key_type: int = GROUP_KEY
) -> Broker:
    """The broker that looks after a group or a transactional id; raises if there is none now."""
    found = (await _find_coordinators(client, (key,), key_type))[key]
    if isinstance(found, KafkaError):
        raise found
    return found


async def _find_coordinators(
    client: ClusterClient, keys: Sequence[str], key_type: int = GROUP_KEY
) -> Mapping[str, Broker | KafkaError]:
    connection = await client.pool.to_any()
    version = connection.choose_version(FIND_COORDINATOR)
    if version >= _FIRST_WITH_SEVERAL_KEYS:
        return await _find_at_once(connection, keys, key_type, version)
    work = [_find_one(connection, key, key_type, version) for key in keys]
    return dict(zip(keys, await asyncio.gather(*work), strict=True))


async def _find_at_once(
    connection: BrokerConnection, keys: Sequence[str], key_type: int, version: int
) -> Mapping[str, Broker | KafkaError]:
    values = {"key_type": key_type, "coordinator_keys": tuple(keys)}
    answer = await connection.call(FIND_COORDINATOR, values, version=version)
    rows = cast("FindCoordinatorResponse", answer).coordinators
    return {str(row.key): _read_coordinator(row.key, key_type, row) for row in rows}


async def _find_one(
    connection: BrokerConnection, key: str, key_type: int, version: int
) -> Broker | KafkaError:
    values = {"key_type": key_type, "key": key}
    answer = await connection.call(
        FIND_COORDINATOR, values, _COORDINATOR_DROPPABLE, version=version
    )
    return _read_coordinator(key, key_type, cast("SingleCoordinatorResponse", answer))


def _read_coordinator(
    key: str, key_type: int, row: Coordinator | SingleCoordinatorResponse
) -> Broker | KafkaError:
    if row.error_code is not ErrorCode.none:
        message = getattr(row, "error_message", None)  # from version 1 on
        return error_for(row.error_code, message, f"{_NAMES[key_type]} {key!r}")
    return Broker(id=row.node_id, address=Address(row.host, row.port))
