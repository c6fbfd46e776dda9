"""A batch of records on its way from `send` to the broker's answer, and its numbers. Rules.

A batch collects the records of one partition, is closed when it is full or taken to be sent, and
keeps its records until the broker has answered, since it may have to be sent again or divided.
What its senders wait for is the shell's: here it is a `promise` that is only carried along.

An idempotent producer numbers its records, so that brokers recognise what comes again. Every record
of a partition has a number that follows the one before. A broker refuses a batch that leaves a gap
(OUT_OF_ORDER_SEQUENCE_NUMBER), and answers one that it has already with the offset it got (KIP-98).
When a batch was given up, the gap stays for ever; the producer then begins a new epoch in that
partition, numbered from 0, which brokers accept at any time (KIP-360).

Each partition has its own epoch: brokers keep these numbers per partition, and a gap in one is no
reason to disturb the others. In transactions the coordinator alone gives out epochs: a gap ends the
transaction, and with the epoch that comes after it every partition is numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from moldau.errors import MoldauError
from moldau.model import TopicPartition
from moldau.records.batch_header import Buffer
from moldau.records.codec import ColumnEncoding, row_size
from moldau.records.lines import PackedRows
from moldau.records.record import RecordRow

P = TypeVar("P")

MakePromise = Callable[[TopicPartition], P]
"""Makes what the senders of a new batch will wait for."""

MAX_SEQUENCE = 0x7FFFFFFF
MAX_EPOCH = 0x7FFF


class ProducerIdentity(NamedTuple):
    """Who the brokers take us for."""

    id: int
    epoch: int


def add_to_sequence(sequence: int, count: int) -> int:
    """The number so many records further on; 0 follows 2^31-1."""
    return (sequence + count) & MAX_SEQUENCE


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
        self.rows: list[RecordRow] | PackedRows = []
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
        self.rows.extend(rows[start : start + count])
        self.size_bytes += size_bytes
        return index

    def add_lines(
        self, text: bytes, start: int, limit_bytes: int, timestamp_ms: int
    ) -> tuple[int, int, int]:
        """Take lines from a place of the text on, as many as fit into so many bytes; how many they
        are, about what they take, and where the next one begins."""
        if not isinstance(self.rows, PackedRows):
            self.rows = PackedRows(self.rows)
        found = self.rows.append_lines(text, start, limit_bytes, timestamp_ms)
        self.size_bytes += found[1]
        return found

    def add_columns(
        self, columns: ColumnEncoding, rows: Buffer | None, start: int, limit_bytes: int
    ) -> tuple[int, int, int]:
        """Take rows of columns from a place of their list on, as many as fit into so many bytes;
        how many they are, about what they take, and the place of the next one."""
        if not isinstance(self.rows, PackedRows):
            self.rows = PackedRows(self.rows)
        found = self.rows.append_columns(columns, rows, start, limit_bytes)
        self.size_bytes += found[1]
        return found

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
    rows: Sequence[RecordRow] = batch.rows[start:end]
    part.rows = list(rows)
    part.size_bytes = sum(map(row_size, rows))
    part.serial = batch.serial
    part.attempts = batch.attempts
    part.last_error = batch.last_error
    if batch.identity is not None and batch.base_sequence is not None:
        part.number(batch.identity, add_to_sequence(batch.base_sequence, start))
    return part


class PartitionNumbers:
    """The numbering of one partition: which identity, and which number is next."""

    __slots__ = ("_is_known", "identity", "next_sequence")

    def __init__(self) -> None:
        self.identity: ProducerIdentity | None = None  # None until the first batch
        self.next_sequence = 0
        self._is_known = False  # whether the broker has confirmed a batch of this identity

    @property
    def allow_more(self) -> bool:
        """Whether a gap would be noticed, so that several batches may be under way at once."""
        return self._is_known or self.identity is None

    def on_confirmed(self, batch: ProducerBatch[Any]) -> None:
        if batch.identity == self.identity:
            self._is_known = True

    def number(self, batch: ProducerBatch[Any], newest: ProducerIdentity) -> None:
        """Give a batch the next numbers. `newest` is what the cluster told us we are."""
        if self.identity is None:
            self.identity = newest
        batch.number(self.identity, self.next_sequence)
        self.next_sequence = add_to_sequence(self.next_sequence, len(batch))

    def follow(self, newest: ProducerIdentity) -> None:
        """Have this identity from now on, numbered from 0 if it is another one."""
        if self.identity is not None and self.identity != newest:
            self.next_sequence = 0
            self._is_known = False
            self.identity = newest

    def may_restart(self, newest: ProducerIdentity) -> bool:
        """Whether a new epoch can begin; when they are used up, a new producer id is needed."""
        identity = self.identity
        return identity is None or identity.epoch < MAX_EPOCH or newest.id != identity.id

    def restart(self, batches: Iterable[ProducerBatch[Any]], newest: ProducerIdentity) -> None:
        """Begin a new epoch and number these batches anew, from 0."""
        if self.identity is None or self.identity.id != newest.id:
            self.identity = newest
        else:
            self.identity = ProducerIdentity(newest.id, self.identity.epoch + 1)
        self.next_sequence = 0
        self._is_known = False
        for batch in batches:
            self.number(batch, newest)
