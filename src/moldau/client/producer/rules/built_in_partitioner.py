"""A topic as a producer sees it: the queues of its partitions, and who chooses among them.

A key always goes to the same partition, the one that Java's clients choose: 32-bit murmur2 of the
key's bytes, its sign bit cleared, modulo the number of partitions. Records without a key stay on
one partition until their batch is full (sticky), or take turns (round robin). Rules: chance is
handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Generic, Protocol

from moldau.client.producer.rules.record_accumulator import PartitionQueue, ProducerBatch, R
from moldau.client.rules.arguments import require_whole
from moldau.errors import ConfigurationError, UnknownTopicError
from moldau.records.batch_header import Buffer
from moldau.records.codec import ColumnEncoding, partition_for_key, split_by_key
from moldau.records.record import RecordRow

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


def choose_partitioner(given: object, choose_below: ChooseBelow) -> Callable[[], Partitioner]:
    """By its name; a function of the program's has a sticky one beside it."""
    if callable(given) or given == "sticky":
        return lambda: StickyPartitioner(choose_below)
    if given == "round_robin":
        return RoundRobinPartitioner
    raise ConfigurationError(
        f"no partitioner is called {given!r}; there are sticky, round_robin, or a function of "
        "topic, key, value and the number of partitions"
    )


class PartitionedTopic(Generic[R]):
    """One topic. Its lists are replaced as a whole when the topic changes."""

    __slots__ = (
        "_ignores_keys",
        "available",
        "free",
        "is_sticky",
        "partitioner",
        "queues",
        "topic",
    )

    def __init__(self, topic: str, partitioner: Partitioner, *, ignores_keys: bool) -> None:
        self.topic = topic
        self.partitioner = partitioner
        self.is_sticky = isinstance(partitioner, StickyPartitioner)
        self.queues: list[PartitionQueue[R]] = []
        self.available: Sequence[int] = ()
        self.free: PartitionQueue[R] | None = None  # where free records stick at the moment
        self._ignores_keys = ignores_keys

    def require_queue(self, partition: int) -> PartitionQueue[R]:
        queues = self.queues
        require_whole(partition, "partitioner", "the number of a partition")
        if not 0 <= partition < len(queues):
            raise UnknownTopicError(
                f"topic {self.topic!r} has no partition {partition}; it has {len(queues)}, "
                "counted from 0"
            )
        return queues[partition]

    def find_open(self, key: bytes | None) -> ProducerBatch[R] | None:
        """The open batch where a record that names no partition goes, if there is one."""
        if key is None or self._ignores_keys:
            free = self.free
            return None if free is None else free.open
        return self.queues[partition_for_key(key, len(self.queues))].open

    def choose_anew(self, key: bytes | None) -> PartitionQueue[R]:
        """The queue for a record that needs a new batch.

        Free records stick to a partition for the length of a batch (KIP-480).
        """
        queues = self.queues
        if key is not None and not self._ignores_keys:
            return queues[partition_for_key(key, len(queues))]
        self.partitioner.on_batch_full()
        queue = queues[self.partitioner.choose(None, len(queues), self.available)]
        self.free = queue if self.is_sticky else None
        return queue

    def place_for_free(self, partition: int | None) -> int | None:
        """Where records without a key go that stay together; None: anywhere."""
        return 0 if partition is None and len(self.queues) == 1 else partition

    def split(
        self, partition: int | None, rows: list[RecordRow]
    ) -> list[tuple[int | None, list[RecordRow]]]:
        """The rows of each partition in order; None is for rows that are free to go anywhere."""
        if partition is not None:
            return [(partition, rows)]
        if self._ignores_keys:
            return self._split_free(rows)
        if len(self.queues) == 1:
            return [(0, rows)]
        *keyed, free = split_by_key(rows, len(self.queues))
        parts = [(index, part) for index, part in enumerate(keyed) if part]
        return [*parts, *self._split_free(free)]

    def split_columns(
        self, partition: int | None, columns: ColumnEncoding
    ) -> list[tuple[int | None, Buffer | None]]:
        """As `split`, with lists of the numbers of rows; None stands for all of them."""
        if partition is not None:
            return [(partition, None)]
        if len(self.queues) == 1:
            return [(0, None)]
        ordered, ends = columns.split(len(self.queues), self._ignores_keys)
        numbers = memoryview(ordered).cast("i")
        parts: list[tuple[int | None, Buffer | None]] = [
            (index, numbers[start:end].cast("B"))
            for index, (start, end) in enumerate(pairwise((0, *ends[:-1])))
            if start < end
        ]
        return [*parts, *self._split_free_columns(numbers[ends[-2] :])]

    def _split_free_columns(self, numbers: memoryview) -> list[tuple[int | None, Buffer | None]]:
        if not len(numbers):
            return []
        if self.is_sticky:
            return [(None, numbers.cast("B"))]
        turns = self._take_turns(len(numbers))
        return [(turn, numbers[place :: len(turns)].tobytes()) for place, turn in enumerate(turns)]

    def _split_free(self, rows: list[RecordRow]) -> list[tuple[int | None, list[RecordRow]]]:
        if self.is_sticky or not rows:
            return [(None, rows)] if rows else []
        turns = self._take_turns(len(rows))
        return [(turn, rows[place :: len(turns)]) for place, turn in enumerate(turns)]

    def _take_turns(self, row_count: int) -> list[int]:
        """As many choices as there are partitions give each of them a share."""
        count = min(len(self.available) or len(self.queues), row_count)
        return [
            self.partitioner.choose(None, len(self.queues), self.available) for _ in range(count)
        ]
