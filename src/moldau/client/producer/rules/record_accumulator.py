"""Batches of records on their way from `send` to the broker's answer, and their numbers. Rules.

A batch collects the records of one partition, is closed when it is full or taken to be sent, and
keeps its records until the broker has answered, since it may have to be sent again or divided.
The result that its senders wait for is the shell's: here it is only carried along.

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

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from moldau.client.rules.offsets import ConsumerGroupMetadata, GroupOffset
from moldau.errors import KafkaError, MoldauError
from moldau.model import NO_OFFSET, NO_TIMESTAMP, TopicPartition
from moldau.records.batch_header import Buffer
from moldau.records.codec import ColumnEncoding, row_size
from moldau.records.lines import PackedRows
from moldau.records.record import RecordRow

R = TypeVar("R")

MakeResult = Callable[[TopicPartition], R]
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


class ProducerBatch(Generic[R]):
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
        "result",
        "rows",
        "serial",
        "size_bytes",
    )

    def __init__(
        self, partition: TopicPartition, result: R, first_number: int, created_at: float
    ) -> None:
        self.partition = partition
        self.result = result
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


def divide_batch(
    batch: ProducerBatch[R], make_result: MakeResult[R]
) -> tuple[ProducerBatch[R], ProducerBatch[R]]:
    """Two halves that together stand where the batch stood, in the numbering as well."""
    middle = len(batch.rows) // 2
    return (
        _make_part(batch, 0, middle, make_result(batch.partition)),
        _make_part(batch, middle, len(batch.rows), make_result(batch.partition)),
    )


def _make_part(batch: ProducerBatch[R], start: int, end: int, result: R) -> ProducerBatch[R]:
    part = ProducerBatch(batch.partition, result, batch.first_number + start, batch.created_at)
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


# Where a batch of a producer is, and what takes it further. A rule.
#
#     state        until                                        then
#     OPEN         it is full, or somebody is in a hurry        WAITING
#                  its time to linger is over                   UNDER_WAY
#                  its time for delivery is over                FINISHED
#     WAITING      its partition has a leader with a free       UNDER_WAY
#                  slot, it is numbered, and it is its turn
#                  its time for delivery is over                FINISHED
#     UNDER_WAY    it is confirmed, or refused for good         FINISHED
#                  it failed in a way that may pass             WAITING, in its old place
#                  it is too large                              FINISHED; its halves are WAITING
#                  its time for delivery is over                ABANDONED
#     ABANDONED    the broker answers after all                 (gone)
#
# `BATCH_MOVES` has the same as data.


class BatchState(Enum):
    """Where a batch is; see the table above."""

    OPEN = "it takes records"
    WAITING = "it waits to be sent, for the first time or again"
    UNDER_WAY = "it was handed over, and not answered yet"
    ABANDONED = "its senders were told that its time is over, and a broker may still take it"
    FINISHED = "its senders were told how it ended"


BATCH_MOVES: Final[Mapping[BatchState, frozenset[BatchState]]] = MappingProxyType(
    {
        BatchState.OPEN: frozenset({BatchState.WAITING, BatchState.UNDER_WAY, BatchState.FINISHED}),
        BatchState.WAITING: frozenset({BatchState.UNDER_WAY, BatchState.FINISHED}),
        BatchState.UNDER_WAY: frozenset(
            {BatchState.WAITING, BatchState.ABANDONED, BatchState.FINISHED}
        ),
        BatchState.ABANDONED: frozenset(),
        BatchState.FINISHED: frozenset(),
    }
)


# The batches of one partition: waiting in a deque, or under way to its leader. A rule.
#
#     send → [waiting: old … new (open)] → [under way] → confirmed
#                 ↑ retries, to the front ←────┘
#
# What keeps the order:
#
# 1. Batches leave from the front only, and one that comes back takes its old place.
# 2. All batches under way went to one broker, in order.
# 3. After one came back, nothing leaves until all that are under way have come back, too.
# 4. Only with idempotence is more than one under way, unless nothing is ever sent again: the broker
#    then refuses whatever is behind a batch that it did not take.
# 5. Nor is more than one under way before the first of an epoch was confirmed: a broker that knows
#    nothing of a producer takes any number, even one behind a batch that it has just refused.
# 6. A batch that was overtaken counts with those that overtook it: brokers remember the last five
#    batches of a producer, and it has to be among them for as long as it may come again (SEQ-4).
#
# With idempotence, a batch refused as out of order although none before it is left means that a
# number is missing for good: the numbering restarts in a new epoch (`PartitionNumbers`), once
# nothing is under way. A batch that was taken and whose answer got lost is recognised by its old
# number, so nothing is numbered anew that might have been taken.


NEVER = float("inf")


class PartitionQueue(Generic[R]):
    """One partition. Not safe for threads: `Accumulator`'s owner takes turns."""

    __slots__ = (
        "_broker_id",
        "_is_recovering",
        "_needs_restart",
        "_not_before",
        "_numbers",
        "next_number",
        "open",
        "partition",
        "under_way",
        "waiting",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch[R]] = deque()  # oldest first
        self.open: ProducerBatch[R] | None = None  # the last one waiting, if it takes records
        self.under_way: list[ProducerBatch[R]] = []  # oldest first
        self.next_number = 0  # records in closed batches, ever
        self._broker_id: int | None = None  # where those under way went
        self._is_recovering = False  # one came back: rule 3
        self._needs_restart = False  # a number is missing for good
        self._not_before = 0.0
        self._numbers = PartitionNumbers()

    @property
    def identity(self) -> ProducerIdentity | None:
        """As whom its batches are numbered; None until the first one was."""
        return self._numbers.identity

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.under_way

    # Collecting

    def open_batch(self, result: R, now: float) -> ProducerBatch[R]:
        """Close the open batch, if there is one, and begin another."""
        self.close_batch()
        self.open = ProducerBatch(self.partition, result, self.next_number, now)
        self.waiting.append(self.open)
        return self.open

    def close_batch(self) -> None:
        if self.open is not None:
            self.next_number = self.open.end_number
            self.open = None

    # Sending

    def ready_at(self, linger_seconds: float) -> float:
        """From when on the oldest batch may be sent, as far as time matters."""
        if not self.waiting:
            return NEVER
        oldest = self.waiting[0]
        if oldest is not self.open:
            return self._not_before
        return max(self._not_before, oldest.created_at + linger_seconds)

    def may_send_to(self, broker_id: int, most_under_way: int) -> bool:
        """Whether the order allows the oldest batch to leave for this broker."""
        if not self.under_way:
            return True
        since_oldest = len(self.under_way) + self.under_way[0].overtaken_by
        return (
            not self._is_recovering
            and since_oldest < most_under_way
            and self._numbers.allow_more
            and self._broker_id == broker_id
        )

    def may_number(self, newest: ProducerIdentity) -> bool:
        """Whether this identity is good for the next batch; if not, a new one is needed."""
        return not self._needs_restart or self._numbers.may_restart(newest)

    def drain_batch(
        self, broker_id: int, newest: ProducerIdentity | None, *, follows: bool = False
    ) -> ProducerBatch[R]:
        """The oldest batch, to be sent to this broker; numbered when there is an identity.

        One that `follows` has the identity that it is told, and no epoch of its own.
        """
        if follows and newest is not None:
            self._numbers.follow(newest)
        if self._needs_restart and newest is not None:
            self._numbers.restart(self._numbered(), newest)
            self._needs_restart = False
        batch = self.waiting.popleft()
        if batch is self.open:
            self.close_batch()
        if newest is not None and batch.identity is None:
            self._numbers.number(batch, newest)
        batch.attempts += 1
        self._broker_id = broker_id
        self.under_way.append(batch)
        return batch

    def _numbered(self) -> list[ProducerBatch[R]]:
        return [batch for batch in self.waiting if batch.identity is not None]

    # Coming back

    def is_oldest(self, batch: ProducerBatch[R]) -> bool:
        """Whether every batch before this one has come to its end."""
        number = batch.first_number
        older_waits = bool(self.waiting) and self.waiting[0].first_number < number
        return not older_waits and self.under_way[0] is batch

    def finish(self, batch: ProducerBatch[R], *, is_confirmed: bool) -> None:
        """It came back for the last time: confirmed, refused or given up."""
        self.under_way.remove(batch)
        if is_confirmed:
            self._numbers.on_confirmed(batch)
        self._note_overtaking(batch)
        self._maybe_recovered()

    def _note_overtaking(self, batch: ProducerBatch[R]) -> None:
        """Those before it that have not come to their end are one batch further back now.

        One that was refused counts as well: an earlier attempt of it may have been written.
        """
        for line in (self.under_way, self.waiting):
            for other in line:
                if other.first_number > batch.first_number:
                    break
                other.overtaken_by += 1

    def put_back(self, batch: ProducerBatch[R], not_before: float) -> None:
        """It came back to be sent again."""
        self._return(batch, (batch,))
        self._not_before = max(self._not_before, not_before)

    def put_back_divided(
        self, batch: ProducerBatch[R], make_result: MakeResult[R]
    ) -> tuple[ProducerBatch[R], ProducerBatch[R]]:
        """It came back because it is too large: its halves take its place."""
        halves = divide_batch(batch, make_result)
        self._return(batch, halves)
        return halves

    def demand_restart(self) -> None:
        """A number is missing for good; takes effect when nothing is under way."""
        self._needs_restart = True
        self._is_recovering = bool(self.under_way)

    def _return(self, batch: ProducerBatch[R], parts: tuple[ProducerBatch[R], ...]) -> None:
        self.under_way.remove(batch)
        place = 0
        for other in self.waiting:
            if other.first_number > batch.first_number:
                break
            place += 1
        for offset, part in enumerate(parts):
            self.waiting.insert(place + offset, part)
        self._is_recovering = True
        self._maybe_recovered()

    def _maybe_recovered(self) -> None:
        if not self.under_way:
            self._is_recovering = False

    # Giving up

    def take_expired(self, created_before: float) -> list[ProducerBatch[R]]:
        """Batches made at that time or earlier: those waiting are gone, those under way are
        abandoned but keep their place, since the broker may still take them."""
        expired: list[ProducerBatch[R]] = []
        for batch in self.under_way:
            if batch.created_at <= created_before and not batch.is_abandoned:
                batch.is_abandoned = True
                expired.append(batch)
        while self.waiting and self.waiting[0].created_at <= created_before:
            expired.append(self._pop_oldest())
        return expired

    def take_waiting(self) -> list[ProducerBatch[R]]:
        """Those that are not under way, because they need not be sent any more."""
        taken = list(self.waiting)
        self.close_batch()
        self.waiting.clear()
        return taken

    def take_all(self) -> list[ProducerBatch[R]]:
        """Everything, because nothing can be sent any more."""
        return self.take_expired(NEVER)

    def oldest_created_at(self) -> float:
        """When the oldest batch that somebody still waits for was made."""
        for batch in self.under_way:
            if not batch.is_abandoned:
                return batch.created_at
        return self.waiting[0].created_at if self.waiting else NEVER

    def _pop_oldest(self) -> ProducerBatch[R]:
        batch = self.waiting.popleft()
        if batch is self.open:
            self.close_batch()
        return batch


