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
from itertools import chain


class WatchKind(Enum):
    DATA = auto()
    CHILDREN = auto()


class WatchTable:
    """All watches of a store."""

    def __init__(self) -> None:
        # By path, of each kind; no empty lists.
        self._of_data: dict[str, list[EmbeddedWatch]] = {}
        self._of_children: dict[str, list[EmbeddedWatch]] = {}

    def add(
        self, owner: object, kind: WatchKind, path: str, callback: Callable[[], None]
    ) -> EmbeddedWatch:
        by_path = self._of_data if kind is WatchKind.DATA else self._of_children
        watch = EmbeddedWatch(by_path, path, owner, callback)
        by_path.setdefault(path, []).append(watch)
        return watch

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
        both = chain(self._of_data.values(), self._of_children.values())
        return [watch for watches in both for watch in watches if watch.owner is owner]

    def fire_data(self, path: str) -> None:
        for watch in self._of_data.get(path, ()):
            watch.fire()

    def fire_children(self, path: str) -> None:
        for watch in self._of_children.get(path, ()):
            watch.fire()


class EmbeddedWatch:
    """One watch. It stays until it is cancelled or its owner is closed."""

    __slots__ = ("_callback", "_cancelled", "_path", "_pending", "_silent", "_table", "owner")

    def __init__(
        self,
        table: dict[str, list[EmbeddedWatch]],
        path: str,
        owner: object,
        callback: Callable[[], None],
    ) -> None:
        self.owner = owner
        self._table = table
        self._path = path
        self._callback = callback
        self._pending = False
        self._cancelled = False
        self._silent = False

    def cancel(self) -> None:
        self._cancelled = True
        watches = self._table.get(self._path, [])
        if self in watches:
            watches.remove(self)
            if not watches:
                del self._table[self._path]

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
