"""Which partition a record goes to when nobody names one. Rules: chance is handed in.

A key always goes to the same partition, the one that Java's clients choose: 32-bit murmur2 of the
key's bytes, its sign bit cleared, modulo the number of partitions. Records without a key stay on
one partition until their batch is full (sticky), or take turns (round robin).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from moldau.records.codec import murmur2, partition_for_key

__all__ = [
    "ChooseBelow",
    "Partitioner",
    "RoundRobinPartitioner",
    "StickyPartitioner",
    "murmur2",
    "partition_for_key",
]

ChooseBelow = Callable[[int], int]
"""Gives a number from 0 to its argument, exclusive: `random.randrange`, or a fixed one in tests."""


class Partitioner(Protocol):
    """Chooses a partition for each record; one partitioner serves one topic."""

    def choose(self, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        """`available` are the partitions that have a leader now, ascending; it may be empty."""
        ...

    def on_batch_full(self) -> None:
        """A batch of keyless records was closed; the next one may go elsewhere."""
        ...


class StickyPartitioner:
    """By key; without one, the same random partition until its batch is full.

    Full batches cost the broker less than many small ones, which is what taking turns would make.
    """

    def __init__(self, choose_below: ChooseBelow) -> None:
        self._choose_below = choose_below
        self._current: int | None = None  # None: to be chosen with the next keyless record

    def choose(self, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        if self._current is None or self._current >= partition_count:
            self._current = self._pick(partition_count, available)
        return self._current

    def on_batch_full(self) -> None:
        self._current = None

    def _pick(self, partition_count: int, available: Sequence[int]) -> int:
        if available:
            return available[self._choose_below(len(available))]
        return self._choose_below(partition_count)


class RoundRobinPartitioner:
    """By key; without one, each record goes to the next partition that has a leader."""

    def __init__(self, first: int = 0) -> None:
        self._next = first

    def choose(self, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        turn, self._next = self._next, self._next + 1
        if available:
            return available[turn % len(available)]
        return turn % partition_count

    def on_batch_full(self) -> None:
        """Turns are taken by record, not by batch."""
