"""Who wants to hear of which path. Part of the embedded store.

A watch that has been fired and not called yet is not fired again: one call tells of both changes,
as the port allows. It is called from the loop's own queue, never from inside the change, and
watches are called in the order in which they were set, so that simulations repeat to the step.
The watches of a session that was lost are silent until it is renewed.
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
        self, owner: object, kind: WatchKind, path: str, callback: Callable[[], None]
    ) -> EmbeddedWatch:
        place = _Place(kind, path)
        watch = EmbeddedWatch(self, place, owner, callback)
        self._watches.setdefault(place, []).append(watch)
        return watch

    def remove(self, watch: EmbeddedWatch) -> None:
        watches = self._watches.get(watch.place, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._watches[watch.place]

    def remove_all_of(self, owner: object) -> None:
        for watch in self._all_of(owner):
            watch.cancel()

    def silence_all_of(self, owner: object) -> None:
        for watch in self._all_of(owner):
            watch.silence()

    def wake_all_of(self, owner: object) -> None:
        """Arm them again and tell each, since it may have missed something."""
        for watch in self._all_of(owner):
            watch.wake()

    def _all_of(self, owner: object) -> list[EmbeddedWatch]:
        everyones = (watch for watches in self._watches.values() for watch in watches)
        return [watch for watch in everyones if watch.owner is owner]

    def fire(self, kind: WatchKind, path: str) -> None:
        for watch in self._watches.get(_Place(kind, path), ()):
            watch.fire()


class EmbeddedWatch:
    """One watch. It stays until it is cancelled or its owner is closed."""

    __slots__ = ("_callback", "_cancelled", "_pending", "_silent", "_table", "owner", "place")

    def __init__(
        self, table: WatchTable, place: _Place, owner: object, callback: Callable[[], None]
    ) -> None:
        self.place = place
        self.owner = owner
        self._table = table
        self._callback = callback
        self._pending = False
        self._cancelled = False
        self._silent = False

    def cancel(self) -> None:
        self._cancelled = True
        self._table.remove(self)

    def silence(self) -> None:
        self._silent = True

    def wake(self) -> None:
        self._silent = False
        self.fire()

    def fire(self) -> None:
        if not self._pending and not self._silent:
            self._pending = True
            asyncio.get_running_loop().call_soon(self._call)

    def _call(self) -> None:
        self._pending = False
        if not self._cancelled and not self._silent:
            self._callback()
