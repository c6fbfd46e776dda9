"""Ports of a broker that can be held: nothing goes in or out while it is paused or cut off.

For brokers with real sockets in one process. `Links` knows who is paused and which pairs are cut;
the wrappers ask it before they let something through. As with TCP nothing is lost: what was held
goes on when the way is open again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from moldau.clock import Clock, Timer
from moldau.coordination.embedded import EmbeddedSession, EmbeddedStore
from moldau.coordination.port import Coordination, Node, SessionExpiredError, Watch
from moldau.coordination.tree import TreeOperation, TreeOutcome
from moldau.net.connection_quotas import ConnectionQuotas
from moldau.net.port import (
    Accept,
    Channel,
    Chunk,
    ClientTls,
    Connection,
    FrameReceiver,
    Network,
    Server,
    ServerTls,
)
from moldau.simulation.manual_clock import SkewedClock


class Links:
    """Who is held from whom. Owned by one loop."""

    def __init__(self) -> None:
        self._paused: set[int] = set()
        self._cut: set[frozenset[int]] = set()
        self._change: asyncio.Future[None] | None = None  # done at the next change
        self._held: dict[int, list[Callable[[], None]]] = {}  # by broker, in order

    def is_paused(self, broker_id: int) -> bool:
        return broker_id in self._paused

    def is_blocked(self, one: int, other: int | None) -> bool:
        if one in self._paused or other in self._paused:
            return True
        return other is not None and frozenset((one, other)) in self._cut

    async def wait_until_open(self, one: int, other: int | None = None) -> None:
        while self.is_blocked(one, other):
            if self._change is None:
                self._change = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._change)

    def call_unless_paused(self, broker_id: int, callback: Callable[[], None]) -> None:
        """Now, or when the broker goes on."""
        if broker_id in self._paused:
            self._held.setdefault(broker_id, []).append(callback)
        else:
            callback()

    def pause(self, broker_id: int) -> None:
        self._paused.add(broker_id)

    def resume(self, broker_id: int) -> None:
        self._paused.discard(broker_id)
        self._notify()
        for callback in self._held.pop(broker_id, ()):
            callback()

    def forget_broker(self, broker_id: int) -> None:
        """It was killed: nothing that was held goes on."""
        self._held.pop(broker_id, None)
        self._paused.discard(broker_id)
        self._notify()

    def cut(self, one: int, other: int) -> None:
        self._cut.add(frozenset((one, other)))

    def heal(self) -> None:
        self._cut.clear()
        self._notify()

    def _notify(self) -> None:
        change, self._change = self._change, None
        if change is not None:
            change.set_result(None)


class HeldClock(SkewedClock):
    """A clock whose timers wait while its broker is paused, and never fire once it was killed."""

    def __init__(self, base: Clock, broker_id: int, links: Links) -> None:
        super().__init__(base)
        self._broker_id = broker_id
        self._links = links
        self._is_killed = False

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        await self._links.wait_until_open(self._broker_id)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = _HeldCall(callback)
        timer.armed = super().call_later(
            seconds,
            lambda: self._links.call_unless_paused(self._broker_id, lambda: self._fire(timer)),
        )
        return timer

    def _fire(self, timer: _HeldCall) -> None:
        if not self._is_killed:
            timer.fire()

    def kill(self) -> None:
        self._is_killed = True


class _HeldCall:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.armed: Timer | None = None
        self._callback: Callable[[], None] | None = callback

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def cancel(self) -> None:
        self._callback = None
        if self.armed is not None:
            self.armed.cancel()


Intercept = Callable[[Connection, memoryview], bool]
"""Sees each request before the broker does; True when it has dealt with it."""


class HeldNetwork:
    """Real sockets, through `Links`. Peers are known by their ports."""

    def __init__(
        self,
        inner: Network,
        broker_id: int,
        links: Links,
        brokers_by_port: dict[int, int],
        intercept: Intercept,
    ) -> None:
        self._inner = inner
        self._broker_id = broker_id
        self._links = links
        self._brokers_by_port = brokers_by_port
        self._intercept = intercept
        self._open: dict[Connection, None] = {}
        self._servers: list[Server] = []

    async def listen(
        self,
        host: str,
        port: int,
        accept: Accept,
        *,
        listener_name: str,
        quotas: ConnectionQuotas,
        tls: ServerTls | None = None,
    ) -> Server:
        def held(connection: Connection) -> FrameReceiver:
            self._open[connection] = None
            return _HeldReceiver(self, connection, accept(connection))

        server = await self._inner.listen(
            host, port, held, listener_name=listener_name, quotas=quotas, tls=tls
        )
        self._brokers_by_port[server.port] = self._broker_id
        self._servers.append(server)
        return server

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout: float,  # noqa: ASYNC109 the port says it
        tls: ClientTls | None = None,
    ) -> Channel:
        other = self._brokers_by_port.get(port)
        async with asyncio.timeout(timeout):
            await self._links.wait_until_open(self._broker_id, other)
        channel = await self._inner.connect(host, port, timeout=timeout, tls=tls)
        return _HeldChannel(channel, self._links, self._broker_id, other)

    def handle_frame(
        self, connection: Connection, frame: memoryview, receiver: FrameReceiver
    ) -> None:
        def hand_over() -> None:
            if connection in self._open and not self._intercept(connection, frame):
                receiver.on_frame(frame)

        self._links.call_unless_paused(self._broker_id, hand_over)

    def forget_connection(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def kill(self) -> None:
        for server in self._servers:
            server.stop_accepting()
        for connection in tuple(self._open):
            connection.close("the broker was killed")


class _HeldReceiver:
    def __init__(
        self, network: HeldNetwork, connection: Connection, receiver: FrameReceiver
    ) -> None:
        self._network = network
        self._connection = connection
        self._receiver = receiver

    def on_frame(self, frame: memoryview) -> None:
        self._network.handle_frame(self._connection, frame, self._receiver)

    def on_client_gone(self) -> None:
        self._receiver.on_client_gone()

    def on_closed(self) -> None:
        self._network.forget_connection(self._connection)
        self._receiver.on_closed()


class _HeldChannel:
    def __init__(self, inner: Channel, links: Links, broker_id: int, other: int | None) -> None:
        self._inner = inner
        self._links = links
        self._broker_id = broker_id
        self._other = other

    async def send(self, frame: Sequence[Chunk]) -> None:
        await self._links.wait_until_open(self._broker_id, self._other)
        await self._inner.send(frame)

    async def receive(self) -> bytes | bytearray | memoryview:
        frame = await self._inner.receive()
        await self._links.wait_until_open(self._broker_id, self._other)
        return frame

    async def close(self) -> None:
        await self._inner.close()


class HeldSession(EmbeddedSession):
    """A session whose answers and calls wait while its broker is paused, or for ever."""

    def __init__(self, store: EmbeddedStore, broker_id: int, links: Links) -> None:
        super().__init__(store)
        self._broker_id = broker_id
        self._links = links
        self._is_killed = False

    def kill(self) -> None:
        """Its broker is gone: nobody hears of anything any more."""
        self._is_killed = True

    async def _wait_until_open(self) -> None:
        await self._links.wait_until_open(self._broker_id)
        if self._is_killed:
            raise SessionExpiredError("the broker was killed")

    def _held(self, callback: Callable[[], None]) -> Callable[[], None]:
        def call() -> None:
            if not self._is_killed:
                callback()

        return lambda: self._links.call_unless_paused(self._broker_id, call)

    async def get(self, path: str) -> Node | None:
        await self._wait_until_open()
        return await super().get(path)

    async def get_many(self, paths: Sequence[str]) -> Sequence[Node | None]:
        await self._wait_until_open()
        return await super().get_many(paths)

    async def children(self, path: str) -> Sequence[str]:
        await self._wait_until_open()
        return await super().children(path)

    async def submit(self, operations: Sequence[TreeOperation]) -> list[TreeOutcome]:
        await self._wait_until_open()
        return await super().submit(operations)

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return super().watch_data(path, self._held(callback))

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return super().watch_children(path, self._held(callback))

    def on_session_end(self, callback: Callable[[], None]) -> None:
        super().on_session_end(self._held(callback))

    async def renew(self) -> None:
        await self._wait_until_open()
        await super().renew()

    async def close(self) -> None:
        if not self._is_killed:
            await super().close()

    async def __aenter__(self) -> Coordination:
        return self

    async def __aexit__(self, *_: object) -> None:
        """As long as a broker wants it."""
        await self.close()
