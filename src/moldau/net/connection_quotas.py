"""The connections of all listeners of a broker: how many there may be, and how fast they come.

As Kafka's `ConnectionQuotas` (KIP-402, KIP-612): where there is no slot the listener does not
accept, and clients wait in the kernel's queue until another connection ends. The listener of the
brokers is protected where there are others: it has a slot while clients hold them all, and then a
connection of a client is closed for it. The listeners ask before they accept, and report when a
connection ends. Owned by the event loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from heapq import nsmallest
from itertools import chain
from typing import Final, NamedTuple, Protocol

from moldau.clock import Clock, Timer
from moldau.net.port import ConnectionLimits

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
        count = count_excess(self._of_broker())
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


class Usage(NamedTuple):
    """How many connections there are, and may be."""

    held: int
    most: int


def has_slot(of_listener: Usage, of_broker: Usage, *, is_protected: bool) -> bool:
    if of_listener.held >= of_listener.most:
        return False
    return is_protected or of_broker.held < of_broker.most


def count_excess(of_broker: Usage) -> int:
    """How many connections of clients have to be closed."""
    return max(0, of_broker.held - of_broker.most)


class CreationPace(NamedTuple):
    """Connections at a bounded rate: in any second at most twice the rate, in the long run the
    rate. `due` is when the next one would come if all came evenly."""

    due: float = float("-inf")

    def wait(self, rate: int, now: float) -> float:
        """Seconds until another may be accepted."""
        if rate <= 0:
            return float("inf")
        return max(0.0, self.due - now - (1.0 - 1.0 / rate))

    def accepted(self, rate: int, now: float) -> CreationPace:
        return self if rate <= 0 else CreationPace(max(self.due, now) + 1.0 / rate)


MAX_PENDING_CONNECTIONS: Final = 1_000
PENDING_SECONDS: Final = 20.0


class Closable(Protocol):
    @property
    def peer_host(self) -> str: ...

    def close(self, reason: str) -> None: ...


class PendingConnections:
    """Connections whose handshake or login is under way.

    Each gets a limited time, and their number is limited: when there are too many, the one that has
    taken longest is closed. So a client that floods a port loses its own attempts first, as other
    clients are done within milliseconds. Call `add` when a connection comes, and `discard` when it
    is authenticated or gone.
    """

    def __init__(
        self,
        clock: Clock,
        what: str,
        *,
        on_ended: Callable[[str, str], None] | None = None,
        most: int = MAX_PENDING_CONNECTIONS,
        seconds: float = PENDING_SECONDS,
    ) -> None:
        self._clock = clock
        self._what = what
        self._on_ended = on_ended  # hears of each that was ended: its host, and why
        self._most = most
        self._seconds = seconds
        self._since: dict[Closable, float] = {}  # monotonic seconds; in the order of coming
        self._timer: Timer | None = None

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: Closable) -> None:
        self._since[connection] = self._clock.monotonic()
        if len(self._since) > self._most:
            self._end(next(iter(self._since)), f"too many {self._what}s are under way")
        if self._timer is None:
            self._timer = self._clock.call_later(self._seconds, self._on_time)

    def discard(self, connection: Closable) -> None:
        self._since.pop(connection, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        late = [one for one, since in self._since.items() if now - since >= self._seconds]
        for connection in late:
            self._end(connection, f"the {self._what} took longer than {self._seconds:g} seconds")
        if self._since:
            first = next(iter(self._since.values()))
            pause = max(0.1, first + self._seconds - now)
            self._timer = self._clock.call_later(pause, self._on_time)

    def _end(self, connection: Closable, reason: str) -> None:
        self._since.pop(connection, None)
        connection.close(reason)
        if self._on_ended is not None:
            self._on_ended(connection.peer_host, reason)
