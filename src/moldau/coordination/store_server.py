"""Serves the embedded store to the processes of one machine, over a Unix socket. A shell.

Each client has a session: it ends when the client says so, when it was silent for the session's
time-out (`session_timeouts`), or when the process is known to have ended (`end_sessions_of`). What
nodes and transactions mean is the store's own (`tree`, `embedded`); a session goes on over another
connection, and is told then of whatever its watches may have missed.

Sessions live in this process: when it ends, they are over, and nobody can listen in its place
without another store having been opened. A write is answered after it was synced, so that a killed
server has lost nothing that it answered.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, assert_never

from moldau.clock import Clock, Timer
from moldau.coordination.embedded import EmbeddedSession, EmbeddedStore
from moldau.coordination.port import CoordinationError, Watch
from moldau.coordination.session_timeouts import LOOK_SECONDS, SessionTimeouts
from moldau.coordination.store_codec import decode_request, encode_answer
from moldau.coordination.store_messages import (
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
from moldau.coordination.store_socket import UNREAD_BYTES, StoreSocket
from moldau.coordination.watches import WatchKind
from moldau.tasks import TaskSupervisor

_log = logging.getLogger("moldau.coordination")

_PAUSE_SECONDS = 1.0
"""After a client could not be accepted, mostly for want of descriptors: the kernel would tell of it
again at once, and without end."""


class ServedConnection(Protocol):
    """A connection of a client; it speaks for one session."""

    def send(self, message: ToClient) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True, kw_only=True, eq=False)
class _Session:
    """A client's session, over whichever connection it has at the moment."""

    store: EmbeddedSession
    process_id: int
    connection: ServedConnection
    watches: dict[WatchPlace, Watch] = field(default_factory=dict)


class _SocketConnection:
    """One over a Unix socket."""

    def __init__(self, server: StoreServer, connected: socket.socket) -> None:
        self._server = server
        self._socket = StoreSocket(connected, self._receive, self._break, UNREAD_BYTES)

    def send(self, message: ToClient) -> None:
        self._socket.send(encode_answer(message))

    def close(self) -> None:
        self._socket.close()

    def _receive(self, frame: bytes) -> None:
        self._server.receive(self, decode_request(frame))

    def _break(self, reason: str) -> None:
        """The session may come back over another one."""
        _log.debug("a connection to the coordination store has ended: %s", reason)
        self._server.forget(self)


