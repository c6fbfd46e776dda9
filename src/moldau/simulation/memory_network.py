"""A network inside one process, whose links can be cut, delayed and dropped.

Implements `moldau.net.port.Network`, for brokers and clients of one event loop. Each host has a
name, and sees the network through its own view:

    network = MemoryNetwork(clock, random=Random(seed))
    broker = Broker(network=network.host("broker-1"), ...)
    client = Client(network=network.host("client"), ...)
    network.cut("client", "broker-1")          # nothing arrives any more; nobody is told
    network.heal("client", "broker-1")         # what was sent meanwhile arrives now
    network.isolate("broker-1")
    network.set_delay("client", "broker-1", 0.050, jitter_seconds=0.020)
    network.drop_connections("broker-1")       # both ends learn of it
    network.crash("broker-1")                  # the other ends learn of it

A cut behaves as in TCP: connections stay open and data is kept for later, connecting runs into its
time-out. A name that listens nowhere refuses. `localhost` and `127.0.0.1` are the host itself.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections import deque
from collections.abc import Callable, Collection
from random import Random
from typing import Final, NamedTuple

from moldau.clock import Clock, Timer
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import Accept, ClientTls, ServerTls
from moldau.simulation.memory_connection import MemoryChannel, MemoryConnection, Pipe, Signal

DEFAULT_HOST: Final = "localhost"
_OWN_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_ALL_ADDRESSES: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 nothing is bound here
_FIRST_FREE_PORT: Final = 32768
_MOST_SECONDS_BETWEEN_SWEEPS: Final = 10.0


class _Delay(NamedTuple):
    seconds: float
    jitter_seconds: float


class _Wire:
    """One connection: its pipes and ends, and the names of its hosts."""

    def __init__(self, network: MemoryNetwork, client: MemoryHost, server: MemoryHost) -> None:
        self.client = client.name
        self.server = server.name
        self.to_server = network.make_pipe(client, server)
        self.to_client = network.make_pipe(server, client)
        self.channel = MemoryChannel(inbound=self.to_client, outbound=self.to_server)
        self.connection: MemoryConnection | None = None  # None until it is accepted
        for pipe in self.pipes:
            pipe.on_drop = self.break_down

    @property
    def pipes(self) -> tuple[Pipe, Pipe]:
        return self.to_server, self.to_client

    @property
    def is_over(self) -> bool:
        return self.to_server.is_shut and self.to_client.is_shut

    def touches(self, *names: str) -> bool:
        return all(name in (self.client, self.server) for name in names)

    def break_down(self) -> None:
        """Both ends learn that the connection is lost."""
        self.channel.break_down()
        if self.connection is None:
            self.to_server.shut()
        else:
            self.connection.close("the connection broke down")

    def lose_host(self, name: str) -> None:
        if self.client == name:
            self.channel.die()
        if self.server == name and self.connection is not None:
            self.connection.die()


class MemoryServer:
    """A listening port of a host. Implements `net.port.Server`."""

    def __init__(
        self,
        owner: MemoryHost,
        host: str,
        port: int,
        accept: Accept,
        *,
        clock: Clock,
        listener_name: str,
        quotas: ConnectionQuotas,
    ) -> None:
        self.host = host
        self.port = port
        self._owner = owner
        self._accept = accept
        self._clock = clock
        self.listener_name = listener_name
        self._quotas = quotas
        self._limits = quotas.limits
        self._connections: dict[MemoryConnection, None] = {}  # open ones, in order of arrival
        self._backlog: deque[_Wire] = deque()  # those that wait for a slot
        self._accepted = 0
        self._sweep: Timer | None = None
        self._look: Timer | None = None  # whether there is a slot now
        quotas.join(self)
        self._schedule_sweep()

    @property
    def connections(self) -> Collection[MemoryConnection]:
        return self._connections

    def admit(self, wire: _Wire) -> None:
        """A client has reached this port. It may have to wait there, as in a kernel's queue."""
        wire.to_client.signal(Signal.OPEN)
        self._backlog.append(wire)
        self.accept_again()

    def accept_again(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        while self._backlog:
            wait = self._quotas.seconds_until_slot(self.listener_name)
            if wait:
                self._look = self._clock.call_later(wait, self.accept_again)
                return
            self._accept_wire(self._backlog.popleft())

    def _accept_wire(self, wire: _Wire) -> None:
        self._quotas.note_accepted(self.listener_name)
        if self._quotas.find_refusal(wire.client) is not None:
            wire.to_client.signal(Signal.END)
            wire.to_server.shut()
            return
        self._accepted += 1
        connection = MemoryConnection(
            identity=f"{self.host}:{self.port}-{wire.client}-{self._accepted}",
            peer_host=wire.client,
            listener_name=self.listener_name,
            limits=self._limits,
            inbound=wire.to_server,
            outbound=wire.to_client,
            on_gone=self._forget_connection,
        )
        connection.idle_since = self._clock.monotonic()
        wire.connection = connection
        self._connections[connection] = None
        self._quotas.add(self.listener_name, wire.client)
        connection.start_receiving(self._accept(connection))

    def _forget_connection(self, connection: MemoryConnection) -> None:
        del self._connections[connection]
        self._quotas.remove(self.listener_name, connection.peer_host)

    def _schedule_sweep(self) -> None:
        idle_s = self._limits.connections_max_idle_ms / 1000
        pause = min(idle_s / 2, _MOST_SECONDS_BETWEEN_SWEEPS) if idle_s > 0 else None
        self._sweep = self._clock.call_later(pause or _MOST_SECONDS_BETWEEN_SWEEPS, self._on_sweep)

    def _on_sweep(self) -> None:
        now = self._clock.monotonic()
        idle_s = self._limits.connections_max_idle_ms / 1000
        for connection in tuple(self._connections):
            if connection.frames != connection.seen_frames or connection.is_busy:
                connection.seen_frames = connection.frames
                connection.idle_since = now
            elif 0 < idle_s <= now - connection.idle_since:
                connection.close("idle for connections.max.idle.ms")
        self._quotas.close_excess()
        self._schedule_sweep()

    def stop_accepting(self) -> None:
        self._owner.forget_server(self)
        self._quotas.leave(self)
        self._backlog.clear()
        for timer in (self._sweep, self._look):
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        self.stop_accepting()
        for connection in tuple(self._connections):
            connection.close("the broker stops")


class MemoryHost:
    """The network as one host sees it. Implements `net.port.Network`."""

    def __init__(self, network: MemoryNetwork, name: str, clock: Clock) -> None:
        self.name = name
        self.clock = clock
        self._network = network
        self._servers: dict[int, MemoryServer] = {}  # by port; those that accept
        self._free_ports = itertools.count(_FIRST_FREE_PORT)

    async def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        listener_name: str,
        quotas: ConnectionQuotas,
        tls: ServerTls | None = None,
    ) -> MemoryServer:
        """Port 0 finds a free one; one in use raises EADDRINUSE. Nothing is encrypted: nobody else
        is in this memory."""
        if not port:
            port = next(free for free in self._free_ports if free not in self._servers)
        if port in self._servers:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        server = self._servers[port] = MemoryServer(
            self,
            self.name if host in _ALL_ADDRESSES else host,
            port,
            accept,
            clock=self.clock,
            listener_name=listener_name,
            quotas=quotas,
        )
        return server

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout: float,  # noqa: ASYNC109 the port says it
        tls: ClientTls | None = None,
    ) -> MemoryChannel:
        """Raises `ConnectionRefusedError`, or `TimeoutError` when the way is cut."""
        return await self._network.connect_from(self, host, port, timeout_s=timeout)

    def on_signal(self, signal: Signal, wire: _Wire, port: int) -> None:
        """Something arrived for a port of this host that belongs to no connection yet."""
        if signal is not Signal.OPEN:
            return
        server = self._servers.get(port)
        if server is None:
            wire.to_client.signal(Signal.REFUSE)
            wire.to_server.shut()
        else:
            server.admit(wire)

    def forget_server(self, server: MemoryServer) -> None:
        if self._servers.get(server.port) is server:
            del self._servers[server.port]

    def crash(self) -> None:
        for server in tuple(self._servers.values()):
            server.stop_accepting()


