"""Coordination inside one process: a tree in memory, every change of it in SQLite first. A shell.

Serves a broker that is alone, and the brokers of a test that share one store, each with a session
of its own. Reading never waits. Writing goes through one queue: what has gathered while the last
commit was under way is carried out in order and committed together, then applied to the tree; then
the callers are answered, in the same order, and the watches fire. So nobody sees what is not on
disk, and a sync serves many. If the commit fails, none of it happened and every caller is told.

A store and its sessions belong to one event loop. What the semantics are: `tree`, `port`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TypeGuard

from moldau.clock import Clock
from moldau.coordination.port import (
    CoordinationError,
    Node,
    SessionExpiredError,
    StoreLostError,
    Watch,
)
from moldau.coordination.tree import (
    ROOT,
    Change,
    Draft,
    EndSession,
    Entry,
    Tree,
    TreeOperation,
    TreeOutcome,
    TreeWriter,
    WatchKind,
    WatchTable,
    check_operation,
    parent_of,
)
from moldau.errors import StartupError
from moldau.tasks import TaskSupervisor, finish_first
from moldau.workers import Workers

__all__ = ("FILE_NAME", "MEMORY", "EmbeddedSession", "EmbeddedStore")

_log = logging.getLogger("moldau.coordination")

FILE_NAME = "coordination.db"
"""Its name in the data folder."""

_OPERATIONS_PER_TURN = 250
"""Carried out before somebody else may use the loop: a topic of a thousand partitions has two
thousand of them, and each takes some microseconds."""


@dataclass(slots=True, kw_only=True)
class _Request:
    """A transaction that waits for its turn."""

    session: EmbeddedSession
    operations: Sequence[TreeOperation]
    answer: asyncio.Future[list[TreeOutcome]]
    outcome: list[TreeOutcome] | CoordinationError | None = None

    @property
    def ends_session(self) -> bool:
        return any(isinstance(operation, EndSession) for operation in self.operations)

    def resolve(self) -> None:
        if self.answer.done():  # the caller was cancelled
            return
        if isinstance(self.outcome, list):
            self.answer.set_result(self.outcome)
        elif self.outcome is not None:
            self.answer.set_exception(self.outcome)


class EmbeddedStore:
    """The store. One task at a time, the writer, changes the tree."""

    def __init__(
        self,
        database: Database,
        tree: Tree,
        clock: Clock,
        workers: Workers,
        first_session_id: int = 1,
    ) -> None:
        self._database = database
        self._tree = tree
        self.find = tree.find  # reads are no transactions
        self.children = tree.children
        self._clock = clock
        self._workers = workers
        self._queue: list[_Request] = []
        self._writing = False
        self._session_ids = count(first_session_id)
        self._tasks = TaskSupervisor(_report)
        self._written = asyncio.Event()  # set while no writer runs
        self._written.set()
        self.watches = WatchTable()
        self.changes_made = 0  # transactions since the store was opened

    @classmethod
    async def open(
        cls,
        location: Path | str,
        *,
        clock: Clock,
        workers: Workers,
        first_session_id: int = 1,
    ) -> EmbeddedStore:
        """Open or make the file, or `MEMORY`. Raises `StartupError` that says what to do.

        Where sessions outlive a process (`served.server`), ids must not come again after a restart.
        """
        opened: list[Database] = []

        def open_database() -> Tree:
            database, tree = Database.open(location)
            opened.append(database)
            return tree

        try:
            tree = await finish_first(workers.run(open_database))
        except BaseException:  # a broker that is stopped meanwhile leaves no connection open
            for database in opened:
                database.close()
            raise
        return cls(opened[0], tree, clock, workers, first_session_id)

    def session(self) -> EmbeddedSession:
        return EmbeddedSession(self)

    def next_session_id(self) -> int:
        return next(self._session_ids)

    async def close(self) -> None:
        """Write what is waiting, then close the file. Sessions are of no use afterwards."""
        await finish_first(self._close())

    async def _close(self) -> None:
        await self._written.wait()
        await self._workers.run(self._database.close)

    async def submit(
        self, session: EmbeddedSession, operations: Sequence[TreeOperation]
    ) -> list[TreeOutcome]:
        request = _request(session, operations)
        self._enqueue(request)
        return await request.answer

    def end_session(self, session: EmbeddedSession) -> asyncio.Future[list[TreeOutcome]]:
        """Take its ephemeral nodes away: now, or behind the writes that are under way."""
        request = _request(session, (EndSession(session_id=session.session_id),))
        if self._writing:
            self._enqueue(request)
        else:
            draft = Draft(self._tree, self._clock.now_ms())
            request.outcome = draft.perform(request.operations, session.session_id)
            self._finish((request,), draft, draft.changes())
        return request.answer

    def _enqueue(self, request: _Request) -> None:
        self._queue.append(request)
        if not self._writing:
            self._writing = True
            self._written.clear()
            self._tasks.spawn("coordination-writer", self._write())

    async def _write(self) -> None:
        requests: list[_Request] = []
        try:
            while self._queue:
                requests, self._queue = self._queue, []
                await self._commit(requests)
        finally:
            self._writing = False
            self._written.set()
            self._abandon(requests)
            self._abandon(self._queue)
            self._queue = []

    async def _commit(self, requests: Sequence[_Request]) -> None:
        draft = await self._plan(requests)
        changes, last_id = draft.changes(), draft.last_id
        try:
            if self._database.needs_commit(changes):
                await self._workers.run(lambda: self._database.commit(changes, last_id))
        except CoordinationError as error:
            # Ephemeral nodes are not on disk: their session ends all the same.
            draft = await self._plan([request for request in requests if request.ends_session])
            changes = draft.changes()
            for request in requests:
                if not request.ends_session:
                    request.outcome = error
        self._finish(requests, draft, changes)

    def _abandon(self, requests: Sequence[_Request]) -> None:
        """Answer those whom a writer that was cancelled or failed has left waiting."""
        for request in requests:
            request.outcome = StoreLostError("the coordination store has stopped")
            request.resolve()

    async def _plan(self, requests: Sequence[_Request]) -> Draft:
        """Carry out each request on top of those before it; a failed one leaves no trace.

        Others get their turns of the loop meanwhile. Nobody but the writer, who waits for this,
        changes the tree.
        """
        now_ms = self._clock.now_ms()
        together = Draft(self._tree, now_ms)
        left = _OPERATIONS_PER_TURN
        for request in requests:
            draft = Draft(together, now_ms)
            operations = request.operations
            outcomes: list[TreeOutcome] = []
            try:
                if not request.ends_session:
                    request.session.require_alive()
                while len(outcomes) < len(operations):
                    if not left:
                        await self._clock.sleep(0)
                        left = _OPERATIONS_PER_TURN
                    part = operations[len(outcomes) : len(outcomes) + left]
                    outcomes += draft.perform(part, request.session.session_id)
                    left -= len(part)
            except CoordinationError as error:
                request.outcome = error
            else:
                request.outcome = outcomes
                draft.merge_into(together)
        return together

    def _finish(
        self, requests: Sequence[_Request], draft: Draft, changes: Sequence[Change]
    ) -> None:
        """In one step: the tree changes, the callers are answered, the watches fire."""
        self._tree.apply(draft.changed)
        self._tree.last_id = draft.last_id
        self.changes_made += len(requests)
        for request in requests:
            request.resolve()
        for change in changes:
            self._fire(change)

    def _fire(self, change: Change) -> None:
        path, before, after = change
        if before is not None and after is not None:
            if before.node == after.node:
                return  # only its children changed, and they are told of by their own entries
            is_another = before.node.created_id != after.node.created_id
        else:
            is_another = before is not after
        if is_another or after is not None:
            self.watches.fire_data(path)
        if is_another:
            self.watches.fire_children(parent_of(path))


class EmbeddedSession(TreeWriter):
    """One session with the store: the `Coordination` port."""

    def __init__(self, store: EmbeddedStore) -> None:
        self._store = store
        self._session_id = store.next_session_id()
        self._ending: asyncio.Future[list[TreeOutcome]] | None = (
            None  # None while the session lasts
        )
        self._closed = False
        self._on_end: list[Callable[[], None]] = []

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def lease_end(self) -> float:
        """The store is in this process: the session ends by `expire` or not at all."""
        return math.inf if self._ending is None else -math.inf

    async def get(self, path: str) -> Node | None:
        self.require_alive()
        entry = self._store.find(path)
        return None if entry is None else entry.node

    async def get_many(self, paths: Sequence[str]) -> Sequence[Node | None]:
        self.require_alive()
        entries = map(self._store.find, paths)
        return [None if entry is None else entry.node for entry in entries]

    async def children(self, path: str) -> Sequence[str]:
        self.require_alive()
        return self._store.children(path)

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        self.require_alive()
        return self._store.watches.add(self, WatchKind.DATA, path, callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        self.require_alive()
        return self._store.watches.add(self, WatchKind.CHILDREN, path, callback)

    def on_session_end(self, callback: Callable[[], None]) -> None:
        self._on_end.append(callback)

    async def renew(self) -> None:
        if self._ending is not None and not self._closed:
            # Its ephemeral nodes go first, and with them what it had still asked for.
            await asyncio.wait((self._ending,))
        if self._closed:
            raise SessionExpiredError(f"session {self._session_id} was closed")
        if self._ending is not None:
            self._ending = None
            self._session_id = self._store.next_session_id()
            self._store.watches.wake_all_of(self)

    async def close(self) -> None:
        self._closed = True
        self._store.watches.remove_all_of(self)
        if self._ending is None:
            self._ending = self._store.end_session(self)
            await self._ending

    def expire(self) -> None:
        """What a server does to a session that was silent for too long; for tests."""
        if self._ending is not None:
            return
        self._store.watches.silence_all_of(self)
        self._ending = self._store.end_session(self)
        for callback in self._on_end:
            asyncio.get_running_loop().call_soon(callback)

    async def submit(self, operations: Sequence[TreeOperation]) -> list[TreeOutcome]:
        self.require_alive()
        for operation in operations:
            check_operation(operation)
        return await self._store.submit(self, operations)

    def require_alive(self) -> None:
        if self._ending is not None:
            raise SessionExpiredError(f"session {self._session_id} has ended")


def _request(session: EmbeddedSession, operations: Sequence[TreeOperation]) -> _Request:
    return _Request(
        session=session,
        operations=operations,
        answer=asyncio.get_running_loop().create_future(),
    )


def _report(name: str, error: BaseException) -> None:
    _log.error("%s failed", name, exc_info=error)


# The SQLite file under the embedded store. Blocks: the store calls it in a worker.
#
# One table of nodes and one of counters. Ephemeral nodes are not written: a session lives in the
# process, so after a restart they are gone, as they must be. That they were made is written: ids
# and sequence numbers go on where they were.
#
# The file is in WAL mode and every commit is synced; it is locked for this process alone, since the
# store reads from memory what it wrote and would not see the changes of another. Making the file
# would cost eight syncs in SQLite's own way; here it costs none, and before the first commit a
# checkpoint syncs what that commit will stand on (SQLite drops a log beside an empty file).


MEMORY = ":memory:"
SCHEMA_VERSION = 1

_Row = tuple[str, bytes, int, int, int, int]
"""A node in the order of the columns."""

_SCHEMA = (
    """CREATE TABLE nodes (
        path TEXT PRIMARY KEY,
        data BLOB NOT NULL,
        version INTEGER NOT NULL,
        created_id INTEGER NOT NULL,
        modified_ms INTEGER NOT NULL,
        children_made INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
# The cast is for those who edited a node by hand: the shell of SQLite writes text.
_LOAD = (
    "SELECT path, CAST(data AS BLOB), version, created_id, modified_ms, children_made FROM nodes"
)
_PUT = "INSERT OR REPLACE INTO nodes VALUES (?, ?, ?, ?, ?, ?)"
_REMOVE = "DELETE FROM nodes WHERE path = ?"
_COUNT = "INSERT OR REPLACE INTO counters VALUES ('last_id', ?)"
_LAST_ID = "SELECT value FROM counters WHERE name = 'last_id'"


class Database:
    """An open file. One thread at a time uses it."""

    def __init__(self, connection: sqlite3.Connection, location: str, *, is_new: bool) -> None:
        self._connection = connection
        self.close = connection.close
        self._location = location
        self._is_new = is_new  # nothing of it is known to be on disk yet

    @classmethod
    def open(cls, location: Path | str) -> tuple[Database, Tree]:
        """Open or make the file and read all of it."""
        name = str(location)
        with contextlib.ExitStack() as cleanup:
            try:
                _keep_private(name)
                connection = sqlite3.connect(
                    name, isolation_level=None, check_same_thread=False, timeout=0
                )
                cleanup.callback(connection.close)
                is_new = _prepare(connection, name)
                tree = _load(connection)
                database = cls(connection, name, is_new=is_new)
            except (sqlite3.Error, ValueError) as error:
                raise StartupError(_advice(name, error)) from error
            cleanup.pop_all()
        return database, tree

    def commit(self, changes: Iterable[Change], last_id: int) -> None:
        """Returns when the changes would survive a power loss; raises with nothing changed.

        Except that after a failing sync nobody knows, hence the kind of error.
        """
        rows = []
        removed = []
        for change in changes:
            if _is_stored(change.after):
                rows.append(_row(change.path, change.after))
            elif _is_stored(change.before):
                removed.append((change.path,))
        try:
            self._write(rows, removed, last_id)
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.rollback()
            raise StoreLostError(
                f"{self._location} cannot be written ({error}): is the disk full?"
            ) from error

    @staticmethod
    def needs_commit(changes: Iterable[Change]) -> bool:
        """Deleting ephemeral nodes does not touch the file."""
        return any(
            _find_row(change.path, change.before) != _find_row(change.path, change.after)
            for change in changes
        )

    def _write(self, rows: Sequence[_Row], removed: Sequence[tuple[str]], last_id: int) -> None:
        connection = self._connection
        if self._is_new:
            connection.execute("PRAGMA wal_checkpoint")
            self._is_new = False
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(_REMOVE, removed)
        connection.executemany(_PUT, rows)
        connection.execute(_COUNT, (last_id,))
        connection.execute("COMMIT")


def _keep_private(name: str) -> None:
    """A new file is its owner's alone, and what SQLite puts beside it, too: it has in it what is
    known of users' passwords. One that is there keeps the mode that somebody gave it."""
    if name != MEMORY:
        with contextlib.suppress(OSError):  # SQLite says what is wrong
            os.close(os.open(name, os.O_RDWR | os.O_CREAT, 0o600))


def _prepare(connection: sqlite3.Connection, name: str) -> bool:
    """Returns True for a file that did not exist before."""
    # An exclusive lock also does without the shared-memory file that WAL needs otherwise.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, SCHEMA_VERSION):
        raise StartupError(
            f"{name} was written by a newer Moldau (format {version}, this one knows "
            f"{SCHEMA_VERSION}): start it with that one"
        )
    connection.execute(f"PRAGMA synchronous = {'FULL' if version else 'OFF'}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")  # fails here, not later, when the file is read-only
    if version == 0:
        for statement in _SCHEMA:
            connection.execute(statement)
    connection.execute("COMMIT")
    connection.execute("PRAGMA synchronous = FULL")
    return bool(version == 0)


def _is_stored(entry: Entry | None) -> TypeGuard[Entry]:
    return entry is not None and not entry.node.ephemeral_owner


def _find_row(path: str, entry: Entry | None) -> _Row | None:
    return _row(path, entry) if _is_stored(entry) else None


def _load(connection: sqlite3.Connection) -> Tree:
    entries: dict[str, Entry] = {}
    child_counts: dict[str, int] = {}
    for path, data, version, created_id, modified_ms, children_made in connection.execute(_LOAD):
        node = Node(
            data=data,
            version=version,
            created_id=created_id,
            modified_ms=modified_ms,
            ephemeral_owner=0,
        )
        entries[path] = Entry(node, children_made)
        if path != ROOT:
            parent = parent_of(path)
            child_counts[parent] = child_counts.get(parent, 0) + 1
    for path, child_count in child_counts.items():
        if path not in entries:
            raise ValueError(f"the parent {path} of {child_count} nodes is missing")
        entries[path] = entries[path]._replace(child_count=child_count)
    row = connection.execute(_LAST_ID).fetchone()
    return Tree(entries, last_id=0 if row is None else row[0])


def _row(path: str, entry: Entry) -> _Row:
    node = entry.node
    return (
        path,
        node.data,
        node.version,
        node.created_id,
        node.modified_ms,
        entry.children_made,
    )


def _advice(name: str, error: Exception) -> str:
    code = getattr(error, "sqlite_errorname", "")
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return f"{name} is in use by another process: stop that broker, or use another data folder"
    if code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH")):
        return (
            f"{name} cannot be opened for writing ({error}): let this user read and write the file "
            "and its folder, or use another data folder"
        )
    if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
        return f"{name} cannot be written ({error}): free some space or replace the disk"
    return (
        f"{name} is damaged ({error}): put a copy from a backup in its place, or move it away and "
        "make the topics anew (it holds the list of topics and their configs, not their records)"
    )
