"""The way to the coordinator of one group: found when it is needed, and again when it moves.

Consumers of both protocols and takers of share groups have one. A shell of one loop.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from typing import TYPE_CHECKING, cast
from uuid import UUID

from moldau.client.broker_errors import error_for
from moldau.client.cluster_client import ClusterClient
from moldau.client.connections import NOTHING_DROPPABLE, BrokerConnection, open_connection
from moldau.client.coordinators import find_coordinator
from moldau.client.rules.cluster_metadata import Broker
from moldau.client.rules.consumer_instructions import Failure
from moldau.client.rules.consumer_membership import HeartbeatAnswer
from moldau.client.rules.group_errors import Reaction, react_to
from moldau.errors import ErrorCode, UnsupportedByBrokerError
from moldau.net.port import Network
from moldau.wire.apis import Api

if TYPE_CHECKING:
    from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
    from kio.static.protocol import Payload

    from moldau.wire.shape import Values

_WORDS_OF_GROUPS = {
    ErrorCode.group_id_not_found: "there is none of consumers; an id belongs to one type of group, "
    "and a share group may have it",
    ErrorCode.inconsistent_group_protocol: "the group's protocol is not this member's: "
    "they have no assignor in common, or it is another type of group, such as a share group",
}
"""Where the answer has no message: members meet these codes where the id is another group's."""


class CoordinatorLink:
    """To the coordinator of one group, found when it is needed and again when it moves."""

    def __init__(
        self,
        client: ClusterClient,
        group_id: str,
        *,
        own_network: Network | None = None,
        longest_seconds: float = math.inf,
    ) -> None:
        """`own_network` makes a connection of its own, on which no answer may take longer."""
        self.group_id = group_id
        self._client = client
        self._own_network = own_network
        connection = client.settings.connection
        self._own_settings = replace(
            connection, request_seconds=min(connection.request_seconds, longest_seconds)
        )
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
                network, client.clock, broker.address, self._own_settings
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

    async def note_failure(self, error: Failure) -> Reaction:
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

    async def beat(self, api: Api, values: Values, unsupported: str) -> HeartbeatAnswer:
        """The good answer to a heartbeat of the newer protocols (KIP-848, KIP-932).

        Raises what a bad one says; `unsupported` is for a broker that knows no such heartbeat, or
        does not want to.
        """
        try:
            found = await self.call(api, values)
        except UnsupportedByBrokerError as error:
            raise UnsupportedByBrokerError(unsupported) from error
        # That of share groups has the same fields.
        answer = cast("ConsumerGroupHeartbeatResponse", found)
        if answer.error_code is ErrorCode.unsupported_version:
            raise UnsupportedByBrokerError(unsupported)
        self.require_success(answer.error_code, answer.error_message)
        from moldau.wire.shape import millis  # loaded by the answer itself

        assigned: dict[UUID, frozenset[int]] | None = None
        if answer.assignment is not None:
            assigned = {
                row.topic_id: frozenset(row.partitions)
                for row in answer.assignment.topic_partitions
                if row.topic_id is not None
            }
        return HeartbeatAnswer(answer.member_epoch, millis(answer.heartbeat_interval), assigned)

    def require_success(self, code: ErrorCode, message: str | None = None) -> None:
        if code is not ErrorCode.none:
            words = message or _WORDS_OF_GROUPS.get(code)
            raise error_for(code, words, f"group {self.group_id!r}")