class MemoryNetwork:
    """Hosts and the links between them. Used without hosts, it is one machine's loopback."""

    def __init__(
        self,
        clock: Clock,
        *,
        random: Random | None = None,
        drop_chance: float = 0.0,
        window_bytes: int = 256 << 10,
    ) -> None:
        """`random` decides jitter and, with `drop_chance` for each piece of data, drops.

        `window_bytes` is how much may be on its way or unread, in each direction.
        """
        self.drop_chance = drop_chance
        self._clock = clock
        self._random = random or Random(0)  # noqa: S311 not a secret
        self._window_bytes = window_bytes
        self._hosts: dict[str, MemoryHost] = {}
        self._wires: dict[_Wire, None] = {}  # open ones, in the order in which they were made
        self._cut: set[tuple[str, str]] = set()  # from, to
        self._isolated: set[str] = set()
        self._delays: dict[tuple[str, str], _Delay] = {}  # from, to
        self._when_healed: list[Callable[[], None]] = []

    def host(self, name: str, clock: Clock | None = None) -> MemoryHost:
        """The view of this host; the same object each time.

        A clock given at the first call times what arrives there: with a `PausableClock` the host
        hears nothing while it is paused.
        """
        found = self._hosts.get(name)
        if found is None:
            found = self._hosts[name] = MemoryHost(self, name, clock or self._clock)
        return found

    async def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        listener_name: str,
        quotas: ConnectionQuotas,
        tls: ServerTls | None = None,
    ) -> MemoryServer:
        return await self.host(DEFAULT_HOST).listen(
            host, port, accept, listener_name=listener_name, quotas=quotas
        )

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout: float,  # noqa: ASYNC109 the port says it
        tls: ClientTls | None = None,
    ) -> MemoryChannel:
        return await self.host(DEFAULT_HOST).connect(host, port, timeout=timeout)

    @property
    def open_connections(self) -> int:
        """Those that at least one end has not closed yet."""
        return len(self._wires)

    # Faults

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Let nothing through between two hosts, or only nothing from `source` to `target`."""
        self._cut.add((source, target))
        if not one_way:
            self._cut.add((target, source))

    def heal(self, source: str, target: str) -> None:
        """Undo `cut`, both ways. What was sent meanwhile arrives."""
        self._cut -= {(source, target), (target, source)}
        self._release()

    def isolate(self, name: str) -> None:
        """Cut a host off from all others, also from those that come later."""
        self._isolated.add(name)

    def rejoin(self, name: str) -> None:
        """Undo `isolate`; links that were cut by `cut` stay so."""
        self._isolated.discard(name)
        self._release()

    def heal_all(self) -> None:
        self._cut.clear()
        self._isolated.clear()
        self._release()

    def _release(self) -> None:
        for wire in tuple(self._wires):
            for pipe in wire.pipes:
                pipe.release()
        for callback in self._when_healed:
            callback()

    def when_healed(self, callback: Callable[[], None]) -> None:
        """For what else travels over the links: they may be open again."""
        self._when_healed.append(callback)

    def set_delay(
        self,
        source: str,
        target: str,
        seconds: float,
        *,
        jitter_seconds: float = 0.0,
        one_way: bool = False,
    ) -> None:
        """Jitter is added at random; it reorders connections, not their content."""
        self._delays[source, target] = delay = _Delay(seconds, jitter_seconds)
        if not one_way:
            self._delays[target, source] = delay

    def drop_connections(self, *names: str) -> None:
        """Break the connections of a host, or those between two hosts, or all."""
        for wire in tuple(self._wires):
            if wire.touches(*names):
                wire.break_down()

    def crash(self, name: str) -> None:
        """The process on this host ends: its ports are free and its peers see their ends close.

        Its own ends are told nothing, as nothing runs there any more. For a machine that loses
        power, `isolate` it first: then its peers see silence.
        """
        self.host(name).crash()
        for wire in tuple(self._wires):
            wire.lose_host(name)

    # For its hosts and pipes

    def is_cut(self, source: str, target: str) -> bool:
        if source == target or not (self._cut or self._isolated):
            return False
        return (source, target) in self._cut or bool(self._isolated & {source, target})

    def draw_delay(self, source: str, target: str) -> float:
        delay = self._delays.get((source, target))
        if delay is None:
            return 0.0
        seconds, jitter_seconds = delay
        return seconds + jitter_seconds * self._random.random() if jitter_seconds else seconds

    def draws_a_drop(self) -> bool:
        return bool(self.drop_chance) and self._random.random() < self.drop_chance

    def make_pipe(self, source: MemoryHost, target: MemoryHost) -> Pipe:
        return Pipe(
            self,
            source.name,
            target.name,
            reader_clock=target.clock,
            writer_clock=source.clock,
            window_bytes=self._window_bytes,
        )

    async def connect_from(
        self, client: MemoryHost, host: str, port: int, *, timeout_s: float
    ) -> MemoryChannel:
        server = client if host in _OWN_NAMES else self._hosts.get(host)
        if server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"there is no host {host}")
        wire = _Wire(self, client, server)
        self._wires[wire] = None
        wire.to_server.on_signal = lambda signal: server.on_signal(signal, wire, port)
        for pipe in wire.pipes:
            pipe.on_shut = lambda: self._maybe_forget(wire)
        await wire.channel.open(client.clock, timeout_s)
        return wire.channel

    def _maybe_forget(self, wire: _Wire) -> None:
        if wire.is_over:
            self._wires.pop(wire, None)
