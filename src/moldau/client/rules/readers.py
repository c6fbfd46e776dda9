"""Who takes records from a consumer, and how far each has come. A rule.

A reader is the consumer itself, or one of its streams; each has a delivery of its own, and each
partition belongs to one reader at a time. A reader rests while it waits inside the consumer: then
the program has dealt with all that it was given, and the loop may touch the delivery. Outside, the
delivery is the program's. What the program was given is behind the deliveries; what it has dealt
with is in the table of positions, and is what gets committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from moldau.client.rules.delivery import Decoding, Delivery, Position
from moldau.client.rules.positions import PartitionTable
from moldau.model import TopicPartition


class Reader:
    """One taker of records."""

    def __init__(self, decoding: Decoding, now: float) -> None:
        self.delivery = Delivery(decoding)
        self.partitions: set[TopicPartition] = set()
        self.is_resting = True  # nobody has taken anything yet
        self.is_retired = False
        self._active_at = now
        self._sign_of_life = self.delivery.sign_of_life

    def go_on(self, now: float) -> None:
        """The program works on records from now on."""
        self.is_resting = False
        self._active_at = now
        self._sign_of_life = self.delivery.sign_of_life

    def idle_seconds(self, now: float) -> float:
        """How long the program has asked this reader for nothing."""
        if self.is_resting:
            return 0.0
        sign = self.delivery.sign_of_life
        if sign != self._sign_of_life:
            self._sign_of_life, self._active_at = sign, now
        return now - self._active_at


class Readers:
    """All readers of one consumer: one, or as many as there are streams."""

    def __init__(self, table: PartitionTable, decoding: Decoding, now: float) -> None:
        self._table = table
        self._decoding = decoding
        self._all = [Reader(decoding, now)]
        self._void: set[TopicPartition] = set()  # what was given of these does not count

    def __iter__(self) -> Iterator[Reader]:
        return iter(self._all)

    @property
    def first(self) -> Reader:
        return self._all[0]

    @property
    def all_rest(self) -> bool:
        return all(reader.is_resting for reader in self._all)

    def idle_seconds(self, now: float) -> float:
        return max(reader.idle_seconds(now) for reader in self._all)

    # Whose partitions

    def split(self, count: int, now: float) -> tuple[Reader, ...]:
        """Have so many readers in place of those before."""
        partitions = {partition for reader in self._all for partition in reader.partitions}
        self._all = [Reader(self._decoding, now) for _ in range(count)]
        self.route(partitions)
        return tuple(self._all)

    def route(self, partitions: Iterable[TopicPartition]) -> None:
        """Give each partition to the reader that has fewest."""
        live = [reader for reader in self._all if not reader.is_retired]
        for partition in sorted(partitions):
            if live:
                min(live, key=_partition_count).partitions.add(partition)

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        for reader in self._all:
            reader.partitions.difference_update(partitions)
            reader.delivery.drop(partitions)

    def retire(self, reader: Reader) -> None:
        """The reader takes nothing any more; others get its partitions."""
        reader.is_retired = reader.is_resting = True
        left, reader.partitions = reader.partitions, set()
        reader.delivery.drop(left)
        self.route(left)

    def pause(self, partitions: frozenset[TopicPartition]) -> None:
        """Give nothing of exactly these."""
        for reader in self._all:
            reader.delivery.pause(partitions)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """Give nothing more of these; what was given counts still."""
        for reader in self._all:
            reader.delivery.stop(partitions)

    # What was given

    def position(self, partition: TopicPartition) -> Position | None:
        """What the program is given next; raises NotAssignedError."""
        state = self._table.require(partition)
        for reader in self._all:
            given = reader.delivery.position(partition)
            if given is not None and partition not in self._void:
                return given
        return state.position

    def given_positions(self) -> dict[TopicPartition, Position]:
        """Behind all that the program was given."""
        found = {state.partition: self.position(state.partition) for state in self._table}
        return {partition: at for partition, at in found.items() if at is not None}

    # What was dealt with

    def rest(self, reader: Reader, *, has_failed: bool = False) -> None:
        """The program has dealt with all that this reader gave it, perhaps but for the last
        record, and takes nothing for now."""
        failed = reader.delivery.find_failed() if has_failed else {}
        self._advance(reader.delivery.mark_processed())
        self._advance(failed)
        reader.is_resting = True

    def rest_all(self, *, has_failed: bool) -> None:
        for reader in self._all:
            self.rest(reader, has_failed=has_failed)

    def _advance(self, moved: Mapping[TopicPartition, Position]) -> None:
        if self._void:
            moved = {p: at for p, at in moved.items() if p not in self._void}
        self._table.advance(moved)

    # What does not count

    @property
    def has_void(self) -> bool:
        return bool(self._void)

    def make_void(self, partition: TopicPartition) -> None:
        """What was given does not count. The program may be at work on it, so deliveries are
        cleared when it comes in."""
        self._void.add(partition)

    def clear_void(self) -> None:
        """The program is in."""
        if self._void:
            self.start_over(tuple(self._void))

    def start_over(self, partitions: Collection[TopicPartition]) -> None:
        """The program is in: forget what it was given of these, and what it would be given."""
        for reader in self._all:
            reader.delivery.drop(partitions)
        self._void.difference_update(partitions)


def _partition_count(reader: Reader) -> int:
    return len(reader.partitions)
