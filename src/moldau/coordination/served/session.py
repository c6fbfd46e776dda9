"""A session with a store that others share: one `Coordination` port, over a connection. A shell.

It keeps the rules of a client of ZooKeeper: a heartbeat every sixth of the time-out; a connection
without a word for two thirds of it is given up, and with it every request under way, whose outcome
is then unknown (`StoreLostError`); the next connection takes the session up again. That the
session is over it learns from the service, or from finding that there is no service any more. The
lease lasts for 60 % of the time-out after the sending of the last heartbeat that was confirmed.

Connections are handed in: `SocketConnector` makes those of a Unix socket, and a simulation those of
its own network, so that brokers of `moldau start --brokers` have the client that simulations try.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import socket
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from moldau.clock import Clock, Timer
from moldau.coordination.port import Node, SessionExpiredError, StoreLostError, Watch
from moldau.coordination.served.messages import (
    AddWatch,
    CloseSession,
    ConnectRequest,
    ConnectResponse,
    Ping,
    ReadChildren,
    ReadNodes,
    RemoveWatch,
    Result,
    SessionExpired,
    StoreResponse,
    StoreSocket,
    ToClient,
    ToService,
    WatchEvent,
    WatchPlace,
    Write,
    decode_response,
    encode_request,
)
from moldau.coordination.tree import (
    TreeOperation,
    TreeOutcome,
    TreeWriter,
    WatchKind,
    check_operation,
)

T = TypeVar("T")

_LEASE_SHARE: Final = 0.6
_HEARTBEAT_SHARE: Final = 1 / 6
_SILENCE_SHARE: Final = 2 / 3
_CONNECTING_SHARE: Final = 1 / 3


class StoreConnection(Protocol):
    """A way to the service, until it breaks or is closed."""

    is_closed: bool
    """By either side, or broken."""

    def send(self, message: ToService) -> None:
        """In order; nothing when it is closed."""
        ...

    def close(self) -> None:
        """Nothing is delivered from now on."""
        ...


class StoreGoneError(Exception):
    """There is no service any more, and with it every session has ended."""


Connect = Callable[[Callable[[ToClient], None], Callable[[], None]], StoreConnection | None]
"""Given what takes messages, and what is called when the connection breaks by itself.

