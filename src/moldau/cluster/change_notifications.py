"""A folder of sequential nodes, each telling all brokers that something changed. A shell.

Kafka's way of watching thousands of things with one watch: who changes something adds a node that
names it; every broker reads the nodes that are new to it. Nobody takes them away on reading, since
others may not have read them: they are deleted when they are old, by whoever comes first.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from moldau.clock import Clock
from moldau.coordination.port import ConnectionLostError, Coordination, NoNodeError
from moldau.errors import MalformedNodeError

_log = logging.getLogger(__name__)

T = TypeVar("T")

EXPIRY_MS = 15 * 60 * 1000
"""Kafka's own; a broker that was away for longer has a new session and reads everything."""

PURGE_INTERVAL_MS = 60 * 1000


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
        self._last_read = ""  # names end in ten digits that only grow, so they sort by age
        self._skipped: set[str] = set()
        self._purged_ms = 0

    async def skip_to_end(self) -> None:
        """What is there now is old news to a broker that reads everything next."""
        names = await self._coordination.children(self._folder)
        self._last_read = names[-1] if names else ""  # lower than before in a store set back

    def skip(self, path: str) -> None:
        """Do not read this one: who wrote it knows what it says."""
        self._skipped.add(path)

    async def read_new(self) -> list[T]:
        """What was not read before. A notification that makes no sense is logged and skipped."""
        names = await self._coordination.children(self._folder)
        new = [name for name in names if name > self._last_read]
        paths = [f"{self._folder}/{name}" for name in new]
        paths = [path for path in paths if path not in self._skipped]
        self._skipped.clear()
        nodes = await self._coordination.get_many(paths)
        found = []
        for path, node in zip(paths, nodes, strict=True):
            try:
                if node is not None:
                    found.append(self._decode(path, node.data))
            except MalformedNodeError as error:
                _log.error("a notification is skipped: %s", error)
        if new:
            self._last_read = new[-1]
        with contextlib.suppress(ConnectionLostError):  # the next time is early enough
            await self._maybe_purge(names)
        return found

    async def _maybe_purge(self, names: Sequence[str]) -> None:
        now_ms = self._clock.now_ms()
        if now_ms - self._purged_ms < PURGE_INTERVAL_MS:
            return
        self._purged_ms = now_ms
        paths = [f"{self._folder}/{name}" for name in names]
        nodes = await self._coordination.get_many(paths)
        # By the store's own time: a broker whose clock is ahead would take away what is new.
        newest_ms = max((node.modified_ms for node in nodes if node is not None), default=0)
        for path, node in zip(paths, nodes, strict=True):
            if node is not None and node.modified_ms < newest_ms - EXPIRY_MS:
                with contextlib.suppress(NoNodeError):  # another broker was faster
                    await self._coordination.delete(path)
