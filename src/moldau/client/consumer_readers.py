"""Who takes records from a consumer, and when partitions can change hands.

A reader is the consumer itself, or one of its streams; each has a delivery of its own, and each
partition belongs to one reader at a time. A reader rests while it waits inside the consumer: then
the program has dealt with all that it was given, and the loop may touch the delivery. Outside, the
delivery is the program's.

No I/O here; the consumer's loop owns all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from moldau.client.rules.delivery import Decoding, Delivery
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

    def rest(self) -> None:
        self.is_resting = True

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

    def __init__(self, decoding: Decoding, now: float) -> None:
        self._decoding = decoding
        self._all = [Reader(decoding, now)]

    def __iter__(self) -> Iterator[Reader]:
        return iter(tuple(self._all))

    @property
    def first(self) -> Reader:
        return self._all[0]

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

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        for reader in self._all:
            reader.partitions.difference_update(partitions)
            reader.delivery.drop(partitions)

    def drop_chunks(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what there is of these partitions; they stay where they are."""
        for reader in self._all:
            reader.delivery.drop(partitions)

    def retire(self, reader: Reader) -> None:
        """The reader takes nothing any more; others get its partitions."""
        reader.is_retired = reader.is_resting = True
        left, reader.partitions = reader.partitions, set()
        reader.delivery.drop(left)
        self.route(left)

    @property
    def all_rest(self) -> bool:
        return all(reader.is_resting for reader in self._all)

    def idle_seconds(self, now: float) -> float:
        return max(reader.idle_seconds(now) for reader in self._all)


def _partition_count(reader: Reader) -> int:
    return len(reader.partitions)