None when there is no connection to be had at the moment; raises `StoreGoneError`.
"""


class _Request(NamedTuple):
    message: ToService
    answer: asyncio.Future[Result]
    asked_at: float


class StoreWatch:
    """One watch. It stays until it is cancelled or its client is closed."""

    def __init__(
        self, session: StoreSession, place: WatchPlace, callback: Callable[[], None]
    ) -> None:
        self.place = place
        self._session = session
        self._callback = callback
        self._is_cancelled = False

    def cancel(self) -> None:
        if not self._is_cancelled:
            self._is_cancelled = True
            self._session.remove_watch(self)

    def call(self) -> None:
        if not self._is_cancelled and not self._session.is_lost:
            self._callback()


class StoreSession(TreeWriter):
    """The client; `open` before anything else. Owned by the loop of its clock."""

    def __init__(
        self, connect: Connect, clock: Clock, timeout_seconds: float, process_id: int = 0
    ) -> None:
        self.is_lost = False
        self._make_connection = connect
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._process_id = process_id
        self._session_id = 0
        self._seen = 0
        self._connection: StoreConnection | None = None
        self._is_connected = False  # the service has welcomed this connection
        self._connected = asyncio.Event()  # or the session is lost
        self._heard_at = 0.0
        self._hello_at = 0.0
        self._lease_end = -math.inf
        self._is_closed = False
        self._numbers = count(1)
        self._pings: dict[int, float] = {}  # sending times
        self._asked: dict[int, _Request] = {}  # sent, by number
        self._waiting: list[tuple[int, _Request]] = []  # for a connection
        self._watches: dict[WatchPlace, list[StoreWatch]] = {}  # no empty lists
        self._on_end: list[Callable[[], None]] = []
        self._timer: Timer | None = None

    # The session

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def lease_end(self) -> float:
        return self._lease_end

    async def open(self, seconds: float) -> None:
        self._start()
        if not await self._wait_until_connected(seconds):
            self._stop()
            raise StoreLostError("the coordination service does not answer")

    async def renew(self) -> None:
        if self._is_closed:
            raise SessionExpiredError("the session was closed")
        if not self.is_lost:
            return
        self.is_lost = False
        self._session_id = 0
        self._start()
        if not await self._wait_until_connected(self._timeout_seconds):
            self._close_connection()
            self._lose()
            raise StoreLostError("the coordination service does not answer")
        for watch in [each for watches in self._watches.values() for each in watches]:
            self._clock.call_later(0, watch.call)

    async def close(self) -> None:
        if self._is_closed:
            return
        self._on_end.clear()  # closing is no loss, even if a heartbeat hears first of the end
        try:
            if not self.is_lost:
                number = next(self._numbers)
                with contextlib.suppress(StoreLostError, SessionExpiredError):
                    await self._send_request(number, CloseSession(number=number))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._is_closed = self.is_lost = True
        self._lease_end = -math.inf
        self._close_connection()
        self._watches.clear()
        self._fail_requests(SessionExpiredError("the session was closed"))

    def on_session_end(self, callback: Callable[[], None]) -> None:
        self._on_end.append(callback)

    def _lose(self) -> None:
        """The session is over."""
        self.is_lost = True
        self._lease_end = -math.inf
        self._close_connection()
        self._connected.set()
        self._fail_requests(SessionExpiredError(f"session {self._session_id} has ended"))

    def require_alive(self) -> None:
        if self.is_lost:
            raise SessionExpiredError(f"session {self._session_id} has ended")

    # The connection

    def _start(self) -> None:
        self._connect()
        self._send_heartbeat()

    def _connect(self) -> None:
        self._connected.clear()
        self._hello_at = self._heard_at = self._clock.monotonic()
        try:
            self._connection = self._make_connection(self._receive, self._on_broken)
        except StoreGoneError:
            if self._session_id:
                self._end_session()
            else:
                self._lose()  # before it began; who wanted it is waiting
        if self._connection is not None:
            hello = ConnectRequest(
                session_id=self._session_id,
                timeout_seconds=self._timeout_seconds,
                watches=tuple(self._watches),
                seen=self._seen,
                process_id=self._process_id,
            )
            self._connection.send(hello)

    async def _wait_until_connected(self, seconds: float) -> bool:
        timer = self._clock.call_later(seconds, self._connected.set)
        try:
            await self._connected.wait()
        finally:
            timer.cancel()
        return self._is_connected

    def _send_heartbeat(self) -> None:
        """A heartbeat, or another attempt to connect; and requests that waited for too long."""
        if self._is_closed or self.is_lost:
            return
        if self._timer is not None:
            self._timer.cancel()
        now = self._clock.monotonic()
        silence = now - self._heard_at
        share = _SILENCE_SHARE if self._is_connected else _CONNECTING_SHARE
        if self._connection is None or silence >= share * self._timeout_seconds:
            self._close_connection()
            self._connect()
        elif self._is_connected:
            number = next(self._numbers)
            self._pings[number] = now
            self._connection.send(Ping(number=number))
        self._fail_late_requests(now)
        pause = self._timeout_seconds * _HEARTBEAT_SHARE
        self._timer = self._clock.call_later(pause, self._send_heartbeat)

    def _fail_late_requests(self, now: float) -> None:
        late = [
            entry
            for entry in self._waiting
            if now - entry[1].asked_at >= self._timeout_seconds * _CONNECTING_SHARE
        ]
        for entry in late:
            self._waiting.remove(entry)
            _fail(entry[1].answer, StoreLostError("there is no connection"))

    def _close_connection(self) -> None:
        self._is_connected = False
        self._pings.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        asked, self._asked = self._asked, {}
        for request in asked.values():
            _fail(request.answer, StoreLostError("the connection was lost on the way"))

    def _on_broken(self) -> None:
        if self._connection is not None and self._connection.is_closed:
            self._close_connection()
            self._send_heartbeat()

    def _fail_requests(self, error: SessionExpiredError) -> None:
        waiting, self._waiting = self._waiting, []
        for request in (*self._asked.values(), *(request for _, request in waiting)):
            _fail(request.answer, error)
        self._asked.clear()

    # What arrives

    def _receive(self, message: ToClient) -> None:
        if self._connection is None or self.is_lost:
            return
        self._heard_at = self._clock.monotonic()
        match message:
            case ConnectResponse():
                self._on_welcome(message)
            case SessionExpired():
                self._end_session()
            case StoreResponse():
                self._seen = max(self._seen, message.seen)
                self._on_answer(message)
            case WatchEvent():
                self._seen = max(self._seen, message.seen)
                for watch in tuple(self._watches.get(message.place, ())):
                    self._clock.call_later(0, watch.call)

    def _on_welcome(self, welcome: ConnectResponse) -> None:
        self._session_id = welcome.session_id
        self._is_connected = True
        self._connected.set()
        self._extend_lease(self._hello_at)
        waiting, self._waiting = self._waiting, []
        for number, request in waiting:
            self._send(number, request)

    def _end_session(self) -> None:
        failures = [request.answer for request in self._asked.values()]
        self._asked.clear()
        error = SessionExpiredError(f"session {self._session_id} has ended")
        for answer in failures:
            _fail(answer, error)
        self._lose()
        for callback in self._on_end:
            self._clock.call_later(0, callback)

    def _on_answer(self, answer: StoreResponse) -> None:
        sent_at = self._pings.pop(answer.number, None)
        if sent_at is not None:
            self._extend_lease(sent_at)
            return
        request = self._asked.pop(answer.number, None)
        if request is None or request.answer.done():
            return
        if isinstance(answer.result, Exception):
            request.answer.set_exception(answer.result)
        else:
            request.answer.set_result(answer.result)

    def _extend_lease(self, sent_at: float) -> None:
        self._lease_end = max(self._lease_end, sent_at + _LEASE_SHARE * self._timeout_seconds)

    # Requests

    async def _send_request(self, number: int, message: ToService) -> Result:
        self.require_alive()
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        request = _Request(message, answer, self._clock.monotonic())
        if self._is_connected:
            self._send(number, request)
        else:
            self._waiting.append((number, request))
        return await answer

    def _send(self, number: int, request: _Request) -> None:
        if self._connection is not None and not request.answer.done():
            self._asked[number] = request
            self._connection.send(request.message)

    async def submit(self, operations: Sequence[TreeOperation]) -> Sequence[TreeOutcome]:
        self.require_alive()
        for operation in operations:
            check_operation(operation)
        number = next(self._numbers)
        result = await self._send_request(
            number, Write(number=number, operations=tuple(operations))
        )
        return cast("Sequence[TreeOutcome]", result)

    async def get(self, path: str) -> Node | None:
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Sequence[str]) -> Sequence[Node | None]:
        if not paths:
            self.require_alive()
            return ()
        number = next(self._numbers)
        result = await self._send_request(number, ReadNodes(number=number, paths=tuple(paths)))
        return cast("Sequence[Node | None]", result)

    async def children(self, path: str) -> Sequence[str]:
        number = next(self._numbers)
        result = await self._send_request(number, ReadChildren(number=number, path=path))
        return cast("Sequence[str]", result)

    # Watches

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._watch(WatchPlace(WatchKind.DATA, path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._watch(WatchPlace(WatchKind.CHILDREN, path), callback)

    def _watch(self, place: WatchPlace, callback: Callable[[], None]) -> Watch:
        self.require_alive()
        watch = StoreWatch(self, place, callback)
        watches = self._watches.setdefault(place, [])
        watches.append(watch)
        if len(watches) == 1 and self._connection is not None:
            self._connection.send(AddWatch(place=place))
        return watch

    def remove_watch(self, watch: StoreWatch) -> None:
        watches = self._watches.get(watch.place, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._watches[watch.place]
                if self._connection is not None:
                    self._connection.send(RemoveWatch(place=watch.place))


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


_log = logging.getLogger("moldau.coordination")


class SocketConnector:
    """Connects, as often as a session wants. `on_gone` hears when nobody serves there any more."""

    def __init__(self, path: str, on_gone: Callable[[], None]) -> None:
        self._path = path
        self._on_gone = on_gone

    def __call__(
        self, deliver: Callable[[ToClient], None], on_broken: Callable[[], None]
    ) -> StoreSocket[ToService] | None:
        try:
            connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        except OSError as error:  # no descriptor is left: one may be at the next attempt
            _log.warning("no connection to the coordination store: %s", error)
            return None
        connecting.setblocking(False)
        try:
            connecting.connect(self._path)  # a Unix socket connects at once or not at all
        except (ConnectionRefusedError, FileNotFoundError) as error:
            # The process that listened has ended, and the sessions with it; or its socket was
            # removed: then the supervisor makes another one, and starts this broker again.
            connecting.close()
            self._on_gone()
            raise StoreGoneError(f"nobody serves the coordination store at {self._path}") from error
        except BlockingIOError:  # too many wait to be accepted: the server is held up
            connecting.close()
            return None
        except OSError as error:
            connecting.close()
            _log.warning("no connection to the coordination store: %s", error)
            return None
        return StoreSocket(
            connecting,
            encode_request,
            lambda frame: deliver(decode_response(frame)),
            lambda reason: on_broken(),
        )
