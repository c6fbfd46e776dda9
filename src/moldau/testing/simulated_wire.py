"""A lean client of the wire protocol for simulations: what it sends and hears is seen exactly.

One connection for each broker and one request at a time on it; a request that is not answered in
time ends the connection, and is not delivered later. It follows the leaders that brokers tell of,
and never goes back to an older epoch. Retrying is the business of those who use it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from moldau.clock import Clock
from moldau.errors import MalformedFrameError
from moldau.model import TopicPartition
from moldau.net.port import Chunk
from moldau.testing.memory_connection import MemoryChannel
from moldau.testing.memory_network import MemoryHost
from moldau.wire.headers import read_response_header, request_prefix
from moldau.wire.messages import encode_body, parse
from moldau.wire.shape import Values, fit
from moldau.wire.versions import request_class, response_class

if TYPE_CHECKING:
    from kio.schema.metadata.v9.response import MetadataResponse
    from kio.static.protocol import Payload

METADATA: Final = 3
METADATA_VERSION: Final = 9


class UnansweredError(Exception):
    """The broker cannot be reached, or did not answer in time, or closed the connection."""


class Leader(NamedTuple):
    """Who leads a partition, as far as a client knows."""

    broker_id: int
    epoch: int


class BrokerAddress(NamedTuple):
    host: str
    port: int


class Exchange(NamedTuple):
    """An answer: the frame, and where its body begins."""

    frame: memoryview
    position: int


class SimulatedWire:
    """The connections of one client."""

    def __init__(
        self,
        name: str,
        network: MemoryHost,
        clock: Clock,
        addresses: Mapping[int, BrokerAddress],
        *,
        timeout_seconds: float,
    ) -> None:
        self.clock = clock
        self.leaders: dict[TopicPartition, Leader] = {}
        self.controller_id = -1
        self._name = name
        self._network = network
        self._addresses = addresses
        self._timeout_seconds = timeout_seconds
        self._channels: dict[int, MemoryChannel] = {}
        self._correlation_id = 0
        self._turn = 0  # which broker is asked for metadata next

    @property
    def broker_ids(self) -> Sequence[int]:
        return sorted(self._addresses)

    async def call(self, broker_id: int, api_key: int, version: int, values: Values) -> Payload:
        """Ask with kio's classes."""
        body = encode_body(fit(request_class(api_key, version), values))
        exchange = await self.exchange(broker_id, api_key, version, (body,))
        try:
            return parse(response_class(api_key, version), exchange.frame, exchange.position)
        except MalformedFrameError as error:
            raise UnansweredError(str(error)) from error

    async def exchange(
        self, broker_id: int, api_key: int, version: int, body: Sequence[Chunk]
    ) -> Exchange:
        self._correlation_id += 1
        size = sum(len(cast("bytes", chunk)) for chunk in body)
        prefix = request_prefix(api_key, version, self._correlation_id, self._name, size)
        channel = await self._channel(broker_id)
        timer = self.clock.call_later(self._timeout_seconds, channel.abort)
        try:
            await channel.send((prefix, *body))
            frame = memoryview(await channel.receive())
            found, position = read_response_header(frame, api_key, version)
        except OSError as error:
            self._channels.pop(broker_id, None)
            raise UnansweredError(str(error)) from error
        except BaseException:
            self._channels.pop(broker_id, None)
            channel.abort()
            raise
        finally:
            timer.cancel()
        if found != self._correlation_id:
            raise UnansweredError(f"an answer to {found}, not to {self._correlation_id}")
        return Exchange(frame, position)

    async def exchange_all(
        self, broker_id: int, api_key: int, version: int, bodies: Sequence[Sequence[Chunk]]
    ) -> AsyncGenerator[tuple[int, Exchange], None]:
        """Send several requests at once; gives the number of each and its answer, in order."""
        first = self._correlation_id + 1
        self._correlation_id += len(bodies)
        channel = await self._channel(broker_id)
        timer = self.clock.call_later(self._timeout_seconds, channel.abort)
        is_done = False
        try:
            for number, body in enumerate(bodies):
                size = sum(len(cast("bytes", chunk)) for chunk in body)
                prefix = request_prefix(api_key, version, first + number, self._name, size)
                await channel.send((prefix, *body))
            for number in range(len(bodies)):
                frame = memoryview(await channel.receive())
                found, position = read_response_header(frame, api_key, version)
                if found != first + number:
                    raise UnansweredError(f"an answer to {found}, not to {first + number}")
                yield number, Exchange(frame, position)
            is_done = True
        except OSError as error:
            raise UnansweredError(str(error)) from error
        finally:
            timer.cancel()
            if not is_done:
                self._channels.pop(broker_id, None)
                channel.abort()

    async def _channel(self, broker_id: int) -> MemoryChannel:
        known = self._channels.get(broker_id)
        if known is not None:
            return known
        address = self._addresses[broker_id]
        try:
            channel = await self._network.connect(
                address.host, address.port, timeout=self._timeout_seconds
            )
        except OSError as error:
            raise UnansweredError(str(error)) from error
        self._channels[broker_id] = channel
        return channel

    async def refresh(self, topics: Sequence[str]) -> bool:
        """Ask the next broker who leads; False when it does not answer."""
        ids = self.broker_ids
        broker_id = ids[self._turn % len(ids)]
        self._turn += 1
        values = {
            "topics": [{"name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        try:
            answer = await self.call(broker_id, METADATA, METADATA_VERSION, values)
        except UnansweredError:
            return False
        self._learn(cast("MetadataResponse", answer))
        return True

    def _learn(self, metadata: MetadataResponse) -> None:
        self.controller_id = metadata.controller_id
        for topic in metadata.topics:
            for state in topic.partitions:
                partition = TopicPartition(topic.name, state.partition_index)
                known = self.leaders.get(partition)
                if known is None or state.leader_epoch >= known.epoch:
                    self.leaders[partition] = Leader(state.leader_id, state.leader_epoch)

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close()
        self._channels.clear()
