"""One connection for each broker, opened when it is first needed and again after it was lost.

Answers for addresses and connections; which broker to ask is the caller's decision. A shell, used
by the tasks of one loop; a lock for each address keeps two tasks from connecting twice.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence

from moldau.client.connections import BrokerConnection, ConnectionSettings, open_connection
from moldau.client.rules.addresses import Address
from moldau.clock import Clock
from moldau.errors import BrokerUnreachableError, ClusterUnreachableError
from moldau.net.port import Network


class ConnectionPool:
    """The connections of one client to one cluster."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        network: Network,
        clock: Clock,
        settings: ConnectionSettings,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._network = network
        self._clock = clock
        self._settings = settings
        self._brokers: Mapping[int, Address] = {}
        self._connections: dict[Address, BrokerConnection] = {}
        self._opening: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)

    def learn_brokers(self, brokers: Mapping[int, Address]) -> None:
        """Take over what metadata says of the cluster."""
        self._brokers = dict(brokers)

    async def to_broker(self, broker_id: int) -> BrokerConnection:
        """A connection to this broker; raises BrokerUnreachableError."""
        address = self._brokers.get(broker_id)
        if address is None:
            raise BrokerUnreachableError(f"broker {broker_id} is not in the cluster's metadata")
        return await self._to_address(address)

    async def to_any(self) -> BrokerConnection:
        """A connection to whichever broker answers: open ones, known ones, then bootstrap.

        Raises ClusterUnreachableError when none does.
        """
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        # Bootstrap last: after a move of the whole cluster only the addresses learned are right,
        # but when all of those are gone, the ones that a person gave are worth another try.
        candidates = dict.fromkeys((*self._brokers.values(), *self._bootstrap))
        failures: list[BrokerUnreachableError] = []
        for address in candidates:
            try:
                return await self._to_address(address)
            except BrokerUnreachableError as error:
                failures.append(error)
        raise _none_of(tuple(candidates), failures)

    def no_answer_within(self, seconds: float) -> ClusterUnreachableError:
        """What to raise when brokers can be connected to, perhaps, but say nothing."""
        tried = tuple(dict.fromkeys((*self._brokers.values(), *self._bootstrap)))
        return ClusterUnreachableError(
            f"no broker has answered within {seconds:g} seconds at {', '.join(map(str, tried))}"
        )

    async def close(self) -> None:
        """Close every connection; whoever waits for an answer hears of it."""
        connections, self._connections = self._connections, {}
        for connection in connections.values():
            await connection.close()

    async def _to_address(self, address: Address) -> BrokerConnection:
        found = self._connections.get(address)
        if found is not None and found.is_open:
            return found
        async with self._opening[address]:
            found = self._connections.get(address)
            if found is None or not found.is_open:
                found = await open_connection(self._network, self._clock, address, self._settings)
                self._connections[address] = found
            return found


def _none_of(
    tried: Sequence[Address], failures: Sequence[BrokerUnreachableError]
) -> ClusterUnreachableError:
    if len(failures) == 1:
        return ClusterUnreachableError(str(failures[0]))
    listed = ", ".join(map(str, tried))
    return ClusterUnreachableError(f"none of {listed} answers: {failures[0]}")
