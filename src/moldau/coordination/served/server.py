"""Serves the embedded store to the processes of one machine, over a Unix socket. A shell.

Each client has a session: it ends when the client says so, when it was silent for the session's
time-out (`SessionTimeouts`), or when the process is known to have ended (`end_sessions_of`). What
nodes and transactions mean is the store's own (`tree`, `embedded`); a session goes on over another
connection, and is told then of whatever its watches may have missed.

Sessions live in this process: when it ends, they are over, and nobody can listen in its place
without another store having been opened. A write is answered after it was synced, so that a killed
server has lost nothing that it answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol, assert_never

from moldau.clock import Clock, Timer
from moldau.coordination.embedded import EmbeddedSession, EmbeddedStore
from moldau.coordination.port import CoordinationError, Watch
from moldau.coordination.served.messages import (
    UNREAD_BYTES,
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
    decode_request,
    encode_response,
)
from moldau.coordination.tree import WatchKind
from moldau.errors import StartupError
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
        self._expire_silent_sessions()

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
            self._timeouts.remove(session_id)
            session.store.expire()
            for watch in session.watches.values():
                watch.cancel()
            session.connection.send(SessionExpired())

    def end_sessions_of(self, process_id: int) -> None:
        """Its process has ended, so nobody acts on the behalf of its sessions any more."""
        for session_id, session in tuple(self._sessions.items()):
            if session.process_id == process_id:
                self.expire(session_id)

    # Time

    def _expire_silent_sessions(self) -> None:
        self._timer = self._clock.call_later(CHECK_SECONDS, self._expire_silent_sessions)
        for session_id in self._timeouts.remove_expired(self._clock.monotonic()):
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
        connection: StoreSocket[ToClient] = StoreSocket(
            connected,
            encode_response,
            lambda frame: self.receive(connection, decode_request(frame)),
            lambda reason: self._on_broken(connection, reason),
            UNREAD_BYTES,
        )
        self._connections[connection] = None

    def _on_broken(self, connection: ServedConnection, reason: str) -> None:
        """The session may come back over another connection."""
        _log.debug("a connection to the coordination store has ended: %s", reason)
        self.remove_connection(connection)

    def remove_connection(self, connection: ServedConnection) -> None:
        self._connections.pop(connection, None)

    def receive(self, connection: ServedConnection, message: ToService) -> None:
        """Raises `ValueError` for what no client of ours sends; then the connection is closed."""
        if isinstance(message, ConnectRequest):
            self._connect(connection, message)
            return
        session = self._connections.get(connection)
        if session is None:
            raise ValueError("a client connects first")
        if session.store.session_id not in self._sessions:
            connection.send(SessionExpired())
            return
        self._timeouts.note_activity(session.store.session_id, self._clock.monotonic())
        self._handle(session, message)

    def _connect(self, connection: ServedConnection, request: ConnectRequest) -> None:
        if self._connections.get(connection) is not None:
            raise ValueError("a client connects a session once for each connection")
        now = self._clock.monotonic()
        if not request.session_id:
            session = _Session(
                store=self._store.session(), process_id=request.process_id, connection=connection
            )
            self._sessions[session.store.session_id] = session
            self._timeouts.add(session.store.session_id, request.timeout_seconds, now)
        elif (found := self._sessions.get(request.session_id)) is not None:
            session = found
            self.remove_connection(session.connection)
            session.connection.close()
            session.connection = connection
            self._timeouts.note_activity(request.session_id, now)
        else:
            connection.send(SessionExpired())
            return
        self._connections[connection] = session
        for place in set(session.watches) - set(request.watches):
            session.watches.pop(place).cancel()
        for place in request.watches:
            self._watch(session, place)
        connection.send(ConnectResponse(session_id=session.store.session_id))
        if request.session_id and request.seen < self._store.changes_made:
            for place in request.watches:  # nobody knows which of them have changed
                self._notify(session, place)

    # Requests

    def _handle(self, session: _Session, message: ToService) -> None:
        match message:
            case Ping():
                self._respond(session.connection, message.number, None)
            case ReadNodes():
                entries = map(self._store.find, message.paths)
                nodes = [None if entry is None else entry.node for entry in entries]
                self._respond(session.connection, message.number, nodes)
            case ReadChildren():
                names = self._store.children(message.path)
                self._respond(session.connection, message.number, names)
            case Write():
                self._tasks.spawn(
                    "write to the coordination store",
                    self._write(session, session.connection, message),
                )
            case CloseSession():
                self._tasks.spawn(
                    "end of a session",
                    self._close_session(session, session.connection, message.number),
                )
            case AddWatch():
                self._watch(session, message.place)
            case RemoveWatch():
                watch = session.watches.pop(message.place, None)
                if watch is not None:
                    watch.cancel()
            case ConnectRequest():
                raise ValueError("a client connects first")
            case _:
                assert_never(message)

    async def _write(self, session: _Session, connection: ServedConnection, message: Write) -> None:
        result: Result
        try:
            result = await session.store.submit(message.operations)
        except (CoordinationError, ValueError) as error:
            result = error
        self._respond(connection, message.number, result)

    async def _close_session(
        self, session: _Session, connection: ServedConnection, number: int
    ) -> None:
        session_id = session.store.session_id
        self._timeouts.remove(session_id)
        if self._sessions.pop(session_id, None) is not None:
            await session.store.close()
        self._respond(connection, number, None)

    def _respond(self, connection: ServedConnection, number: int, result: Result) -> None:
        seen = self._store.changes_made
        connection.send(StoreResponse(number=number, result=result, seen=seen))

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
        session.connection.send(WatchEvent(place=place, seen=self._store.changes_made))


def _report(name: str, error: BaseException) -> None:
    _log.error("%s failed", name, exc_info=error)


# The socket on which a store is served: where it is, and that it is for this user only. A shell.
#
# It is in the store's folder. Where the path is too long for a socket (108 bytes on Linux, 104 on
# macOS), or the file system has no sockets, it is in a folder of this user under the temporary one,
# named after the store's. Who calls this holds the lock of the store's file, so a socket that is
# there already was left by a process that has ended.


SOCKET_NAME: Final = "coordination.sock"
_MAX_PATH_BYTES: Final = 100
_ONLY_THIS_USER: Final = 0o177  # what the others, and executing, are denied
_BACKLOG: Final = 64


@contextlib.contextmanager
def listening_beside(folder: Path) -> Iterator[tuple[socket.socket, Path]]:
    """A socket that listens, and its path; both are gone after the block."""
    listener, path = _listen_near(folder.resolve())
    try:
        yield listener, path
    finally:
        listener.close()
        path.unlink(missing_ok=True)
        if path.parent != folder.resolve():
            with contextlib.suppress(OSError):  # it is gone already, or somebody put files into it
                path.parent.rmdir()


def listen_again(folder: Path, path: Path) -> socket.socket | None:
    """Another socket at `path`, of the store in `folder`, if the one that was there is gone.

    Whoever cleans up old files removes sockets too, above all in a temporary folder. Those that are
    connected stay so, and notice nothing; but nobody finds the store any more.
    """
    if path.exists():
        return None
    if path.parent != folder.resolve():
        _private_folder(folder.resolve())
    return _listen(path)


def _listen_near(folder: Path) -> tuple[socket.socket, Path]:
    path = folder / SOCKET_NAME
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        try:
            return _listen(path), path
        except OSError as error:
            failure: OSError | None = error  # a file system without sockets
    else:
        failure = None
    elsewhere = _private_folder(folder) / SOCKET_NAME
    try:
        return _listen(elsewhere), elsewhere
    except OSError as error:
        first = f"{path}: {failure}; " if failure else ""
        raise StartupError(
            f"no socket can be made for the coordination store ({first}{elsewhere}: {error}); "
            "let TMPDIR name a folder with a short path"
        ) from error


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    former = os.umask(_ONLY_THIS_USER)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    finally:
        os.umask(former)
    return listener


def _private_folder(folder: Path) -> Path:
    """One that nobody else may enter: others can make folders of any name beside it."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    private = Path(tempfile.gettempdir()) / f"moldau-{os.getuid()}-{digest}"
    with contextlib.suppress(FileExistsError):
        private.mkdir(mode=0o700)
    found = private.lstat()
    if (
        not stat.S_ISDIR(found.st_mode)
        or found.st_uid != os.getuid()
        or stat.S_IMODE(found.st_mode) & 0o077
    ):
        raise StartupError(f"{private} is not a folder of this user alone: remove it")
    return private


