"""A batch of records on its way from `send` to the broker's answer. Rules.

A batch collects the records of one partition, is closed when it is full or taken to be sent, and
keeps its records until the broker has answered, since it may have to be sent again or divided.
What its senders wait for is the shell's: here it is a `promise` that is only carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from moldau.client.rules.sequences import ProducerIdentity, add_to_sequence
from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.records.codec import row_size
from moldau.records.record import RecordRow

P = TypeVar("P")

MakePromise = Callable[[TopicPartition], P]
"""Makes what the senders of a new batch will wait for."""


class ProducerBatch(Generic[P]):
    """One batch. Changed by its partition's queue alone."""

    __slots__ = (
        "attempts",
        "base_sequence",
        "created_at",
        "encoded",
        "first_number",
        "identity",
        "is_abandoned",
        "is_finished",
        "is_in_doubt",
        "last_error",
        "overtaken_by",
        "partition",
        "promise",
        "rows",
        "serial",
        "size_bytes",
    )

    def __init__(
        self, partition: TopicPartition, promise: P, first_number: int, created_at: float
    ) -> None:
        self.partition = partition
        self.promise = promise
        self.first_number = first_number  # how many records of the partition came before it
        self.created_at = created_at
        self.serial = 0  # in which order batches were opened, among all partitions
        self.rows: list[RecordRow] = []
        self.size_bytes = 0  # about what the rows take before compression
        self.attempts = 0
        # Who sends it and its place in the numbering; None until it is sent for the first time.
        self.identity: ProducerIdentity | None = None
        self.base_sequence: int | None = None
        self.encoded: bytearray | None = None  # as it goes over the wire, once it did
        self.last_error: MoldauError | None = None
        self.is_abandoned = False  # on the wire, but its time is over: nobody waits any more
        self.is_in_doubt = False  # an attempt may have been written although it was not confirmed
        self.overtaken_by = 0  # batches behind it in its numbering that came to their end before it
        self.is_finished = False  # its senders know how it ended

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        last = self.first_number + len(self.rows)
        return f"ProducerBatch({self.partition} {self.first_number}..{last})"

    @property
    def end_number(self) -> int:
        return self.first_number + len(self.rows)

    def add(self, row: RecordRow, size_bytes: int) -> int:
        """Take a record; gives its place in the batch."""
        index = len(self.rows)
        self.rows.append(row)
        self.size_bytes += size_bytes
        return index

    def add_some(self, rows: Sequence[RecordRow], start: int, count: int, size_bytes: int) -> int:
        """Take so many of the rows; gives the place of the first in the batch."""
        index = len(self.rows)
        self.rows += rows[start : start + count]
        self.size_bytes += size_bytes
        return index

    def number(self, identity: ProducerIdentity, base_sequence: int) -> None:
        """Give it its place in the numbering; what was encoded with another one is void."""
        self.identity = identity
        self.base_sequence = base_sequence
        self.overtaken_by = 0
        self.encoded = None


def divide(
    batch: ProducerBatch[P], make_promise: MakePromise[P]
) -> tuple[ProducerBatch[P], ProducerBatch[P]]:
    """Two halves that together stand where the batch stood, in the numbering as well."""
    middle = len(batch.rows) // 2
    return (
        _part(batch, 0, middle, make_promise(batch.partition)),
        _part(batch, middle, len(batch.rows), make_promise(batch.partition)),
    )


def _part(batch: ProducerBatch[P], start: int, end: int, promise: P) -> ProducerBatch[P]:
    part = ProducerBatch(batch.partition, promise, batch.first_number + start, batch.created_at)
    part.rows = batch.rows[start:end]
    part.size_bytes = sum(map(row_size, part.rows))
    part.serial = batch.serial
    part.attempts = batch.attempts
    part.last_error = batch.last_error
    if batch.identity is not None and batch.base_sequence is not None:
        part.number(batch.identity, add_to_sequence(batch.base_sequence, start))
    return part
