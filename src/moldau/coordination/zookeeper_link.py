"""One session with ZooKeeper through kazoo, seen from the event loop. A shell.

kazoo keeps one thread per session, which owns the connection: it connects, connects again with the
same session, and reads and writes frames. Everything it has to tell (answers, events of watches,
the state of the connection) comes to the loop in the order in which it came over the wire, with no
other thread between; that order is what watches rely upon.

A link is *attached* while there is a connection. Calls wait in the link's own queue until then, and
for their turn (`max_in_flight_requests`): nothing is handed to kazoo that could be stuck there, so
that no call blocks the loop and each ends within the connection time-out. When the session is over
the link is *lost*, for good: it never begins another one by itself, as kazoo would.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from moldau.clock import Clock, Timer
from moldau.coordination.port import SessionExpiredError, StoreLostError
from moldau.coordination.zookeeper_client import (
    BROKEN,
    LOST,
    SUSPENDED,
    LoopHandler,
    Result,
    StoreClient,
    make_client,
    stop_client,
)
from moldau.coordination.zookeeper_errors import translate
from moldau.coordination.zookeeper_settings import ZookeeperSettings
from moldau.workers import Workers

_log = logging.getLogger("moldau.coordination.zookeeper")

_MAX_IN_FLIGHT = 128
"""Each call puts a byte into a socket pair of kazoo's, which holds some 270 before it blocks."""

_CLOSE_TIMEOUT_SECONDS = 3.0
"""A server that does not answer the end of the session hears of it by its time-out."""

T = TypeVar("T")


class LinkEvents(Protocol):
    """Whom a link tells, on the loop."""

    def attached(self, link: Link) -> None: ...

    def detached(self, link: Link) -> None:
        """No connection just now; the session may go on."""
        ...

    def lost(self, link: Link) -> None: ...