# Batches are numbered in the order in which they are opened. A flush waits for all that were opened
# before it, and for none that comes later.


class IncompleteBatches:
    """By serial number; the halves of a batch that was divided share its number."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}  # of batches that are not finished, oldest number first
        self._last_serial = 0
        self._flushes: dict[int, int] = {}  # by flush: the serial number that it waits for
        self._last_flush = 0

    @property
    def is_empty(self) -> bool:
        return not self._counts

    def open(self) -> int:
        """The number of a new batch."""
        self._last_serial += 1
        self._counts[self._last_serial] = 1
        return self._last_serial

    def divide(self, serial: int, count: int) -> None:
        """So many more have this number."""
        self._counts[serial] += count

    def finish(self, serial: int) -> None:
        left = self._counts.get(serial, 0) - 1
        if left > 0:
            self._counts[serial] = left  # in its old place: the order is what counts
        else:
            self._counts.pop(serial, None)

    def begin_flush(self) -> int | None:
        """Wait for all that was opened so far; None if that has come to its end."""
        if self._is_finished_up_to(self._last_serial):
            return None
        self._last_flush += 1
        self._flushes[self._last_flush] = self._last_serial
        return self._last_flush

    def forget_flush(self, flush_id: int) -> None:
        """Nobody waits for it any more."""
        self._flushes.pop(flush_id, None)

    def end_flushes(self) -> Iterator[int]:
        """The flushes that have waited long enough."""
        for flush_id, serial in tuple(self._flushes.items()):
            if self._is_finished_up_to(serial):
                del self._flushes[flush_id]
                yield flush_id

    def _is_finished_up_to(self, serial: int) -> bool:
        return next(iter(self._counts), serial + 1) > serial


# What the machine of a producer is told, and what it has its shells do. Values.
#
# Every instruction to ask somebody comes back as exactly one event, an answer or a failure; every
# batch of a `Send` is in exactly one call of `answered`.


_NO_FAULTS: Mapping[int, str] = MappingProxyType({})


class PartitionAnswer(NamedTuple):
    """What a broker said about one batch, or what kept it from saying anything."""

    error: MoldauError | None = None
    base_offset: int = NO_OFFSET
    log_append_time_ms: int = NO_TIMESTAMP
    record_faults: Mapping[int, str] = _NO_FAULTS  # by place in the batch


# How a batch ends


class Delivered(NamedTuple):
    """The batch is in the log. The offset is -1 where it was not told."""

    base_offset: int
    log_append_time_ms: int = NO_TIMESTAMP


class NotDelivered(NamedTuple):
    """The batch was refused or given up. `record_faults` are the records that were to blame."""

    error: MoldauError
    record_faults: Mapping[int, str] = _NO_FAULTS


class Divided(NamedTuple, Generic[R]):
    """The batch went on in parts: the place of each part's first record, and its result."""

    parts: tuple[tuple[int, R], ...]


