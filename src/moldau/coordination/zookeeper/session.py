"""One session with ZooKeeper through kazoo, seen from the event loop. A shell.

kazoo keeps one thread per session, which owns the connection: it connects, connects again with the
same session, and reads and writes frames. Everything it has to tell (answers, events of watches,
the state of the connection) comes to the loop in the order in which it came over the wire, with no
other thread between; that order is what watches rely upon.

A session is *attached* while there is a connection. Calls wait in its own queue until then, and for
their turn (`max_in_flight_requests`): nothing is handed to kazoo that could be stuck there, so
that no call blocks the loop and each ends within the connection time-out. When the session is over
it is *lost*, for good: it never begins another one by itself, as kazoo would.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from moldau.clock import Clock, Timer
from moldau.coordination.port import (
    CoordinationError,
    NoNodeError,
    SessionExpiredError,
    StoreLostError,
)
from moldau.coordination.tree import WatchKind
from moldau.coordination.zookeeper.kazoo_client import (
    BROKEN,
    LOST,
    SUSPENDED,
    Event,
    Kazoo,
    LoopHandler,
    Result,
    Stat,
    WatchedEvent,
    make_client,
    stop_client,
    translate,
)
from moldau.coordination.zookeeper.settings import ZookeeperSettings
from moldau.tasks import TaskSupervisor
from moldau.workers import Workers

_log = logging.getLogger("moldau.coordination.zookeeper")

_MAX_IN_FLIGHT = 128
"""Each call puts a byte into a socket pair of kazoo's, which holds some 270 before it blocks."""