@dataclass(slots=True, eq=False)
class _Call:
    """A request of somebody who waits; `send` and `fail` close over the future."""

    send: Callable[[], None]
    fail: Callable[[Exception], None]
    is_abandoned: Callable[[], bool]
    timer: Timer | None = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Link:
    """One session. All methods are for the loop; `is_lost` may change at any time."""

    def __init__(
        self, settings: ZookeeperSettings, events: LinkEvents, clock: Clock, workers: Workers
    ) -> None:
        self._settings = settings
        self._events = events
        self._clock = clock
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._handler = LoopHandler(
            settings.session_timeout_seconds / (len(settings.servers) + 1),
            settings.new_tls_context,
        )
        self._window = min(settings.max_in_flight_requests, _MAX_IN_FLIGHT)
        self._waiting: deque[_Call] = deque()
        self._in_flight: set[_Call] = set()
        self._closing = False
        self._ending: asyncio.Future[None] | None = None
        self._was_attached = asyncio.Event()
        self.is_attached = False
        self.is_lost = False  # set by kazoo's thread the moment it knows
        self._refusal = ""  # why the last attempt was in vain; set by kazoo's thread
        self.session_id = 0
        self.timeout_seconds = settings.session_timeout_seconds  # negotiated, once attached
        self._client = make_client(
            settings,
            self._handler,
            on_state=self._on_state,
            on_connected=self._on_connected,
            on_refused=self._on_refused,
        )

    # Its life

    async def open(self) -> None:
        """Connect. Raises `StoreLostError` when no server answers in time."""
        self._client.start_async()
        timeout = self._settings.connection_timeout_seconds
        timer = self._clock.call_later(timeout, self._was_attached.set)
        try:
            await self._was_attached.wait()
        finally:
            timer.cancel()
        if not self.is_attached:
            servers = ", ".join(self._settings.servers)
            raise StoreLostError(
                f"no session with ZooKeeper at {servers} within {timeout:g} s{self._reason()}"
            )

    def _reason(self) -> str:
        if not self._refusal:
            return ""
        hint = ""
        if self._settings.new_tls_context is not None:
            if "EOF" in self._refusal:
                hint = "; does it speak TLS there, as zookeeper.ssl.client.enable=true asks for?"
        elif self._refusal == BROKEN:
            hint = "; if it speaks TLS there, set zookeeper.ssl.client.enable=true"
        return f" ({self._refusal}{hint})"

    async def close(self) -> None:
        """End the session, or what is left of it. kazoo's thread has ended afterwards."""
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        self._closing = True
        if not self.is_attached:
            self._handler.cut()  # there is nobody to say farewell to
        self.is_attached = False
        self._was_attached.set()
        self._fail_all(SessionExpiredError("the session was closed"))
        timer = self._clock.call_later(_CLOSE_TIMEOUT_SECONDS, self._handler.cut)
        try:
            await self._workers.run(functools.partial(stop_client, self._client))
        finally:
            timer.cancel()

    def cut(self) -> None:
        """Give the connection up, not the session: the server does not answer."""
        self._handler.cut()

    @property
    def password(self) -> bytes:
        """What another connection would need to take the session over."""
        identity = self._client.client_id
        return b"" if identity is None else identity[1]

    # Calls

    def call(self, request: Callable[[StoreClient], Result[T]]) -> asyncio.Future[T]:
        """Ask when attached and when it is its turn; calls are sent in the order they are made.

        Ends with what the port raises: `StoreLostError` when nobody could be asked in time,
        or the connection was lost before the answer; `SessionExpiredError` for a lost link.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        call = self._make_call(request, future)
        if self.is_lost or self._closing:
            call.fail(SessionExpiredError(f"session {self.session_id:#x} is over"))
            return future
        self._waiting.append(call)
        if self.is_attached:
            self._send_waiting()
        else:
            self._arm(call)
        return future

    def call_at_once(self, request: Callable[[StoreClient], Result[T]]) -> asyncio.Future[T]:
        """Ask now, before those who wait for their turn; only while attached."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._send(self._make_call(request, future))
        return future

    def _make_call(
        self, request: Callable[[StoreClient], Result[T]], future: asyncio.Future[T]
    ) -> _Call:
        def send() -> None:
            try:
                request(self._client).rawlink(answered)
            except (TypeError, ValueError) as error:  # kazoo looks at what it is given
                self._in_flight.discard(call)
                fail(error)

        def answered(result: Result[T]) -> None:
            self.post(finish, result)

        def finish(result: Result[T]) -> None:
            self._in_flight.discard(call)
            if not future.done():
                if result.exception is None:
                    future.set_result(result.value)
                else:
                    future.set_exception(translate(result.exception))
            if result.exception is not None and not self._client.connected:
                self._detach()  # kazoo says so only after it has failed whatever it is given now
            self._send_waiting()

        def fail(error: Exception) -> None:
            if not future.done():
                future.set_exception(error)
                future.exception()  # whoever asked may be gone: that is no failure of its own

        call = _Call(send, fail, future.done)
        return call

    def _send_waiting(self) -> None:
        while self.is_attached and self._waiting and len(self._in_flight) < self._window:
            call = self._waiting.popleft()
            call.stop_timer()
            if not call.is_abandoned():
                self._send(call)

    def _send(self, call: _Call) -> None:
        self._in_flight.add(call)
        call.send()

    def _arm(self, call: _Call) -> None:
        timeout = min(
            self._settings.connection_timeout_seconds, self._settings.session_timeout_seconds
        )
        error = StoreLostError(f"no connection to ZooKeeper for {timeout:g} s")
        call.stop_timer()
        call.timer = self._clock.call_later(timeout, functools.partial(call.fail, error))

    def _fail_all(self, error: Exception) -> None:
        calls = [*self._in_flight, *self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        for call in calls:
            call.stop_timer()
            call.fail(error)

    # What kazoo's thread tells

    def post(self, function: Callable[..., None], *arguments: object) -> None:
        """Call on the loop, from any thread, in order."""
        with contextlib.suppress(RuntimeError):  # the loop was closed: nobody listens any more
            self._loop.call_soon_threadsafe(function, *arguments)

    def _on_connected(self, timeout_seconds: float) -> None:
        identity = self._client.client_id
        session_id = 0 if identity is None else identity[0]
        self.post(self._attach, session_id, timeout_seconds)

    def _on_refused(self, reason: str) -> None:
        self._refusal = reason

    def _on_state(self, state: str) -> None:
        if state == SUSPENDED:
            self.post(self._detach)
        elif state == LOST and not self._closing:
            self.is_lost = True
            self._handler.refuse_connections()
            self.post(self._lose)

    # The same on the loop

    def _attach(self, session_id: int, timeout_seconds: float) -> None:
        if self._closing or self.is_lost:
            return
        again = self.session_id == session_id
        _log.info("%s ZooKeeper session %#x", "back in" if again else "began", session_id)
        self.session_id = session_id
        self.timeout_seconds = timeout_seconds
        self.is_attached = True
        self._was_attached.set()
        self._events.attached(self)
        self._send_waiting()

    def _detach(self) -> None:
        if self._closing or self.is_lost or not self.is_attached:
            return
        _log.warning("lost the connection to ZooKeeper; session %#x goes on", self.session_id)
        self.is_attached = False
        # Those sent before were told by kazoo. What is left came between the loss and this call.
        in_flight, self._in_flight = self._in_flight, set()
        for call in in_flight:
            call.fail(StoreLostError("the connection to ZooKeeper was lost"))
        for call in self._waiting:
            self._arm(call)
        self._events.detached(self)

    def give_up(self, reason: str) -> None:
        """End the session from this side: the server has one, or none, that is not ours any more.

        What is left of it at the server ends by its time-out.
        """
        if self._closing or self.is_lost:
            return
        _log.error("ZooKeeper session %#x is given up: %s", self.session_id, reason)
        self.is_lost = True
        self._handler.refuse_connections()
        self._handler.cut()
        self._lose()

    def _lose(self) -> None:
        if self._closing:
            return
        _log.warning("ZooKeeper session %#x is over", self.session_id)
        self.is_attached = False
        self._was_attached.set()
        self._fail_all(SessionExpiredError(f"session {self.session_id:#x} is over"))
        self._events.lost(self)