# Instructions


class Send(NamedTuple, Generic[R]):
    """Send these batches in one request; they follow what was sent to this broker before."""

    broker_id: int
    batches: Sequence[ProducerBatch[R]]


class Finish(NamedTuple, Generic[R]):
    """A batch has come to its end: tell whoever waits for it. Given once for each batch."""

    batch: ProducerBatch[R]
    outcome: Delivered | NotDelivered | Divided[R]


class RefreshTopics(NamedTuple):
    """Ask for the metadata of these topics."""

    topics: Collection[str]


class AskIdentity(NamedTuple):
    """Ask for a producer id."""


class GroupOffsets(NamedTuple):
    """Offsets that a group commits within a transaction."""

    group: ConsumerGroupMetadata
    offsets: Mapping[TopicPartition, GroupOffset]


class AskProducerId(NamedTuple):
    """Ask the transaction coordinator for a producer id, or for a new epoch of this one."""

    transactional_id: str
    identity: ProducerIdentity | None


class AskToAddPartitions(NamedTuple):
    """Have partitions belong to the transaction (before version 2)."""

    transactional_id: str
    identity: ProducerIdentity
    partitions: tuple[TopicPartition, ...]


class AskToAddOffsets(NamedTuple):
    """Have the offsets of a group belong to the transaction (before version 2)."""

    transactional_id: str
    identity: ProducerIdentity
    group_id: str


