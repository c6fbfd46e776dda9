"""A process that serves a store is killed, before any statement that it gives to SQLite.

What was answered is there afterwards, whole; what was under way is there whole or not at all.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.clock import SystemClock
from moldau.coordination.embedded import FILE_NAME, Database, EmbeddedStore
from moldau.coordination.port import Create, Delete, Operation, SetData
from moldau.coordination.served.server import StoreServer, listening_beside
from moldau.coordination.served.session import SocketConnector, StoreSession
from moldau.workers import InlineWorkers

TRANSACTIONS = 12
LONG = 60.0

Books = dict[str, tuple[bytes, int]]
"""Data and version of each node that stays."""


class Remains(NamedTuple):
    """What a crash leaves, and how many transactions had been answered before it."""

    folder: Path
    answered: int


class Crashes:
    """Copies what is on disk before each statement: the page cache survives a killed process."""

    def __init__(self, folder: Path, target: Path) -> None:
        self._folder = folder
        self._target = target
        self.answered = 0
        self.remains: list[Remains] = []

    def __call__(self, statement: str) -> None:
        folder = self._target / str(len(self.remains))
        folder.mkdir()
        for file in self._folder.glob(f"{FILE_NAME}*"):
            shutil.copy(file, folder)
        self.remains.append(Remains(folder, self.answered))


def choose(chance: random.Random, books: Books) -> tuple[list[Operation], Books]:
    """A transaction that is possible, and what it makes of the books."""
    after = dict(books)
    operations: list[Operation] = []
    for _ in range(chance.randint(1, 4)):
        path = f"/n{chance.randrange(6)}"
        data = chance.randbytes(chance.randrange(2_000))
        found = after.get(path)
        if found is None:
            operations.append(Create(path=path, data=data))
            after[path] = (data, 0)
        elif chance.random() < 0.3:
            operations.append(Delete(path=path, version=found[1]))
            del after[path]
        else:
            operations.append(SetData(path=path, data=data, version=found[1]))
            after[path] = (data, found[1] + 1)
    return operations, after


async def write(folder: Path, crashes: Crashes, chance: random.Random) -> list[Books]:
    """Transactions of one client; the books after each of them, beginning with none."""
    history: list[Books] = [{}]
    async with AsyncExitStack() as cleanup:
        clock = SystemClock()
        store = await EmbeddedStore.open(folder / FILE_NAME, clock=clock, workers=InlineWorkers())
        cleanup.push_async_callback(store.close)
        listener, path = cleanup.enter_context(listening_beside(folder))
        server = StoreServer(store, clock, listener)
        cleanup.push_async_callback(server.close)
        server.start()
        session = StoreSession(SocketConnector(str(path), lambda: None), clock, LONG)
        await session.open(LONG)
        cleanup.push_async_callback(session.close)
        connection = store._database._connection
        connection.set_trace_callback(crashes)
        for _ in range(TRANSACTIONS):
            operations, books = choose(chance, history[-1])
            history.append(books)
            await session.transact(operations)
            crashes.answered += 1
        connection.set_trace_callback(None)
    return history


def read(folder: Path) -> Books:
    database, tree = Database.open(folder / FILE_NAME)
    try:
        found = {f"/{name}": tree.find(f"/{name}") for name in tree.children("/")}
        return {path: (one.node.data, one.node.version) for path, one in found.items() if one}
    finally:
        database.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_any_statement_loses_nothing_that_was_answered(seed: int) -> None:
    with tempfile.TemporaryDirectory(prefix="moldau-") as name:
        folder, target = Path(name) / "data", Path(name) / "crashes"
        folder.mkdir()
        target.mkdir()
        crashes = Crashes(folder, target)
        history = asyncio.run(write(folder, crashes, random.Random(seed)))
        assert len(crashes.remains) > TRANSACTIONS
        for remains in crashes.remains:
            expected = history[remains.answered : remains.answered + 2]
            assert read(remains.folder) in expected, f"after {remains.answered}"
