"""Who wants to hear of which path. Part of the embedded store.

A watch that has been fired and not called yet is not fired again: one call tells of both changes,
as the port allows. It is called from the loop's own queue, never from inside the change, and
watches are called in the order in which they were set, so that simulations repeat to the step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple


class WatchKind(Enum):
    DATA = auto()
    CHILDREN = auto()


class _Place(NamedTuple):
    kind: WatchKind
    path: str


class WatchTable:
    """All watches of a store."""

    def __init__(self) -> None:
        self._watches: dict[_Place, list[EmbeddedWatch]] = {}  # no empty lists

    def add(
        self, session_id: int, kind: WatchKind, path: str, callback: Callable[[], None]
    ) -> EmbeddedWatch:
        place = _Place(kind, path)
        watch = EmbeddedWatch(self, place, session_id, callback)
        self._watches.setdefault(place, []).append(watch)
        return watch

    def remove(self, watch: EmbeddedWatch) -> None:
        watches = self._watches.get(watch.place, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._watches[watch.place]

    def remove_session(self, session_id: int) -> None:
        for watches in tuple(self._watches.values()):
            for watch in tuple(watches):
                if watch.session_id == session_id:
                    watch.cancel()

    def fire(self, kind: WatchKind, path: str) -> None:
        for watch in self._watches.get(_Place(kind, path), ()):
            watch.fire()


class EmbeddedWatch:
    """One watch. It stays until it is cancelled or its session ends."""

    __slots__ = ("_callback", "_cancelled", "_pending", "_table", "place", "session_id")

    def __init__(
        self, table: WatchTable, place: _Place, session_id: int, callback: Callable[[], None]
    ) -> None:
        self.place = place
        self.session_id = session_id
        self._table = table
        self._callback = callback
        self._pending = False
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._table.remove(self)

    def fire(self) -> None:
        if not self._pending:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        self._pending = False
        if not self._cancelled:
            self._callback()