class AskToCommitOffsets(NamedTuple):
    """Ask the group's coordinator to commit offsets when the transaction is committed."""

    transactional_id: str
    identity: ProducerIdentity
    offsets: GroupOffsets


class AskToEnd(NamedTuple):
    transactional_id: str
    identity: ProducerIdentity
    is_commit: bool


TransactionRequest: TypeAlias = (
    AskProducerId | AskToAddPartitions | AskToAddOffsets | AskToCommitOffsets | AskToEnd
)


class AskCoordinator(NamedTuple):
    """Ask a coordinator, once: it comes back as `initialized`, `granted` or `refused`."""

    request: TransactionRequest


class FinishCall(NamedTuple):
    """How what the program asked of the transaction has ended."""

    call_id: int
    failure: MoldauError | None


class FinishFlush(NamedTuple):
    """Everything that was collected when this flush began has come to its end."""

    flush_id: int


class ReportRefusal(NamedTuple):
    """A partition cannot be written to at the moment; it is tried again."""

    partition: TopicPartition
    error: KafkaError


class ReportSuccess(NamedTuple):
    """A partition that could not be written to can be again."""

    partition: TopicPartition


Instruction: TypeAlias = (
    Send[R]
    | Finish[R]
    | RefreshTopics
    | AskIdentity
    | AskCoordinator
    | FinishCall
    | FinishFlush
    | ReportRefusal
    | ReportSuccess
)