# When a session of a served store is over: not heard of for its time-out. A rule.
#
# The one who looks may be late itself: its process was paused, or the machine slept. What its
# clients have sent meanwhile is not read yet, so nobody's silence is known: every session is given
# the time that the look was late. A session that lasts longer harms nobody; a lease ends by itself.


CHECK_SECONDS: Final = 0.25
"""How often somebody has to look."""

MIN_TIMEOUT_SECONDS: Final = 4 * CHECK_SECONDS
"""A shorter one would be counted too roughly, and is made this one."""


@dataclass(slots=True)
class _Silence:
    timeout_seconds: float
    heard_at: float


class SessionTimeouts:
    """The sessions that are alive, and when each was heard of last."""

    def __init__(self, now: float) -> None:
        self._expire_silent_sessionsed_at = now
        self._sessions: dict[int, _Silence] = {}

    def add(self, session_id: int, timeout_seconds: float, now: float) -> None:
        timeout = max(timeout_seconds, MIN_TIMEOUT_SECONDS)
        self._sessions[session_id] = _Silence(timeout, now)

    def note_activity(self, session_id: int, now: float) -> None:
        silence = self._sessions.get(session_id)
        if silence is not None:
            silence.heard_at = max(silence.heard_at, now)

    def remove(self, session_id: int) -> None:
        self._sessions.pop(session_id, None)

    def remove_expired(self, now: float) -> list[int]:
        """Whose time is over; they are not heard of again."""
        late = now - self._expire_silent_sessionsed_at - CHECK_SECONDS
        self._expire_silent_sessionsed_at = now
        if late > CHECK_SECONDS:
            for silence in self._sessions.values():
                silence.heard_at = min(now, silence.heard_at + late)
        expired = [
            session_id
            for session_id, silence in self._sessions.items()
            if now - silence.heard_at >= silence.timeout_seconds
        ]
        for session_id in expired:
            del self._sessions[session_id]
        return expired
