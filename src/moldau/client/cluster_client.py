"""A client's view of a whole cluster: asks any broker, the controller or a partition's leader.

Answers for finding the right broker and for trying again; the requests themselves are written by
the modules around it (admin, producer, consumer, range reader). A shell, used by the tasks of one
loop.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, TypeVar

from moldau.client.broker_errors import is_retriable
from moldau.client.connection_pool import ConnectionPool
from moldau.client.connections import BrokerConnection, ConnectionSettings
from moldau.client.metadata import MetadataCache
from moldau.client.rules.addresses import parse_bootstrap
from moldau.client.rules.cluster_metadata import TopicMetadata
from moldau.client.rules.retries import Backoff, may_retry
from moldau.clock import Clock, SystemClock, finish_within
from moldau.errors import ClientError, KafkaError, MoldauError
from moldau.model import TopicPartition
from moldau.net.port import Network
from moldau.net.sockets import SocketNetwork
from moldau.wire.apis import Api

if TYPE_CHECKING:
    from kio.static.protocol import Payload

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

        async def look() -> TopicMetadata:
            found = await self.metadata.refresh((topic,), may_create=may_create)
            return found.require_topic(topic)

        return await self.retry(look)

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
        ask: Callable[[Sequence[K]], Awaitable[Mapping[K, T | KafkaError]]],
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
            answers.update(await ask(left))
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
