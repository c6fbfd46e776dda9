"""Coordination stores in memory: they outlive the brokers of a test and are closed after it."""

from __future__ import annotations

from moldau.clock import Clock
from moldau.coordination.embedded import MEMORY, EmbeddedStore
from moldau.workers import InlineWorkers, Workers

_open: list[EmbeddedStore] = []


async def open_memory_store(clock: Clock, workers: Workers | None = None) -> EmbeddedStore:
    store = await EmbeddedStore.open(MEMORY, clock=clock, workers=workers or InlineWorkers())
    _open.append(store)
    return store


def close_memory_stores() -> None:
    """Python 3.13 and newer warn about a connection to SQLite that is not closed."""
    while _open:
        _open.pop()._database.close()  # the event loop of the store has ended
