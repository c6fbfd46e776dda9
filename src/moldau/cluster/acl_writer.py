"""Writes access control lists, and announces them. A shell.

Any broker may change them, so every write names the version that it is based on, and is tried again
when another broker was faster. All entries of one pattern are one node, and change together.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from moldau.cluster import entity_znodes
from moldau.cluster.change_notifications import catch_up
from moldau.cluster.cluster_admin import kafka_errors
from moldau.cluster.metadata_publisher import MetadataPublisher
from moldau.coordination.port import (
    BadVersionError,
    Coordination,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    Operation,
    write_over,
)
from moldau.errors import KafkaError, RequestTimedOutError
from moldau.model import AclBinding, AclEntry, AclFilter, ResourcePattern

ATTEMPTS: Final = 20

Entries = frozenset[AclEntry]
Outcome = Mapping[AclBinding, KafkaError | None]
"""What became of each binding."""


class AclWriter:
    """Used by many tasks of one loop at once; those of this broker wait for each other."""

    def __init__(self, coordination: Coordination, publisher: MetadataPublisher) -> None:
        self._coordination = coordination
        self._publisher = publisher
        self._writing = asyncio.Lock()

    async def catch_up(self) -> None:
        """Know every change that was confirmed before the call, whoever made it."""
        with kafka_errors():
            await self._publisher.refresh_acls()

    def find(self, wanted: AclFilter) -> list[AclBinding]:
        """The bindings that a filter means, as this broker knows them."""
        return sorted(
            AclBinding(pattern, entry)
            for pattern, entries in self._publisher.image.acls.items()
            if wanted.matches_pattern(pattern)
            for entry in entries
            if wanted.matches_entry(entry)
        )

    async def add(self, bindings: Iterable[AclBinding]) -> Outcome:
        return await self._change_all(bindings, lambda present, given: present | given)

    async def remove(self, bindings: Iterable[AclBinding]) -> Outcome:
        return await self._change_all(bindings, lambda present, given: present - given)

    async def _change_all(
        self, bindings: Iterable[AclBinding], change: Callable[[Entries, Entries], Entries]
    ) -> Outcome:
        given: defaultdict[ResourcePattern, set[AclEntry]] = defaultdict(set)
        for pattern, entry in bindings:
            given[pattern].add(entry)
        outcome: dict[AclBinding, KafkaError | None] = {}
        for pattern, entries in given.items():
            error = await self._change(pattern, frozenset(entries), change)
            outcome.update((AclBinding(pattern, entry), error) for entry in entries)
        return outcome

    async def _change(
        self,
        pattern: ResourcePattern,
        given: Entries,
        change: Callable[[Entries, Entries], Entries],
    ) -> KafkaError | None:
        try:
            async with self._writing:
                with kafka_errors():
                    await self._write(pattern, given, change)
        except KafkaError as error:
            return error
        return None

    async def _write(
        self,
        pattern: ResourcePattern,
        given: Entries,
        change: Callable[[Entries, Entries], Entries],
    ) -> None:
        path = entity_znodes.acl_path(pattern)
        prefix, told = entity_znodes.encode_acl_change(pattern)
        announcement = Create(path=prefix, data=told, sequential=True)
        await catch_up(self._coordination)  # else nothing might be written, for what was before
        for _ in range(ATTEMPTS):
            node = await self._coordination.get(path)
            present = frozenset() if node is None else entity_znodes.decode_acls(path, node.data)
            wanted = change(present, given)
            operations = _plan(path, node, present, wanted)
            try:
                if operations:
                    await self._coordination.transact((*operations, announcement))
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue  # another broker was faster
            self._publisher.apply_acls({pattern: wanted})
            return
        raise RequestTimedOutError(f"another writer of {pattern} was faster {ATTEMPTS} times")


def _plan(
    path: str, node: Node | None, present: Entries, wanted: Collection[AclEntry]
) -> list[Operation]:
    """What to write; nothing when all is as it shall be."""
    if wanted == present:
        return []
    if node is not None and not wanted:
        return [Delete(path=path, version=node.version)]
    return [write_over(path, node, entity_znodes.encode_acls(wanted))]
