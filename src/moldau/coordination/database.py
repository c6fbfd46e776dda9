"""The SQLite file under the embedded store. Blocks: the store calls it in a worker.

One table of nodes and one of counters. Ephemeral nodes are not written: a session lives in the
process, so after a restart they are gone, as they must be. That they were made is written: ids and
sequence numbers go on where they were.

The file is in WAL mode and every commit is synced; it is locked for this process alone, since the
store reads from memory what it wrote and would not see the changes of another. Making the file
would cost eight syncs in SQLite's own way; here it costs none, and before the first commit a
checkpoint syncs what that commit will stand on (SQLite drops a log beside an empty file).
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeGuard

from moldau.coordination.port import Node, StoreLostError
from moldau.coordination.tree import ROOT, Change, Entry, Tree, parent_of
from moldau.errors import StartupError

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

    def close(self) -> None:
        self._connection.close()


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
    for path, count in child_counts.items():
        if path not in entries:
            raise ValueError(f"the parent {path} of {count} nodes is missing")
        entries[path] = entries[path]._replace(child_count=count)
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
