"""A coordination service as a machine of a simulation: reachable over links that can be cut.

The tree is the one of `coordination.tree`. A session lives as long as its client is heard of within
the session's time-out, by the service's clock; then its ephemeral nodes go, whatever the client
believes. A client (`SimulatedSession`) is one `Coordination` port.

    service = CoordinationService(network, clock)
    session = await open_session(service, host="broker-1", clock=clock, timeout_seconds=6)
    network.cut("broker-1", service.host)       # requests and answers stay on the way
    service.drop("broker-1")                    # or are lost
    service.expire(session.session_id)

As with ZooKeeper: what one session asks for is done in order; a watch is told before the answer
that shows its change; a request of a connection that was given up may still be done, until the
session comes back over another one.

With `draw_lag` the service is an ensemble of three: writes are done at once, but each connection
ends at a server that hears of them later. So reads may be old, though never older than what the
same session has seen or written, and a heartbeat is answered when its server has caught up.

A server can be cut off from the ensemble (`cut_off`, `close_connections`, `rejoin`): it answers
reads from what it knows until the session asks for something that only the leader can do (a write,
a heartbeat), which waits, and all that the session asks for later. Its sessions are silent for the
leader, and time out. The leader can change (`begin_election`, `end_election`): all connections end,
of the requests under way the first few of each connection are done, nobody is served until the
election is over, and all time-outs begin anew then.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, assert_never

from moldau.clock import Clock
from moldau.coordination.port import CoordinationError, Node
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
    ToClient,
    ToService,
    WatchEvent,
    WatchPlace,
    Write,
)
from moldau.coordination.served.session import StoreSession
from moldau.coordination.tree import (
    ROOT,
    Change,
    Draft,
    EndSession,
    Entry,
    Tree,
    TreeOperation,
    TreeOutcome,
    WatchKind,
    parent_of,
)
from moldau.simulation.memory_connection import PipeLinks

DEFAULT_HOST: Final = "coordination"
_SERVERS: Final = 3

Observer = Callable[[list[Change]], None]
"""Hears of every change of the tree, at the moment of it."""


class SessionRecord(NamedTuple):
    """From when to when a session was alive, by the service's own count."""

    session_id: int
    host: str
    began: float
    ended: float  # infinite while it is alive


class _Server:
    """What one server of the ensemble knows."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.applied = 0  # the last change that it has heard of
        self.under_way: deque[_News] = deque()  # changes, in the order in which they arrive
        self.due = 0.0  # of the last one
        self.is_cut_off = False  # from the leader
        self.is_closed = False  # it has noticed, and serves nobody
        self.missed: deque[_News] = deque()  # changes that have not arrived since it is cut off


class _Pending(NamedTuple):
    """An answer that waits until the session's server knows of a change."""

    change: int
    answer: ToClient


@dataclass(slots=True, kw_only=True, eq=False)
class _Session:
    session_id: int
    host: str
    timeout_seconds: float
    heard_at: float
    connection: ServiceConnection
    is_over: bool = False
    is_working: bool = False
    watches: dict[WatchPlace, None] = field(default_factory=dict)
    backlog: deque[_Pending | ToService] = field(default_factory=deque)

    @property
    def server(self) -> _Server:
        return self.connection.server


class ServiceConnection:
    """Both streams of a connection, and what the service knows of it."""

    def __init__(
        self,
        service: CoordinationService,
        server: _Server,
        host: str,
        clock: Clock,
        deliver: Callable[[ToClient], None],
        on_broken: Callable[[], None],
    ) -> None:
        self.host = host
        self.server = server  # where it ends
        self.session_id = 0  # 0 until the service has answered the first message
        self.is_closed = False
        self._service = service
        self._clock = clock
        self._on_broken = on_broken
        links = service.links
        self.to_service: StoreStream[ToService] = StoreStream(
            links,
            host,
            service.host,
            reader_clock=service.clock,
            deliver=lambda message: service.receive(self, message),
        )
        self.to_client: StoreStream[ToClient] = StoreStream(
            links, service.host, host, reader_clock=clock, deliver=deliver
        )

    def send(self, message: ToService) -> None:
        self.to_service.send(message)

    def release(self) -> None:
        self.to_service.release()
        self.to_client.release()

    def close(self) -> None:
        """By the client. What it has sent may still arrive; what is sent to it does not."""
        self.is_closed = True
        self.to_client.break_down()

    def break_down(self) -> None:
        """Nothing under way arrives, and the client is told."""
        if not self.is_closed:
            self.close()
            self.to_service.break_down()
            self._clock.call_later(0, self._on_broken)


