"""A client of a simulated coordination service: one `Coordination` port, over links that fail.

It keeps the rules of a client of ZooKeeper: a heartbeat every sixth of the time-out; a connection
without a word for two thirds of it is given up, and with it every request under way, whose outcome
is then unknown (`StoreLostError`); the next connection takes the session up again. That the
session is over it learns from the service alone. The lease lasts for 60 % of the time-out after
the sending of the last heartbeat that was confirmed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeVar, cast

from moldau.clock import Clock, Timer
from moldau.coordination.port import (
    ANY_VERSION,
    Create,
    Delete,
    Node,
    Operation,
    SessionExpiredError,
    SetData,
    StoreLostError,
    Watch,
)
from moldau.coordination.tree import (
    ROOT,
    DeleteTree,
    EndSession,
    EnsureParents,
    TreeOperation,
    TreeOutcome,
    check_path,
)
from moldau.coordination.watches import WatchKind
from moldau.testing.coordination_messages import (
    AddWatch,
    Bye,
    Expired,
    Hello,
    Ping,
    ReadChildren,
    ReadNodes,
    RemoveWatch,
    Result,
    StoreAnswer,
    ToClient,
    Told,
    ToService,
    WatchPlace,
    Welcome,
    Write,
)
from moldau.testing.simulated_coordination import CoordinationService, ServiceConnection

T = TypeVar("T")

_LEASE_SHARE: Final = 0.6
_HEARTBEAT_SHARE: Final = 1 / 6
_SILENCE_SHARE: Final = 2 / 3
_PATIENCE_SHARE: Final = 1 / 3
_OPENING_PATIENCE: Final = 10.0  # time-outs


class _Request(NamedTuple):
    message: ToService
    answer: asyncio.Future[Result]
    asked_at: float


class SimulatedWatch:
    """One watch. It stays until it is cancelled or its client is closed."""

    def __init__(
        self, session: SimulatedSession, place: WatchPlace, callback: Callable[[], None]
    ) -> None:
        self.place = place
        self._session = session
        self._callback = callback
        self._is_cancelled = False

    def cancel(self) -> None:
        if not self._is_cancelled:
            self._is_cancelled = True
            self._session.forget_watch(self)

    def call(self) -> None:
        if not self._is_cancelled and not self._session.is_lost:
            self._callback()


class SimulatedSession:
    """The client. Use `open_session`; owned by the loop of its clock."""

    def __init__(
        self, service: CoordinationService, host: str, clock: Clock, timeout_seconds: float
    ) -> None:
        self.is_lost = False
        self._service = service
        self._host = host
        self._clock = clock
        self._timeout_seconds = timeout_seconds
        self._session_id = 0
        self._seen = 0
        self._connection: ServiceConnection | None = None
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
        self._watches: dict[WatchPlace, list[SimulatedWatch]] = {}  # no empty lists
        self._on_end: list[Callable[[], None]] = []
        self._tick_timer: Timer | None = None

    # The session

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def lease_end(self) -> float:
        return self._lease_end

    async def open(self, patience_seconds: float) -> None:
        self._begin()
        if not await self._wait_until_connected(patience_seconds):
            self._stop()
            raise StoreLostError("the coordination service does not answer")

    async def renew(self) -> None:
        if self._is_closed:
            raise SessionExpiredError("the session was closed")
        if not self.is_lost:
            return
        self.is_lost = False
        self._session_id = 0
        self._begin()
        if not await self._wait_until_connected(self._timeout_seconds):
            self._give_up_connection()
            self._lose()
            raise StoreLostError("the coordination service does not answer")
        for watch in [each for watches in self._watches.values() for each in watches]:
            self._clock.call_later(0, watch.call)

    async def close(self) -> None:
        if self._is_closed:
            return
        try:
            if not self.is_lost:
                number = next(self._numbers)
                with contextlib.suppress(StoreLostError, SessionExpiredError):
                    await self._ask(number, Bye(number=number))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._is_closed = self.is_lost = True
        self._lease_end = -math.inf
        self._give_up_connection()
        self._watches.clear()
        self._fail_requests(SessionExpiredError("the session was closed"))

    def expire(self) -> None:
        """End the session now, and let the service know of it at once."""
        session_id = self._session_id
        if not self.is_lost:
            self._service.clock.call_later(0, lambda: self._service.expire(session_id))
            self._lose_and_tell()

    def on_session_end(self, callback: Callable[[], None]) -> None:
        self._on_end.append(callback)

    def _lose(self) -> None:
        """The service says that the session is over."""
        self.is_lost = True
        self._lease_end = -math.inf
        self._give_up_connection()
        self._connected.set()
        self._fail_requests(SessionExpiredError(f"session {self._session_id} has ended"))

    def require_alive(self) -> None:
        if self.is_lost:
            raise SessionExpiredError(f"session {self._session_id} has ended")

    # The connection

    def _begin(self) -> None:
        self._connect()
        self._tick()

    def _connect(self) -> None:
        self._connected.clear()
        connection = self._service.connect(
            self._host, self._clock, self._receive_over, self._on_broken
        )
        self._connection = connection
        self._hello_at = self._heard_at = self._clock.monotonic()
        connection.to_service.send(
            Hello(
                session_id=self._session_id,
                timeout_seconds=self._timeout_seconds,
                watches=tuple(self._watches),
                seen=self._seen,
            )
        )

    async def _wait_until_connected(self, patience_seconds: float) -> bool:
        timer = self._clock.call_later(patience_seconds, self._connected.set)
        try:
            await self._connected.wait()
        finally:
            timer.cancel()
        return self._is_connected

    def _tick(self) -> None:
        """A heartbeat, or another attempt to connect; and the end of patience."""
        if self._is_closed or self.is_lost:
            return
        if self._tick_timer is not None:
            self._tick_timer.cancel()
        now = self._clock.monotonic()
        silence = now - self._heard_at
        share = _SILENCE_SHARE if self._is_connected else _PATIENCE_SHARE
        if self._connection is None or silence >= share * self._timeout_seconds:
            self._give_up_connection()
            self._connect()
        elif self._is_connected:
            number = next(self._numbers)
            self._pings[number] = now
            self._connection.to_service.send(Ping(number=number))
        self._end_waiting(now)
        pause = self._timeout_seconds * _HEARTBEAT_SHARE
        self._tick_timer = self._clock.call_later(pause, self._tick)

    def _end_waiting(self, now: float) -> None:
        late = [
            entry
            for entry in self._waiting
            if now - entry[1].asked_at >= self._timeout_seconds * _PATIENCE_SHARE
        ]
        for entry in late:
            self._waiting.remove(entry)
            _fail(entry[1].answer, StoreLostError("there is no connection"))

    def _give_up_connection(self) -> None:
        self._is_connected = False
        self._pings.clear()
        if self._connection is not None:
            self._connection.give_up()
            self._connection = None
        asked, self._asked = self._asked, {}
        for request in asked.values():
            _fail(request.answer, StoreLostError("the connection was lost on the way"))

    def _on_broken(self) -> None:
        if self._connection is not None and self._connection.is_broken:
            self._give_up_connection()
            self._tick()

    def _fail_requests(self, error: SessionExpiredError) -> None:
        waiting, self._waiting = self._waiting, []
        for request in (*self._asked.values(), *(request for _, request in waiting)):
            _fail(request.answer, error)
        self._asked.clear()

    # What arrives

    def _receive_over(self, message: ToClient) -> None:
        if self._connection is None or self.is_lost:
            return
        self._heard_at = self._clock.monotonic()
        match message:
            case Welcome():
                self._on_welcome(message)
            case Expired():
                self._lose_and_tell()
            case StoreAnswer():
                self._seen = max(self._seen, message.seen)
                self._on_answer(message)
            case Told():
                self._seen = max(self._seen, message.seen)
                for watch in tuple(self._watches.get(message.place, ())):
                    self._clock.call_later(0, watch.call)

    def _on_welcome(self, welcome: Welcome) -> None:
        self._session_id = welcome.session_id
        self._is_connected = True
        self._connected.set()
        self._extend_lease(self._hello_at)
        waiting, self._waiting = self._waiting, []
        for number, request in waiting:
            self._send(number, request)

    def _lose_and_tell(self) -> None:
        failures = [request.answer for request in self._asked.values()]
        self._asked.clear()
        error = SessionExpiredError(f"session {self._session_id} has ended")
        for answer in failures:
            _fail(answer, error)
        self._lose()
        for callback in self._on_end:
            self._clock.call_later(0, callback)

    def _on_answer(self, answer: StoreAnswer) -> None:
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

    async def _ask(self, number: int, message: ToService) -> Result:
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
            self._connection.to_service.send(request.message)

    async def _submit(self, operations: Sequence[TreeOperation]) -> Sequence[TreeOutcome]:
        self.require_alive()
        for operation in operations:
            _check_operation(operation)
        number = next(self._numbers)
        result = await self._ask(number, Write(number=number, operations=tuple(operations)))
        return cast("Sequence[TreeOutcome]", result)

    async def get(self, path: str) -> Node | None:
        return (await self.get_many((path,)))[0]

    async def get_many(self, paths: Sequence[str]) -> Sequence[Node | None]:
        number = next(self._numbers)
        result = await self._ask(number, ReadNodes(number=number, paths=tuple(paths)))
        return cast("Sequence[Node | None]", result)

    async def children(self, path: str) -> Sequence[str]:
        number = next(self._numbers)
        result = await self._ask(number, ReadChildren(number=number, path=path))
        return cast("Sequence[str]", result)

    async def transact(self, operations: Sequence[Operation]) -> Sequence[str]:
        return [outcome.path for outcome in await self._submit(operations)]

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        parents: bool = False,
    ) -> str:
        create = Create(path=path, data=data, ephemeral=ephemeral, sequential=sequential)
        first = (EnsureParents(path=path),) if parents else ()
        return (await self._submit((*first, create)))[-1].path

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return (await self._submit((SetData(path=path, data=data, version=version),)))[0].version

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self._submit((Delete(path=path, version=version),))

    async def delete_tree(self, path: str) -> None:
        await self._submit((DeleteTree(path=path),))

    # Watches

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._watch(WatchPlace(WatchKind.DATA, path), callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._watch(WatchPlace(WatchKind.CHILDREN, path), callback)

    def _watch(self, place: WatchPlace, callback: Callable[[], None]) -> Watch:
        self.require_alive()
        watch = SimulatedWatch(self, place, callback)
        watches = self._watches.setdefault(place, [])
        watches.append(watch)
        if len(watches) == 1 and self._connection is not None:
            self._connection.to_service.send(AddWatch(place=place))
        return watch

    def forget_watch(self, watch: SimulatedWatch) -> None:
        watches = self._watches.get(watch.place, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._watches[watch.place]
                if self._connection is not None:
                    self._connection.to_service.send(RemoveWatch(place=watch.place))


@contextlib.asynccontextmanager
async def open_session(
    service: CoordinationService, *, host: str, clock: Clock, timeout_seconds: float
) -> AsyncIterator[SimulatedSession]:
    """A session that lasts as long as the block; raises `StoreLostError` without a service."""
    session = SimulatedSession(service, host, clock, timeout_seconds)
    await session.open(_OPENING_PATIENCE * timeout_seconds)
    try:
        yield session
    finally:
        await session.close()


def _fail(answer: asyncio.Future[T], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


def _check_operation(operation: TreeOperation) -> None:
    if isinstance(operation, EndSession):
        return
    check_path(operation.path)
    if operation.path == ROOT and isinstance(operation, Delete | DeleteTree):
        raise ValueError("the root cannot be deleted")
