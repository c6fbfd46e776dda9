"""The connections of all listeners of a broker, counted, and who has to wait or to go.

The listeners ask before they accept, and tell when a connection ends. A shell around
`rules.connection_slots`, owned by the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from heapq import nsmallest
from itertools import chain
from typing import Final, Protocol

from moldau.clock import Clock
from moldau.net.port import ConnectionLimits
from moldau.net.rules.connection_slots import CreationPace, Usage, excess, has_slot

MOST_SECONDS_BETWEEN_LOOKS: Final = 1.0
"""A limit may have been raised."""

_NOT_USED_FOR_LONGEST: Final = "it was not used for longest, and max.connections is reached"


class CountedConnection(Protocol):
    frames: int
    seen_frames: int
    idle_since: float

    @property
    def is_busy(self) -> bool: ...

    def close(self, reason: str) -> None: ...


class Acceptor(Protocol):
    """A listener, as it is seen here."""

    @property
    def listener_name(self) -> str: ...

    @property
    def connections(self) -> Collection[CountedConnection]:
        """Open ones only."""
        ...

    def accept_again(self) -> None:
        """There may be a slot; does nothing where it accepts already."""
        ...


class ConnectionQuotas:
    """One for the listeners of a broker."""

    def __init__(self, limits: ConnectionLimits, clock: Clock) -> None:
        self.limits = limits
        self._clock = clock
        self._acceptors: list[Acceptor] = []
        self._by_listener: Counter[str] = Counter()
        self._by_host: Counter[str] = Counter()  # without those that hold none
        self._pace = CreationPace()
        self._pace_by_listener: dict[str, CreationPace] = {}

    def join(self, acceptor: Acceptor) -> None:
        self._acceptors.append(acceptor)

    def leave(self, acceptor: Acceptor) -> None:
        if acceptor in self._acceptors:
            self._acceptors.remove(acceptor)

    def seconds_until_slot(self, listener_name: str) -> float:
        """How long the listener has to wait before it accepts, as far as that is known: a
        connection may end earlier, and `accept_again` tells it. 0 when it may accept."""
        limits = self.limits
        is_protected = limits.is_protected(listener_name)
        of_listener = Usage(
            self._by_listener[listener_name], limits.max_connections_on(listener_name)
        )
        if not has_slot(of_listener, self._of_broker(), is_protected=is_protected):
            return MOST_SECONDS_BETWEEN_LOOKS
        now = self._clock.monotonic()
        own = self._pace_by_listener.get(listener_name, CreationPace())
        wait = own.wait(limits.max_connection_creation_rate_on(listener_name), now)
        if not is_protected:
            wait = max(wait, self._pace.wait(limits.max_connection_creation_rate, now))
        return min(wait, MOST_SECONDS_BETWEEN_LOOKS)

    def note_accepted(self, listener_name: str) -> None:
        """It counts against the rates, whatever becomes of it."""
        limits, now = self.limits, self._clock.monotonic()
        own = self._pace_by_listener.get(listener_name, CreationPace())
        rate = limits.max_connection_creation_rate_on(listener_name)
        self._pace_by_listener[listener_name] = own.accepted(rate, now)
        if not limits.is_protected(listener_name):
            self._pace = self._pace.accepted(limits.max_connection_creation_rate, now)

    def find_refusal(self, host: str) -> str | None:
        """Why no further connection from there is served."""
        most = self.limits.max_connections_for(host)
        return f"max.connections.per.ip={most}" if self._by_host[host] >= most else None

    def add(self, listener_name: str, host: str) -> None:
        self._by_listener[listener_name] += 1
        self._by_host[host] += 1
        self.close_excess()

    def remove(self, listener_name: str, host: str) -> None:
        self._by_listener[listener_name] -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        for acceptor in tuple(self._acceptors):
            acceptor.accept_again()

    def close_excess(self) -> None:
        """Of the listeners that are not protected, those that were not used for longest. There are
        too many when brokers have come, or the limit was lowered."""
        count = excess(self._of_broker())
        if not count:
            return
        of_clients = chain.from_iterable(
            acceptor.connections
            for acceptor in self._acceptors
            if not self.limits.is_protected(acceptor.listener_name)
        )
        for connection in nsmallest(count, of_clients, key=_idleness):
            connection.close(_NOT_USED_FOR_LONGEST)

    def _of_broker(self) -> Usage:
        return Usage(self._by_listener.total(), self.limits.max_connections)


def _idleness(connection: CountedConnection) -> tuple[bool, float]:
    """The least one is to be closed first: one that has nothing under way, and has asked for
    nothing for longest. As exact as the sweep that looks for idle ones, ten seconds."""
    is_used = connection.is_busy or connection.frames != connection.seen_frames
    return is_used, connection.idle_since