_CLOSE_TIMEOUT_SECONDS = 3.0
"""A server that does not answer the end of the session hears of it by its time-out."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Call(Generic[T]):
    """A request, and the future of whoever waits for the answer."""

    request: Callable[[Kazoo], Result[T]]
    future: asyncio.Future[T]
    timer: Timer | None = None  # while it waits for a connection

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)
            self.future.exception()  # the caller may be gone: that is no failure of its own


def _ignore(session: Session) -> None:
    """A session that is only opened to see whether it can be tells nobody."""


class Session:
    """One session. All methods are for the loop; `is_lost` may change at any time."""

    def __init__(
        self,
        settings: ZookeeperSettings,
        clock: Clock,
        workers: Workers,
        *,
        on_attached: Callable[[Session], None] = _ignore,
        on_detached: Callable[[Session], None] = _ignore,
        on_lost: Callable[[Session], None] = _ignore,
    ) -> None:
        """The functions are called on the loop. Detached: the session may go on."""
        self._settings = settings
        self._on_attached = on_attached
        self._on_detached = on_detached
        self._on_lost = on_lost
        self._clock = clock
        self._workers = workers
        self._loop = asyncio.get_running_loop()
        self._handler = LoopHandler(
            settings.session_timeout_seconds / (len(settings.servers) + 1),
            settings.new_tls_context,
        )
        self.cut = self._handler.cut  # the connection is of no use, the session goes on
        self._window = min(settings.max_in_flight_requests, _MAX_IN_FLIGHT)
        self._waiting: deque[_Call[Any]] = deque()
        self._in_flight: set[_Call[Any]] = set()
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

    @property
    def password(self) -> bytes:
        """What another connection would need to take the session over."""
        identity = self._client.client_id
        return b"" if identity is None else identity[1]

    # Calls

    def call(self, request: Callable[[Kazoo], Result[T]]) -> asyncio.Future[T]:
        """Ask when attached and when it is its turn; calls are sent in the order they are made.

        Ends with what the port raises: `StoreLostError` when nobody could be asked in time,
        or the connection was lost before the answer; `SessionExpiredError` for a lost session.
        """
        call = _Call(request, self._loop.create_future())
        if self.is_lost or self._closing:
            call.fail(SessionExpiredError(f"session {self.session_id:#x} is over"))
            return call.future
        self._waiting.append(call)
        if self.is_attached:
            self._send_waiting()
        else:
            self._start_timer(call)
        return call.future

    def call_at_once(self, request: Callable[[Kazoo], Result[T]]) -> asyncio.Future[T]:
        """Ask now, before those who wait for their turn; only while attached."""
        call = _Call(request, self._loop.create_future())
        self._send(call)
        return call.future

    def _send_waiting(self) -> None:
        while self.is_attached and self._waiting and len(self._in_flight) < self._window:
            call = self._waiting.popleft()
            call.stop_timer()
            if not call.future.done():
                self._send(call)

    def _send(self, call: _Call[T]) -> None:
        self._in_flight.add(call)
        try:
            call.request(self._client).rawlink(lambda result: self.post(self._finish, call, result))
        except (TypeError, ValueError) as error:  # kazoo looks at what it is given
            self._in_flight.discard(call)
            call.fail(error)

    def _finish(self, call: _Call[T], result: Result[T]) -> None:
        self._in_flight.discard(call)
        if result.exception is not None:
            call.fail(translate(result.exception))
            if not self._client.connected:
                self._detach()  # kazoo says so only after it has failed whatever it is given now
        elif not call.future.done():
            call.future.set_result(result.value)
        self._send_waiting()

    def _start_timer(self, call: _Call[T]) -> None:
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
        self._on_attached(self)
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
            self._start_timer(call)
        self._on_detached(self)

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
        self._on_lost(self)


# How long a session cannot be over: the lease of `port`, from heartbeats. A shell.
#
# A heartbeat is a `sync`: it goes through the server to the leader of the ensemble, which alone
# decides when a session has timed out, and back. It is sent every sixth of the session's time-out T
# (the one that the server granted); the lease ends 0.6 T after the last confirmed one was *sent*.
# The 0.4 T below are for a server that is not the leader and tells it of its clients' life only
# with its next ping, and for a clock that runs a little faster than the others.
#
# Since heartbeats keep kazoo from sending its own pings, whose loss would tell it of a dead server,
# a heartbeat without an answer for T / 3 cuts the connection: there may be a better server.

_PER_TIMEOUT = 6
_LEASE_SHARE = 0.6
_TIMEOUT_SHARE = 1 / 3


class Heartbeats:
    """The heartbeats of one session, from `start` to `stop`."""

    def __init__(self, session: Session, clock: Clock, path: str) -> None:
        self._session = session
        self._clock = clock
        self._path = path
        self._timer: Timer | None = None
        self._unconfirmed: deque[float] = deque()  # when they were sent; answers keep the order
        self._confirmed = asyncio.Event()
        self.lease_end = -math.inf

    def start(self) -> None:
        """Send one at once; called whenever the session is attached."""
        self._stop_timer()
        self._unconfirmed.clear()
        self._send_heartbeat()

    def stop(self) -> None:
        self._stop_timer()
        self.lease_end = -math.inf
        self._confirmed.set()

    async def wait_until_confirmed(self, seconds: float) -> None:
        """Until there is a lease. Raises `StoreLostError` when there is none in time."""
        timer = self._clock.call_later(seconds, self._confirmed.set)
        try:
            await self._confirmed.wait()
        finally:
            timer.cancel()
        if self.lease_end == -math.inf:
            raise StoreLostError(f"no heartbeat was answered within {seconds:g} s")

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send_heartbeat(self) -> None:
        timeout = self._session.timeout_seconds
        self._timer = self._clock.call_later(timeout / _PER_TIMEOUT, self._send_heartbeat)
        if not self._session.is_attached:
            return
        now = self._clock.monotonic()
        if self._unconfirmed and now - self._unconfirmed[0] > timeout * _TIMEOUT_SHARE:
            self._session.cut()
            return
        self._unconfirmed.append(now)
        answer = self._session.call_at_once(lambda client: client.sync_async(self._path))
        answer.add_done_callback(functools.partial(self._on_confirmed, now))

    def _on_confirmed(self, sent: float, answer: asyncio.Future[object]) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # the session says more: it is detached or lost
        if self._unconfirmed and self._unconfirmed[0] == sent:
            self._unconfirmed.popleft()
        if self._timer is not None:
            self.lease_end = max(
                self.lease_end, sent + _LEASE_SHARE * self._session.timeout_seconds
            )
            self._confirmed.set()


# Watches that stay, on top of ZooKeeper's, which are told once and are gone. A shell.
#
# The order is the point: a watch that went off is armed again first, and its callbacks are called
# when the server has said so. So whoever is called reads what is new, and what changes after that
# reading is told again. That holds too when the watch has gone off once more by then, since the
# request that arms it again is sent before what the callbacks ask: so a place that changes without
# pause is told of without pause. Watches on the same thing share one at the server.
#
# While there is no connection the server's watches are gone too. When there is one again each is
# armed anew, and told if the node differs from what it was when it was armed last. In a renewed
# session each is told.


_NO_EVENT = "NONE"  # kazoo's word for a watch that went with its connection


class _Place(NamedTuple):
    kind: WatchKind
    path: str  # as the server knows it


class _Seen(NamedTuple):
    """What a node was when its watch was armed. Differs whenever the watch would have been told."""

    created_id: int
    changed_id: int


_NOTHING = _Seen(-1, -1)
"""The node did not exist."""


class ZookeeperWatch:
    """One watch of somebody."""

    __slots__ = ("_callback", "_cancelled", "_sentry")

    def __init__(self, sentry: _PlaceWatch, callback: Callable[[], None]) -> None:
        self._sentry = sentry
        self._callback = callback
        self._cancelled = False

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._sentry.watches.remove(self)

    def call(self) -> None:
        if not self._cancelled and self._sentry.is_attached:
            self._callback()


class _PlaceWatch:
    """All watches on one place, and the one that they share at the server."""

    def __init__(self, table: ZookeeperWatches, place: _Place) -> None:
        self._table = table
        self._place = place
        self._arming = 0  # counts the requests; only the last one's watch is armed again
        self._seen: _Seen | None = None  # never armed yet
        self._has_event = False  # something to tell, as soon as it is armed
        self.watches: list[ZookeeperWatch] = []

    @property
    def is_attached(self) -> bool:
        return self._table.session is not None

    def clear(self) -> None:
        """What was seen, in a session that is over."""
        self._seen = None

    def arm(self, session: Session, *, has_event: bool = False) -> None:
        """Send the request before returning: what the caller reads next is read after it."""
        self._has_event |= has_event
        self._arming += 1
        path, event = self._place.path, self._event_of(session, self._arming)
        see: Callable[[], Coroutine[None, None, _Seen]]
        if self._place.kind is WatchKind.DATA:
            stat = session.call(lambda client: client.exists_async(path, watch=event))
            see = functools.partial(_read_data_ids, stat)
        else:
            children = _watch_children(session, path, event)
            see = functools.partial(self._read_children_ids, session, event, children)
        self._table.tasks.spawn("watch", self._finish_arming(session, see))

    async def _finish_arming(
        self, session: Session, see: Callable[[], Coroutine[None, None, _Seen]]
    ) -> None:
        try:
            seen = await see()
        except CoordinationError as error:
            # Without a connection; it is armed again with the next one.
            self._has_event |= self._seen is None
            _log.debug("the watch of %s is not armed: %s", self._place.path, error)
            return
        former = self._seen
        self._has_event |= former not in (None, seen)
        self._seen = seen
        if former is not None and former > seen != _NOTHING and session is self._table.session:
            # In one session a node's ids only grow: the server was given older data.
            session.give_up(f"{self._place.path} is older than before, the store was set back")
            return
        if self._has_event and session is self._table.session:
            self._has_event = False
            self._notify()

    async def _read_children_ids(
        self, session: Session, event: Event, answer: asyncio.Future[tuple[list[str], Stat]]
    ) -> _Seen:
        """The server watches the children of a node that exists; before that, the node itself."""
        path = self._place.path
        while True:
            try:
                _, stat = await answer
            except NoNodeError:
                if (
                    await session.call(lambda client: client.exists_async(path, watch=event))
                    is None
                ):
                    return _NOTHING
            else:
                return _Seen(stat.czxid, stat.pzxid)
            self._has_event = True  # it was made between the two
            answer = _watch_children(session, path, event)

    def _event_of(self, session: Session, arming: int) -> Event:
        def on_event(event: WatchedEvent) -> None:  # in kazoo's thread
            if event.type != _NO_EVENT:
                session.post(on_event_of)

        def on_event_of() -> None:
            # After an older arming the last one sees the same change, and tells of it.
            if arming == self._arming and session is self._table.session:
                self._table.on_event_of(self, self._place, session)

        return on_event

    def _notify(self) -> None:
        loop = asyncio.get_running_loop()
        for watch in self.watches:
            loop.call_soon(watch.call)


class ZookeeperWatches:
    """The watches of a `Coordination`, from session to session."""

    def __init__(self) -> None:
        self._place_watches: dict[_Place, _PlaceWatch] = {}
        self.session: Session | None = None  # the session's, while it lasts
        self.tasks = TaskSupervisor(self._arm_again)

    def add(self, kind: WatchKind, path: str, callback: Callable[[], None]) -> ZookeeperWatch:
        place = _Place(kind, path)
        sentry = self._place_watches.get(place)
        is_new = sentry is None
        if sentry is None:
            sentry = self._place_watches[place] = _PlaceWatch(self, place)
        watch = ZookeeperWatch(sentry, callback)
        sentry.watches.append(watch)
        if is_new and self.session is not None:
            sentry.arm(self.session)
        return watch

    def _arm_again(self, name: str, error: BaseException) -> None:
        """A watch that is not armed would miss changes in silence: the next connection arms all."""
        _log.error("%s failed; connecting again to arm it", name, exc_info=error)
        if self.session is not None:
            self.session.cut()

    def attach(self, session: Session) -> None:
        """There is a connection: arm everything."""
        is_renewed = self.session is not session
        self.session = session
        for place, sentry in tuple(self._place_watches.items()):
            if sentry.watches:
                if is_renewed:
                    sentry.clear()
                sentry.arm(session, has_event=is_renewed)
            else:
                del self._place_watches[place]

    def detach(self) -> None:
        """The session is over."""
        self.session = None

    async def close(self) -> None:
        self.session = None
        self._place_watches.clear()
        await self.tasks.close()

    def on_event_of(self, sentry: _PlaceWatch, place: _Place, session: Session) -> None:
        if self._place_watches.get(place) is not sentry:
            return
        if sentry.watches:
            sentry.arm(session, has_event=True)
        else:
            del self._place_watches[place]


async def _read_data_ids(answer: asyncio.Future[Stat | None]) -> _Seen:
    stat = await answer
    return _NOTHING if stat is None else _Seen(stat.czxid, stat.mzxid)


def _watch_children(
    session: Session, path: str, event: Event
) -> asyncio.Future[tuple[list[str], Stat]]:
    return session.call(
        lambda client: client.get_children_async(path, watch=event, include_data=True)
    )