class CoordinationService:
    """The service. It belongs to one event loop, and keeps everything in memory."""

    def __init__(
        self,
        links: StoreLinks,
        clock: Clock,
        *,
        host: str = DEFAULT_HOST,
        draw_lag: Callable[[], float] | None = None,
    ) -> None:
        """`draw_lag` gives the seconds after which a server hears of a change; None: at once."""
        self._draw_lag = draw_lag
        self._servers = [_Server() for _ in range(1 if draw_lag is None else _SERVERS)]
        self._turn = count()  # to which server the next connection leads
        self.links = links
        self.clock = clock
        self.host = host
        self.tree = Tree()
        self.observers: list[Observer] = []
        self._sessions: dict[int, _Session] = {}  # alive ones
        self._records: dict[int, SessionRecord] = {}
        self._session_ids = count(0x1000)
        self._connections: dict[ServiceConnection, None] = {}  # in the order of their making
        self._changed: dict[WatchPlace, int] = {}  # when a place changed last
        self._restores = 0  # from a backup
        self._change = 0  # counts the transactions that changed something
        self._is_electing = False
        links.when_healed(self._release)

    # For tests

    def find(self, path: str) -> Node | None:
        entry = self.tree.find(path)
        return None if entry is None else entry.node

    def write(self, operations: Sequence[TreeOperation]) -> None:
        """As somebody with a shell of the service would, in one transaction."""
        self._write(0, operations)

    def take_backup(self) -> dict[str, Entry]:
        """All that is in the tree."""
        return {path: self._require(path) for path in sorted(self.tree.paths_below(ROOT))}

    def restore(self, backup: Mapping[str, Entry]) -> None:
        """Put a backup in the place of everything, as if the servers were stopped and started.

        Sessions end. What belonged to those of the backup's time goes as they time out: here at
        once, since nobody comes back to them.
        """
        for session_id in tuple(self._sessions):
            self.expire(session_id)
        gone: dict[str, Entry | None] = dict.fromkeys(self.tree.paths_below(ROOT) - backup.keys())
        self._commit({**gone, **backup}, self.tree.last_id)
        owners = {entry.node.ephemeral_owner for entry in backup.values()} - {0}
        self._write(0, [EndSession(session_id=owner) for owner in sorted(owners)])
        self._restores += 1
        for server in self._servers:  # each was given the backup; nothing is under way to it
            server.tree = Tree(self.take_backup(), self.tree.last_id)
            server.applied = self._change
            server.missed.clear()

    def _require(self, path: str) -> Entry:
        entry = self.tree.find(path)
        if entry is None:
            raise ValueError(f"there is no {path}")
        return entry

    def drop(self, host: str) -> None:
        """Break the connections of a client; what is under way is lost."""
        for session in self._sessions.values():
            if session.host == host and session.server.is_cut_off:
                session.backlog.clear()
        for connection in tuple(self._connections):
            if connection.host == host:
                self._break(connection)

    def _break(self, connection: ServiceConnection) -> None:
        self._forget_connection(connection)
        connection.break_down()

    def expire(self, session_id: int) -> None:
        """End a session as if its client had not been heard of for too long."""
        session = self._sessions.get(session_id)
        if session is not None:
            self._end(session)
            session.connection.to_client.send(SessionExpired())

    def expire_sessions_of(self, host: str) -> None:
        for session in tuple(self._sessions.values()):
            if session.host == host:
                self.expire(session.session_id)

    def forgive(self) -> None:
        """Begin all time-outs anew, as a new leader of an ensemble does."""
        for session in self._sessions.values():
            session.heard_at = self.clock.monotonic()

    # The ensemble

    @property
    def server_count(self) -> int:
        return len(self._servers)

    def hosts_at(self, number: int) -> frozenset[str]:
        """The clients whose sessions are at a server."""
        server = self._servers[number]
        return frozenset(each.host for each in self._sessions.values() if each.server is server)

    def can_tell(self, host: str) -> bool:
        """Whether a client hears at once that its session is over."""
        servers = [each.server for each in self._sessions.values() if each.host == host]
        return not self._is_electing and not any(server.is_cut_off for server in servers)

    def cut_off(self, number: int) -> None:
        """From now on a server hears of no change, and passes nothing on to the leader."""
        self._servers[number].is_cut_off = True

    def close_connections(self, number: int) -> None:
        """A server that is cut off gives up: clients go elsewhere, what they asked for is lost."""
        server = self._servers[number]
        if server.is_cut_off:
            server.is_closed = True
            self._close_connections(server)

    def _close_connections(self, server: _Server) -> None:
        for session in self._sessions.values():
            if session.server is server:
                session.backlog.clear()
        for connection in tuple(self._connections):
            if connection.server is server:
                self._break(connection)

    def rejoin(self, number: int) -> None:
        """A server that was cut off hears of everything, and passes on what has waited there."""
        server = self._servers[number]
        if not server.is_cut_off:
            return
        server.is_cut_off = server.is_closed = False
        while server.missed:
            self._apply(server, server.missed.popleft())
        for connection in tuple(self._connections):
            if connection.server is not server or not connection.session_id:
                continue
            session = self._sessions.get(connection.session_id)
            if session is None:
                connection.to_client.send(SessionExpired())
            elif session.connection is connection:
                if session.backlog:
                    session.heard_at = self.clock.monotonic()
                self._work_off(session)

    def heal(self) -> None:
        """No server is cut off any more, and there is a leader."""
        self.end_election()
        for number in range(self.server_count):
            self.rejoin(number)

    def begin_election(self, share: float) -> None:
        """There is no leader from now on. `share` is what is done of each session's writes that are
        under way, the first ones first; no client knows which."""
        self._is_electing = True
        for connection in tuple(self._connections):
            if not connection.server.is_cut_off:
                connection.to_service.deliver_all()
        for session in tuple(self._sessions.values()):
            if not session.server.is_cut_off:
                writes = [
                    each for each in session.backlog if isinstance(each, Write | CloseSession)
                ]
                self._carry_out(session, writes[: int(share * (len(writes) + 1))])
        for server in self._servers:
            self._close_connections(server)

    def _carry_out(self, session: _Session, writes: Sequence[Write | CloseSession]) -> None:
        """Nobody is told."""
        for message in writes:
            if isinstance(message, CloseSession):
                self._end(session)
                return
            self._try(session.session_id, message.operations)

    def end_election(self) -> None:
        """The new leader has brought the servers up to date, and every session lasts anew."""
        if not self._is_electing:
            return
        self._is_electing = False
        for server in self._servers:
            if not server.is_cut_off:
                server.tree = Tree(self.take_backup(), self.tree.last_id)
                server.applied = self._change
        self.forgive()

    def records_of(self, host: str) -> list[SessionRecord]:
        """All sessions that a host ever had."""
        return [record for record in self._records.values() if record.host == host]

    # For clients

    def connect(
        self,
        host: str,
        clock: Clock,
        deliver: Callable[[ToClient], None],
        on_broken: Callable[[], None],
    ) -> ServiceConnection | None:
        server = self._servers[next(self._turn) % len(self._servers)]
        if self._is_electing or server.is_closed:
            return None
        connection = ServiceConnection(self, server, host, clock, deliver, on_broken)
        self._connections[connection] = None
        return connection

    def receive(self, connection: ServiceConnection, message: ToService) -> None:
        is_cut_off = connection.server.is_cut_off or self._is_electing
        if isinstance(message, ConnectRequest):
            if not is_cut_off:  # else it is the leader who would have to know the session
                self._greet(connection, message)
            return
        session = self._sessions.get(connection.session_id)
        if session is None:
            if not is_cut_off:
                connection.to_client.send(SessionExpired())
        elif session.connection is connection:
            if not is_cut_off:
                session.heard_at = self.clock.monotonic()
            session.backlog.append(message)
            self._work_off(session)

    # Sessions

    def _greet(self, connection: ServiceConnection, hello: ConnectRequest) -> None:
        now = self.clock.monotonic()
        if not hello.session_id:
            session = _Session(
                session_id=next(self._session_ids),
                host=connection.host,
                timeout_seconds=hello.timeout_seconds,
                heard_at=now,
                connection=connection,
            )
            self._sessions[session.session_id] = session
            self._records[session.session_id] = SessionRecord(
                session.session_id, session.host, now, float("inf")
            )
            self._check_later(session, session.timeout_seconds)
        elif (found := self._sessions.get(hello.session_id)) is not None:
            session = found
            self._forget_connection(session.connection)
            session.connection, session.heard_at = connection, now
            session.backlog.clear()  # of the former connection
        else:
            connection.to_client.send(SessionExpired())
            return
        connection.session_id = session.session_id
        session.watches = dict.fromkeys(hello.watches)
        if hello.session_id:
            self._send_missed(session, hello.seen)
        welcome = ConnectResponse(session_id=session.session_id)
        session.backlog.append(_Pending(hello.seen, welcome))
        self._work_off(session)

    def _send_missed(self, session: _Session, seen: int) -> None:
        """Later changes are told when the server hears of them."""
        for place in session.watches:
            if seen < self._changed.get(place, 0) <= session.server.applied:
                told = WatchEvent(place=place, seen=session.server.applied)
                session.backlog.append(_Pending(seen, told))

    def _check_later(self, session: _Session, seconds: float) -> None:
        self.clock.call_later(seconds, lambda: self._check(session))

    def _check(self, session: _Session) -> None:
        if session.is_over:
            return
        left = session.heard_at + session.timeout_seconds - self.clock.monotonic()
        if self._is_electing:
            self._check_later(session, session.timeout_seconds)
        elif left > 1e-9:
            self._check_later(session, left)
        else:
            self._end(session)

    def _end(self, session: _Session) -> None:
        session.is_over = True
        del self._sessions[session.session_id]
        record = self._records[session.session_id]
        self._records[session.session_id] = record._replace(ended=self.clock.monotonic())
        self._write(session.session_id, (EndSession(session_id=session.session_id),))

    def _forget_connection(self, connection: ServiceConnection) -> None:
        self._connections.pop(connection, None)

    def _release(self) -> None:
        for connection in tuple(self._connections):
            connection.release()

    # Requests

    def _work_off(self, session: _Session) -> None:
        """Serve one after the other, until one has to wait for the session's server."""
        if self._is_electing or session.is_working:  # a write of its own has come to its server
            return
        session.is_working = True
        while session.backlog and not session.is_over:
            first = session.backlog[0]
            if isinstance(first, _Pending):
                if session.server.applied < first.change:
                    break
                session.backlog.popleft()
                session.connection.to_client.send(first.answer)
            elif session.server.is_cut_off and isinstance(first, Ping | Write | CloseSession):
                break
            else:
                session.backlog.popleft()
                self._serve(session, first)
        session.is_working = False

    def _serve(self, session: _Session, message: ToService) -> None:
        tree = session.server.tree
        match message:
            case Ping():
                self._answer(session, message.number, None)
            case ReadNodes():
                entries = [tree.find(path) for path in message.paths]
                nodes = [None if entry is None else entry.node for entry in entries]
                self._answer(session, message.number, nodes, is_read=True)
            case ReadChildren():
                names = tree.children(message.path)
                self._answer(session, message.number, names, is_read=True)
            case Write():
                self._answer(
                    session, message.number, self._try(session.session_id, message.operations)
                )
            case CloseSession():
                self._end(session)
                answer = StoreResponse(number=message.number, result=None, seen=0)
                session.connection.to_client.send(answer)
            case AddWatch():
                session.watches[message.place] = None
            case RemoveWatch():
                session.watches.pop(message.place, None)
            case ConnectRequest():
                raise ValueError("a session is greeted once for each connection")
            case _:
                assert_never(message)

    def _answer(
        self, session: _Session, number: int, result: Result, *, is_read: bool = False
    ) -> None:
        """What was written is answered when the server knows of it, and so is a heartbeat."""
        change = session.server.applied if is_read else self._change
        answer = StoreResponse(number=number, result=result, seen=change)
        session.backlog.appendleft(_Pending(change, answer))

    def _try(self, session_id: int, operations: Sequence[TreeOperation]) -> Result:
        try:
            return self._write(session_id, operations)
        except CoordinationError as error:
            return error

    def _write(self, session_id: int, operations: Sequence[TreeOperation]) -> list[TreeOutcome]:
        draft = Draft(self.tree, self.clock.now_ms())
        outcomes = draft.perform(operations, session_id)
        self._commit(draft.changed, draft.last_id)
        return outcomes

    def _commit(self, changed: dict[str, Entry | None], last_id: int) -> None:
        changes = [Change(path, self.tree.find(path), entry) for path, entry in changed.items()]
        self.tree.apply(changed)
        self.tree.last_id = last_id
        self._change += 1
        for observer in self.observers:
            observer(changes)
        places = dict.fromkeys(place for change in changes for place in _touched(change))
        self._changed.update(dict.fromkeys(places, self._change))
        news = _News(self._change, changed, tuple(places), self._restores)
        for server in self._servers:
            self._send(server, news)

    def _send(self, server: _Server, news: _News) -> None:
        if self._draw_lag is None:
            self._apply(server, news)
            return
        now = self.clock.monotonic()
        server.due = max(server.due, now + self._draw_lag())
        server.under_way.append(news)  # timers of the same moment may be rounded out of order
        self.clock.call_later(
            server.due - now, lambda: self._apply(server, server.under_way.popleft())
        )

    def _apply(self, server: _Server, news: _News) -> None:
        """A server hears of a change: watches are told, then answers that waited for it."""
        if news.restores != self._restores or news.change <= server.applied:
            return  # of before a restore, or of before an election
        if server.is_cut_off:
            server.missed.append(news)
            return
        server.tree.apply(news.changed)
        server.applied = news.change
        for session in tuple(self._sessions.values()):
            if session.server is server:
                for place in news.places:
                    if place in session.watches:
                        told = WatchEvent(place=place, seen=news.change)
                        session.connection.to_client.send(told)
                self._work_off(session)


