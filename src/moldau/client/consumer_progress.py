"""How far the program is: what it was given, and what of that it has dealt with.

What was given is behind the readers' deliveries; what was dealt with is in the table, and is what
gets committed. Finding positions is `consumer_positions`', committing them `consumer_commits`'. No
I/O here; the consumer's loop owns all of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from moldau.client.consumer_readers import Reader, Readers
from moldau.client.group_values import GroupOffset
from moldau.client.rules.delivery import Position
from moldau.client.rules.offset_positions import PartitionTable
from moldau.model import TopicPartition


class Progress:
    """The program's progress through its partitions."""

    def __init__(self, table: PartitionTable, readers: Readers) -> None:
        self._table = table
        self._readers = readers
        self._void: set[TopicPartition] = set()  # what was given of them does not count

    # Given

    def position(self, partition: TopicPartition) -> Position | None:
        """What the program is given next."""
        state = self._table.require(partition)
        for reader in self._readers:
            given = reader.delivery.position(partition)
            if given is not None and partition not in self._void:
                return given
        return state.position

    def given_positions(self) -> dict[TopicPartition, Position]:
        """Behind all that the program was given."""
        found = {state.partition: self.position(state.partition) for state in self._table}
        return {partition: at for partition, at in found.items() if at is not None}

    def given_offsets(self) -> dict[TopicPartition, GroupOffset]:
        """`given_positions`, to be committed."""
        return {
            partition: GroupOffset(offset=position.offset, leader_epoch=position.leader_epoch)
            for partition, position in self.given_positions().items()
        }

    # Dealt with

    def settle(self, reader: Reader) -> None:
        """The program has dealt with all that this reader gave it."""
        self._advance(reader.delivery.settle())

    def settle_at_rest(self, reader: Reader, *, has_failed: bool) -> None:
        """As `settle`, perhaps but for the last record, and the reader takes nothing for now."""
        failed = reader.delivery.find_failed() if has_failed else {}
        self.settle(reader)
        self._advance(failed)
        reader.rest()

    def settle_all(self, *, has_failed: bool) -> None:
        """The program is here, and has dealt with what it was given, perhaps but for the last."""
        for reader in self._readers:
            self.settle_at_rest(reader, has_failed=has_failed)

    def _advance(self, moved: Mapping[TopicPartition, Position]) -> None:
        self._table.advance({p: at for p, at in moved.items() if p not in self._void})

    # Void

    @property
    def has_void(self) -> bool:
        return bool(self._void)

    def make_void(self, partition: TopicPartition) -> None:
        """What was given does not count. From the background: the program may be at work on it,
        so deliveries are cleared when it comes in."""
        self._void.add(partition)

    def clear_void(self) -> None:
        """The program is in."""
        if self._void:
            self._readers.drop_chunks(self._void)
            self._void.clear()

    def start_over(self, partitions: Collection[TopicPartition]) -> None:
        """The program is in, and moved: what it was given of these does not count."""
        self._readers.drop_chunks(partitions)
        self._void.difference_update(partitions)