class StoreServer:
    """The server. It belongs to the loop of its store."""

    def __init__(
        self, store: EmbeddedStore, clock: Clock, listener: socket.socket | None = None
    ) -> None:
        """`listener` is bound and listens; it is closed with the server. Without one, whoever has
        connections hands over what arrives (`receive`)."""
        self._store = store
        self._clock = clock
        self._listener = listener
        self._timeouts = SessionTimeouts(clock.monotonic())
        self._sessions: dict[int, _Session] = {}  # alive ones
        # Open ones, and whom they speak for: None before they were greeted.
        self._connections: dict[ServedConnection, _Session | None] = {}
        self._is_closed = False
        self._tasks = TaskSupervisor(_report)
        self._timer: Timer | None = None
        self._pause: Timer | None = None  # nobody is accepted while it runs

    def start(self) -> None:
        if self._listener is not None:
            self._listen(self._listener)
        self._look()

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def listen_on(self, listener: socket.socket) -> None:
        """Instead of the former one, which nobody can find any more. Connections stay."""
        self._stop_listening()
        if self._pause is not None:
            self._pause.cancel()
        self._listener = listener
        self._listen(listener)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()

    async def close(self) -> None:
        """Sessions that are left end with it."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop_listening()
        for timer in (self._timer, self._pause):
            if timer is not None:
                timer.cancel()
        for connection in tuple(self._connections):
            connection.close()
        self._connections.clear()
        await self._tasks.close()

    @property
    def session_count(self) -> int:
        return len(self._sessions)

    def expire(self, session_id: int) -> None:
        """End a session: its ephemeral nodes go, and its client is told."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._timeouts.end(session_id)
            session.store.expire()
            for watch in session.watches.values():
                watch.cancel()
            session.connection.send(Expired())

    def end_sessions_of(self, process_id: int) -> None:
        """Its process has ended, so nobody acts on the behalf of its sessions any more."""
        for session_id, session in tuple(self._sessions.items()):
            if session.process_id == process_id:
                self.expire(session_id)

    # Time

    def _look(self) -> None:
        self._timer = self._clock.call_later(LOOK_SECONDS, self._look)
        for session_id in self._timeouts.take_expired(self._clock.monotonic()):
            process_id = self._sessions[session_id].process_id
            _log.warning("process %d was silent for too long: its session ends", process_id)
            self.expire(session_id)

    # Connections

    def _accept(self, listener: socket.socket) -> None:
        try:
            connected, _ = listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            _log.error("the coordination store accepts nobody for a second: %s", error.strerror)
            asyncio.get_running_loop().remove_reader(listener)
            self._pause = self._clock.call_later(_PAUSE_SECONDS, partial(self._listen, listener))
            return
        self._connections[_SocketConnection(self, connected)] = None

    def forget(self, connection: ServedConnection) -> None:
        self._connections.pop(connection, None)

    def receive(self, connection: ServedConnection, message: ToService) -> None:
        """Raises `ValueError` for what no client of ours sends; then the connection is closed."""
        if isinstance(message, Hello):
            self._greet(connection, message)
            return
        session = self._connections.get(connection)
        if session is None:
            raise ValueError("a client greets first")
        if session.store.session_id not in self._sessions:
            connection.send(Expired())
            return
        self._timeouts.hear(session.store.session_id, self._clock.monotonic())
        self._serve(session, message)

    def _greet(self, connection: ServedConnection, hello: Hello) -> None:
        if self._connections.get(connection) is not None:
            raise ValueError("a client greets once for each connection")
        now = self._clock.monotonic()
        if not hello.session_id:
            session = _Session(
                store=self._store.session(), process_id=hello.process_id, connection=connection
            )
            self._sessions[session.store.session_id] = session
            self._timeouts.begin(session.store.session_id, hello.timeout_seconds, now)
        elif (found := self._sessions.get(hello.session_id)) is not None:
            session = found
            self.forget(session.connection)
            session.connection.close()
            session.connection = connection
            self._timeouts.hear(hello.session_id, now)
        else:
            connection.send(Expired())
            return
        self._connections[connection] = session
        for place in set(session.watches) - set(hello.watches):
            session.watches.pop(place).cancel()
        for place in hello.watches:
            self._watch(session, place)
        connection.send(Welcome(session_id=session.store.session_id))
        if hello.session_id and hello.seen < self._store.changes_made:
            for place in hello.watches:  # nobody knows which of them have changed
                self._notify(session, place)

    # Requests

    def _serve(self, session: _Session, message: ToService) -> None:
        match message:
            case Ping():
                self._answer(session.connection, message.number, None)
            case ReadNodes():
                entries = map(self._store.find, message.paths)
                nodes = [None if entry is None else entry.node for entry in entries]
                self._answer(session.connection, message.number, nodes)
            case ReadChildren():
                names = self._store.children(message.path)
                self._answer(session.connection, message.number, names)
            case Write():
                self._tasks.spawn(
                    "write to the coordination store",
                    self._write(session, session.connection, message),
                )
            case Bye():
                self._tasks.spawn(
                    "end of a session", self._end(session, session.connection, message.number)
                )
            case AddWatch():
                self._watch(session, message.place)
            case RemoveWatch():
                watch = session.watches.pop(message.place, None)
                if watch is not None:
                    watch.cancel()
            case Hello():
                raise ValueError("a client greets first")
            case _:
                assert_never(message)

    async def _write(self, session: _Session, connection: ServedConnection, message: Write) -> None:
        result: Result
        try:
            result = await session.store.submit(message.operations)
        except (CoordinationError, ValueError) as error:
            result = error
        self._answer(connection, message.number, result)

    async def _end(self, session: _Session, connection: ServedConnection, number: int) -> None:
        session_id = session.store.session_id
        self._timeouts.end(session_id)
        if self._sessions.pop(session_id, None) is not None:
            await session.store.close()
        self._answer(connection, number, None)

    def _answer(self, connection: ServedConnection, number: int, result: Result) -> None:
        seen = self._store.changes_made
        connection.send(StoreAnswer(number=number, result=result, seen=seen))

    # Watches

    def _watch(self, session: _Session, place: WatchPlace) -> None:
        if place not in session.watches:
            watch: Callable[[str, Callable[[], None]], Watch] = (
                session.store.watch_data
                if place.kind is WatchKind.DATA
                else session.store.watch_children
            )
            session.watches[place] = watch(place.path, partial(self._notify, session, place))

    def _notify(self, session: _Session, place: WatchPlace) -> None:
        session.connection.send(Told(place=place, seen=self._store.changes_made))


def _report(name: str, error: BaseException) -> None:
    _log.error("%s failed", name, exc_info=error)