class _News(NamedTuple):
    """A change on its way to the servers."""

    change: int
    changed: dict[str, Entry | None]
    places: tuple[WatchPlace, ...]
    restores: int


def _touched(change: Change) -> list[WatchPlace]:
    before = None if change.before is None else change.before.node
    after = None if change.after is None else change.after.node
    if before == after:
        return []  # only its children changed, and they are told of by their own entries
    places = [WatchPlace(WatchKind.DATA, change.path)]
    if before is None or after is None or before.created_id != after.created_id:
        places.append(WatchPlace(WatchKind.CHILDREN, parent_of(change.path)))
    return places


_OPENING_TIMEOUTS: Final = 10.0
"""How many session time-outs to wait for the service at first."""


class SimulatedSession(StoreSession):
    """The client. Use `open_session`; owned by the loop of its clock."""

    def __init__(
        self,
        service: CoordinationService,
        host: str,
        clock: Clock,
        timeout_seconds: float,
        process_id: int = 0,
    ) -> None:
        super().__init__(partial(service.connect, host, clock), clock, timeout_seconds, process_id)
        self._service = service

    def expire(self) -> None:
        """End the session now, and let the service know of it at once."""
        session_id = self.session_id
        if not self.is_lost:
            self._service.clock.call_later(0, lambda: self._service.expire(session_id))
            self._end_session()


