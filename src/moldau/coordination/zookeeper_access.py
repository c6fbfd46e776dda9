"""Gives nodes that are there already the access lists that new ones get, or opens them again.

What Kafka's `zookeeper-security-migration` does. It can be done while brokers work, again, and by
somebody who goes on where another was cut off: each node is looked at by itself, and one whose list
is right is left alone. A shell.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Iterable, Sequence
from typing import Final

from moldau.coordination.port import NoAccessError, NoNodeError
from moldau.coordination.tree import ROOT
from moldau.coordination.zookeeper import ZookeeperSession
from moldau.coordination.zookeeper_client import AccessEntry, Result, Stat, StoreClient
from moldau.coordination.zookeeper_requests import access_list

_AT_ONCE: Final = 500
_WORLD: Final = "world"

_Right = tuple[int, str, str]
"""Permissions as bits, the scheme, and who it is in that scheme."""


class AccessMigration:
    """One run over the nodes of a cluster. Used by one task."""

    def __init__(self, session: ZookeeperSession, *, is_protected: bool) -> None:
        """Protected nodes belong to whom the session has shown to be."""
        self._session = session
        self._is_protected = is_protected
        # What ZooKeeper writes for the maker of a node; not known before the first one is written.
        self._owners: frozenset[_Right] | None = None if is_protected else frozenset()
        self.seen = 0
        self.changed = 0
        self.refused: list[str] = []  # nodes that belong to somebody else

    async def run(self, roots: Sequence[str]) -> None:
        """Set the lists of these nodes and of all below them, parents first. The root stands for
        itself alone: what is below it and not named may be somebody else's."""
        level = list(roots)
        while level:
            below: list[str] = []
            start = 0
            while start < len(level):
                count = 1 if self._owners is None else _AT_ONCE
                paths = level[start : start + count]
                found = await asyncio.gather(*map(self._migrate, paths))
                below += [child for children in found for child in children]
                start += count
            level = below

    async def _migrate(self, path: str) -> list[str]:
        """Its children, to be done next."""
        try:
            await self._set_list(path)
            self.seen += 1
            names = [] if path == ROOT else await self._session.children(path)
        except NoAccessError:
            self.refused.append(path)
            return []
        except NoNodeError:
            return []  # deleted meanwhile, or never made
        return [f"{path}/{name}" for name in names]

    async def _set_list(self, path: str) -> None:
        former = await self._read(path)
        wanted = access_list(path, is_protected=self._is_protected)
        if self._owners is not None and former == self._expected(wanted):
            return
        await self._session.call(path, functools.partial(_write, acl=wanted))
        if self._owners is None:
            written = await self._read(path)
            self._owners = frozenset(one for one in written if one[1] != _WORLD)
            self.changed += written != former
        else:
            self.changed += 1

    def _expected(self, wanted: Sequence[AccessEntry]) -> frozenset[_Right]:
        """The list as ZooKeeper keeps it."""
        named = _rights(one for one in wanted if one.id.scheme == _WORLD)
        return named | (self._owners or frozenset())

    async def _read(self, path: str) -> frozenset[_Right]:
        entries, _ = await self._session.call(path, _get)
        return _rights(entries)


def _rights(entries: Iterable[AccessEntry]) -> frozenset[_Right]:
    return frozenset((one.perms, one.id.scheme, one.id.id) for one in entries)


def _get(client: StoreClient, full_path: str) -> Result[tuple[Sequence[AccessEntry], Stat]]:
    return client.get_acls_async(full_path)


def _write(client: StoreClient, full_path: str, *, acl: Sequence[AccessEntry]) -> Result[Stat]:
    return client.set_acls_async(full_path, acl)
