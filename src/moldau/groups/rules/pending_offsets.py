"""The offsets that producers commit for a group in transactions that are still open (TXP-5).

They become the group's with the commit of their transaction, or go with its abort. What was
committed later than such an offset, in another transaction or in none, stays when the transaction
ends: of two commits the one that is later in the log counts, whenever it was decided.

Hard state: changed by applying records, in the order of the log. A rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from moldau.groups.rules.records import CommittedOffset


class _Pending(NamedTuple):
    order: int
    committed: CommittedOffset | None
    """None when a later commit has taken its place; the partition stays undecided."""


class PendingOffsets:
    """By producer id, then by topic and partition; a producer without offsets is not in it."""

    __slots__ = ("_by_producer", "_next_order")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[tuple[str, int], _Pending]] = {}
        self._next_order = 0

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """The partitions of which some offset is undecided, each once."""
        yield from dict.fromkeys(key for of in self._by_producer.values() for key in of)

    def of_partition(self, topic: str, partition: int) -> list[CommittedOffset]:
        """The undecided offsets of a partition that may still become the group's."""
        found = (of.get((topic, partition)) for of in self._by_producer.values())
        return [one.committed for one in found if one is not None and one.committed is not None]

    def holds(self, topic: str, partition: int) -> bool:
        """Whether a transaction that is still open may change the offset of a partition."""
        return any((topic, partition) in of for of in self._by_producer.values())

    def add(self, producer_id: int, topic: str, partition: int, committed: CommittedOffset) -> None:
        pending = _Pending(self._next_order, committed)
        self._next_order += 1
        self._by_producer.setdefault(producer_id, {})[topic, partition] = pending

    def supersede(self, topic: str, partition: int) -> None:
        """Another offset was committed, later than all that is here."""
        self._supersede(topic, partition, self._next_order)

    def discard(self, topic: str, partition: int) -> None:
        """The offset was deleted, and what is undecided with it."""
        for producer_id, offsets in tuple(self._by_producer.items()):
            offsets.pop((topic, partition), None)
            if not offsets:
                del self._by_producer[producer_id]

    def end(self, producer_id: int, *, is_commit: bool) -> list[tuple[str, int, CommittedOffset]]:
        """The transaction of a producer has ended: what becomes the group's."""
        ended = self._by_producer.pop(producer_id, {})
        if not is_commit:
            return []
        decided = []
        for (topic, partition), (order, committed) in ended.items():
            if committed is not None:
                decided.append((topic, partition, committed))
                self._supersede(topic, partition, order)
        return decided

    def _supersede(self, topic: str, partition: int, before: int) -> None:
        key = topic, partition
        for offsets in self._by_producer.values():
            pending = offsets.get(key)
            if pending is not None and pending.order < before:
                offsets[key] = pending._replace(committed=None)