@contextlib.asynccontextmanager
async def open_session(
    service: CoordinationService,
    *,
    host: str,
    clock: Clock,
    timeout_seconds: float,
    process_id: int = 0,
) -> AsyncIterator[SimulatedSession]:
    """A session that lasts as long as the block; raises `StoreLostError` without a service."""
    session = SimulatedSession(service, host, clock, timeout_seconds, process_id)
    await session.open(_OPENING_TIMEOUTS * timeout_seconds)
    try:
        yield session
    finally:
        await session.close()


# How the messages of a simulated coordination service travel.
#
# A `StoreStream` carries messages one way, in order: late by the delay of its link, held while the
# link is cut, gone when the connection is broken.


M = TypeVar("M")


class StoreLinks(PipeLinks, Protocol):
    """The ways between hosts, and when they are open again: `MemoryNetwork`."""

    def when_healed(self, callback: Callable[[], None]) -> None: ...


class StoreStream(Generic[M]):
    """One direction of a connection."""

    def __init__(
        self,
        links: StoreLinks,
        source: str,
        target: str,
        *,
        reader_clock: Clock,
        deliver: Callable[[M], None],
    ) -> None:
        self._links = links
        self._source = source
        self._target = target
        self._reader_clock = reader_clock
        self._deliver = deliver
        self._underway: deque[M] = deque()
        self._last_due = 0.0  # of the reader's clock: nothing overtakes
        self._held = 0  # messages whose time came while the link was cut
        self._is_broken = False

    def send(self, message: M) -> None:
        if self._is_broken:
            return
        self._underway.append(message)
        now = self._reader_clock.monotonic()
        delay = self._links.draw_delay(self._source, self._target)
        self._last_due = max(self._last_due, now + delay)
        self._reader_clock.call_later(self._last_due - now, self._arrive)

    def _arrive(self) -> None:
        if self._links.is_cut(self._source, self._target):
            self._held += 1
        elif self._underway:
            self._deliver(self._underway.popleft())

    def release(self) -> None:
        """The link may be open again."""
        held, self._held = self._held, 0
        for _ in range(held):
            self._reader_clock.call_later(0, self._arrive)

    def deliver_all(self) -> None:
        """What is under way arrives now, unless the link is cut."""
        while self._underway and not self._links.is_cut(self._source, self._target):
            self._deliver(self._underway.popleft())

    def break_down(self) -> None:
        """What is under way is lost."""
        self._is_broken = True
        self._underway.clear()
