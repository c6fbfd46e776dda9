"""The store that `moldau start --brokers` serves to its brokers, in a simulated cluster.

The production `StoreServer` over an `EmbeddedStore` in a process of its own, the supervisor, whose
file is a real SQLite file. It can be paused, and killed: its sessions are over then, its
brokers find nobody at the socket and end by themselves, and the next supervisor opens what the
former one left on the disk when all of them have ended, and starts them again. It hears of the end
of a broker's process at once.

As in production the brokers and the supervisor are on one machine: what passes between them is
neither cut nor lost, while the supervisor lives.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final, cast

from moldau.clock import Clock
from moldau.coordination.embedded import FILE_NAME, EmbeddedSession, EmbeddedStore
from moldau.coordination.served.messages import ToClient, ToService
from moldau.coordination.served.server import StoreServer
from moldau.coordination.served.session import StoreGoneError
from moldau.coordination.tree import ROOT, Change, Draft, Tree, TreeOperation, TreeOutcome
from moldau.simulation.coordination_service import (
    CoordinationService,
    ServiceConnection,
    SessionRecord,
    StoreLinks,
)
from moldau.simulation.virtual_loop import ProcessClock, SimulatedProcess, VirtualLoop
from moldau.workers import Workers

_MEMORY_FOLDER: Final = Path("/dev/shm")  # noqa: S108 each run has a folder of its own there
_LOOK_SECONDS: Final = 0.1
_NOTICE_SECONDS: Final = 0.002
_SESSION_IDS: Final = 1_000_000
"""Those of each supervisor begin somewhere else."""


class _ObservedStore(EmbeddedStore):
    """Tells of each change as it comes into force, and of the end of each session."""

    on_change: Callable[[Sequence[Change]], None]
    on_end: Callable[[int], None]
    newest_session_id = 0

    @property
    def stored(self) -> Tree:
        return self._tree

    def next_session_id(self) -> int:
        self.newest_session_id = super().next_session_id()
        return self.newest_session_id

    def end_session(self, session: EmbeddedSession) -> asyncio.Future[list[TreeOutcome]]:
        self.on_end(session.session_id)
        return super().end_session(session)

    def leave_disk(self) -> None:
        """Give up the file, whose copy is in use now."""
        self._database.close()

    def _finish(self, requests: Any, draft: Draft, changes: Sequence[Change]) -> None:
        self.on_change(changes)
        super()._finish(requests, draft, changes)


class _ServedEnd:
    """A connection as the server has it."""

    def __init__(self, connection: ServiceConnection) -> None:
        self.send = connection.to_client.send
        self.close = connection.break_down


class ServedStore(CoordinationService):
    """In the place of a `CoordinationService`. `start` before anything else."""

    def __init__(
        self,
        links: StoreLinks,
        loop: VirtualLoop,
        start_ms: int,
        make_workers: Callable[[Clock], Workers],
    ) -> None:
        self._loop = loop
        self._start_ms = start_ms
        self._make_workers = make_workers
        self._lives = count(1)
        self._root = Path(
            tempfile.mkdtemp(
                prefix="moldau-store-", dir=_MEMORY_FOLDER if _MEMORY_FOLDER.is_dir() else None
            )
        )
        self.process = SimulatedProcess("supervisor", loop)
        super().__init__(links, ProcessClock(loop, self.process, start_ms=start_ms))
        self._folder = self._root / "0"
        self._folder.mkdir()
        self._store: _ObservedStore | None = None  # None while no supervisor serves it
        self._server: StoreServer | None = None
        self._ends: dict[ServiceConnection, _ServedEnd] = {}
        self.is_free: Callable[[], bool] = lambda: True  # all brokers of the former one have ended
        self.on_serving: Callable[[], None] = lambda: None
        self.on_gone: dict[str, Callable[[], None]] = {}  # by host: who finds nobody

    # The supervisor

    @property
    def is_serving(self) -> bool:
        return self._server is not None

    def start(self) -> None:
        """A supervisor comes: the first one, or one in the place of one that was killed."""
        if self.process.is_killed:
            self.process = SimulatedProcess("supervisor", self._loop)
            self.clock = ProcessClock(self._loop, self.process, start_ms=self._start_ms)
        if self._server is None:
            self.process.kept.append(self.process.spawn(self._take_over()))

    async def _take_over(self) -> None:
        while not self.is_free():
            await self.clock.sleep(_LOOK_SECONDS)
        opening = _ObservedStore.open(
            self._folder / FILE_NAME,
            clock=self.clock,
            workers=self._make_workers(self.clock),
            first_session_id=next(self._lives) * _SESSION_IDS,
        )
        opened = self._store = cast("_ObservedStore", await opening)
        opened.on_change, opened.on_end = self._apply_changes, self._note_end
        self._apply_difference(opened)
        self._server = StoreServer(opened, self.clock)
        self._server.start()
        self.on_serving()

    def _apply_difference(self, opened: _ObservedStore) -> None:
        """What was written and not yet in force, and what is gone with its sessions."""
        paths = sorted(opened.stored.paths_below(ROOT) | self.tree.paths_below(ROOT))
        self._apply_changes(
            [Change(path, self.tree.find(path), opened.find(path)) for path in paths]
        )

    def _apply_changes(self, changes: Sequence[Change]) -> None:
        self.tree.apply({each.path: each.after for each in changes})
        for observer in self.observers:
            observer(list(changes))

    def kill(self) -> None:
        """By kill -9: what it has written is on the disk, and nobody is served."""
        if self.process.is_killed:
            return
        self.process.kill()
        self._server = None
        self._ends.clear()
        former, self._folder = self._folder, self._root / str(next(self._lives))
        shutil.copytree(former, self._folder)  # its locks went with it
        if self._store is not None:
            self._store.leave_disk()
            self._store = None
        for session_id, record in self._records.items():
            if record.ended == float("inf"):
                self._note_end(session_id)
        for connection in tuple(self._connections):
            self._forget_connection(connection)
            connection.break_down()

    def heal(self) -> None:
        self.process.resume()
        self.start()

    def end_process(self, process_id: int) -> None:
        """The process of a broker has ended."""
        server = self._server
        if server is not None:
            self.clock.call_later(_NOTICE_SECONDS, partial(server.end_sessions_of, process_id))

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._root, ignore_errors=True)

    def write(self, operations: Sequence[TreeOperation]) -> None:
        raise NotImplementedError("nobody writes past the process that serves the store")

    # The sessions

    def connect(
        self,
        host: str,
        clock: Clock,
        deliver: Callable[[ToClient], None],
        on_broken: Callable[[], None],
    ) -> ServiceConnection | None:
        if self._server is None:
            self.on_gone.get(host, lambda: None)()
            raise StoreGoneError("nobody serves the coordination store")
        connection = super().connect(host, clock, deliver, on_broken)
        if connection is not None:
            self._ends[connection] = _ServedEnd(connection)
        return connection

    def receive(self, connection: ServiceConnection, message: ToService) -> None:
        if self._server is None or self._store is None:
            return
        end = self._ends[connection]
        former = self._store.newest_session_id
        self._server.receive(end, message)
        began = self._store.newest_session_id
        if began != former:
            self._records[began] = SessionRecord(
                began, connection.host, self._loop.time(), float("inf")
            )

    def _note_end(self, session_id: int) -> None:
        record = self._records.get(session_id)
        if record is not None and record.ended == float("inf"):
            self._records[session_id] = record._replace(ended=self._loop.time())
