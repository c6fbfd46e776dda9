"""A folder of sequential nodes, each telling all brokers that something changed. A shell.

Kafka's way of watching thousands of things with one watch: who changes something adds a node that
names it; every broker reads the nodes that are new to it. Nobody takes them away on reading, since
others may not have read them: they are deleted some seconds later, by whoever comes first. So what
a change costs does not grow with the changes before it.

Numbers in the names have no gaps, and the newest node always stays. A broker that was too slow sees
from that that it has missed something, and reads everything.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from moldau.clock import Clock
from moldau.cluster import znodes
from moldau.coordination.port import (
    ANY_VERSION,
    Check,
    Coordination,
    Create,
    Delete,
    NoNodeError,
    Operation,
    StoreLostError,
)
from moldau.errors import MalformedNodeError

_log = logging.getLogger("moldau.cluster")

T = TypeVar("T")

KEPT_SECONDS: Final = 20.0
"""After a broker has read a notification it leaves it to the others for so long. Kafka keeps them
for a quarter of an hour, and lists them all at each change. Longer than a session lasts (9 s by
default): a broker that does not notice what it has missed is registered anew before, and reads
everything."""

PURGE_SECONDS: Final = 5.0
"""Between two deletions: each is one more change of the folder to everybody."""

_MOST_DELETED: Final = 500
_DIGITS: Final = 10
_NOTHING_READ: Final = -1


def announce_config(kind: str, name: str) -> Operation:
    """Tell all brokers to read a config again."""
    data = znodes.encode_config_change(znodes.ConfigEntity(kind, name))
    return Create(path=znodes.CONFIG_CHANGE_PREFIX, data=data, sequential=True)


async def catch_up(coordination: Coordination) -> None:
    """What this session reads afterwards shows all that was confirmed before (META-5).

    A server of ZooKeeper may answer a read from an older state. A transaction has a place in the
    order of all writes, and the reads of the session follow it.
    """
    check = Check(path=znodes.CONFIG_CHANGES, version=ANY_VERSION)
    await coordination.transact((check,))


class NewNotifications(NamedTuple, Generic[T]):
    """What was not read before."""

    found: list[T]
    is_complete: bool  # False: some were gone already, and nobody knows what they said


class ChangeNotifications(Generic[T]):
    """Reads one folder. Used by one task at a time."""

    def __init__(
        self,
        coordination: Coordination,
        clock: Clock,
        folder: str,
        decode: Callable[[str, bytes], T],
    ) -> None:
        self._coordination = coordination
        self._clock = clock
        self._folder = folder
        self._decode = decode
        self._last_read = _NOTHING_READ  # the number at the end of its name
        self._skipped: set[str] = set()
        self._seen: dict[str, float] = {}  # the names that are there, and since when we know them
        self._purged_at = float("-inf")

    async def skip_to_end(self) -> None:
        """What is there now is old news to a broker that reads everything next."""
        self._skipped.clear()  # a store that was set back gives the same names once more
        names = await self._list()
        self._last_read = _number_of(names[-1]) if names else _NOTHING_READ

    def skip_notification(self, path: str) -> None:
        """Do not read this one: who wrote it knows what it says."""
        self._skipped.add(path)

    async def read_new(self) -> NewNotifications[T]:
        """What was not read before. A notification that makes no sense is logged and skipped."""
        names = await self._list()
        new = [name for name in names if _number_of(name) > self._last_read]
        is_complete = self._is_next(new) if new else bool(names) or self._last_read < 0
        paths = [f"{self._folder}/{name}" for name in new]
        paths = [path for path in paths if path not in self._skipped]
        nodes = await self._coordination.get_many(paths)
        self._skipped.clear()
        found = []
        for path, node in zip(paths, nodes, strict=True):
            try:
                if node is None:
                    is_complete = False
                else:
                    found.append(self._decode(path, node.data))
            except MalformedNodeError as error:
                _log.error("a notification is skipped: %s", error)
        if new:
            self._last_read = _number_of(new[-1])
        with contextlib.suppress(StoreLostError):  # the next time is early enough
            await self._maybe_purge(names)
        return NewNotifications(found, is_complete)

    async def _list(self) -> list[str]:
        """The names that are there, by age."""
        now = self._clock.monotonic()
        names = [
            name
            for name in await self._coordination.children(self._folder)
            if name[-_DIGITS:].isdecimal()
        ]
        self._seen = {name: self._seen.get(name, now) for name in names}
        return sorted(names, key=_number_of)

    def _is_next(self, new: Sequence[str]) -> bool:
        return _number_of(new[0]) == self._last_read + 1

    async def _maybe_purge(self, names: Sequence[str]) -> None:
        """Delete what everybody has had time to read, but for the newest."""
        now = self._clock.monotonic()
        if now - self._purged_at < PURGE_SECONDS:
            return
        old = [name for name in names[:-1] if now - self._seen[name] >= KEPT_SECONDS]
        if old:
            self._purged_at = now
            deletions = [Delete(path=f"{self._folder}/{name}") for name in old[:_MOST_DELETED]]
            with contextlib.suppress(NoNodeError):  # another broker was faster
                await self._coordination.transact(deletions)


def _number_of(name: str) -> int:
    return int(name[-_DIGITS:])
