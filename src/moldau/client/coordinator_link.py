"""The way to the coordinator of one group, found when it is needed and again when it moves.

Membership has a connection of its own: a JoinGroup request is answered when the whole group has
come, and nothing else should queue behind it. Offsets go over the client's common connection, so
that they can be committed while a join is under way. A shell, used by the tasks of one loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import NOTHING_DROPPABLE, BrokerConnection, open_connection
from moldau.client.coordinators import find_coordinator
from moldau.client.rules.cluster_metadata import Broker
from moldau.client.rules.group_errors import Reaction, react_to
from moldau.errors import ClientError, KafkaError
from moldau.net.port import Network
from moldau.wire.apis import Api
from moldau.wire.shape import Values

if TYPE_CHECKING:
    from kio.static.protocol import Payload


class CoordinatorLink:
    """To the coordinator of one group, wherever it is."""

    def __init__(
        self, client: ClusterClient, group_id: str, *, own_network: Network | None = None
    ) -> None:
        """`own_network` makes a connection of its own."""
        self.group_id = group_id
        self._client = client
        self._own_network = own_network
        self._coordinator: Broker | None = None
        self._own_connection: BrokerConnection | None = None
        self._connecting = asyncio.Lock()

    async def connect(self) -> BrokerConnection:
        """An open connection; raises when the coordinator cannot be found or reached."""
        async with self._connecting:
            if self._coordinator is None:
                self._coordinator = await find_coordinator(self._client, self.group_id)
            if self._own_network is None:
                return await self._client.connect_to_broker(self._coordinator.id)
            return await self._connect_apart(self._own_network, self._coordinator)

    async def _connect_apart(self, network: Network, broker: Broker) -> BrokerConnection:
        connection = self._own_connection
        if connection is None or not connection.is_open:
            client = self._client
            connection = await open_connection(
                network, client.clock, broker.address, client.settings.connection
            )
            self._own_connection = connection
        return connection

    async def call(
        self,
        api: Api,
        values: Values,
        droppable: frozenset[str] = NOTHING_DROPPABLE,
        *,
        extra_seconds: float = 0.0,
    ) -> Payload:
        connection = await self.connect()
        return await connection.call(api, values, droppable, extra_seconds=extra_seconds)

    async def note_failure(self, error: KafkaError | ClientError) -> Reaction:
        """What to do about an error; a coordinator that is none any more is not asked again."""
        reaction = react_to(error)
        if reaction is Reaction.REDISCOVER:
            async with self._connecting:
                await self.close()
        return reaction

    async def close(self) -> None:
        """Forget the coordinator, and end the connection if it is the link's own."""
        self._coordinator = None
        connection, self._own_connection = self._own_connection, None
        if connection is not None:
            await connection.close()
