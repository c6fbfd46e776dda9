"""The producers of one partition: sequences, open transactions, verification, expiry.

Kafka's `ProducerStateManager`, `ProducerStateEntry`, `ProducerAppendInfo` and
`VerificationStateEntry`. A producer numbers its records per partition, from 0 in each of its
epochs, without gap and repetition (SEQ-1), and has at most five batches in flight. So the last
five are remembered, and a batch that comes again is answered with the offsets it got at first
(SEQ-2).

- A producer that the log does not know may start at any number: retention may have deleted its
  records.
- A new epoch starts at 0. An older epoch is fenced.
- After 2^31-1 comes 0.
- A batch that is older than the remembered ones is out of order, as a gap is.

Transactions: the first transactional batch opens one, an end marker closes it. Markers of
transaction version 2 (KIP-890) carry the epoch after that of the transaction, so a late repetition
cannot end the next transaction (TXP-3). Before a batch may open a transaction, its coordinator has
confirmed it. Entries are immutable; an append that fails leaves the old entry.

Rules, and the table that they are applied to: nothing is opened here. `producer_snapshots` writes
the entries and reads them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from moldau.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from moldau.model import NO_PRODUCER_EPOCH, NO_SEQUENCE
from moldau.records.batch_header import TRANSACTIONAL_FLAG, BatchHeader
from moldau.records.record_batch import ControlType, EndTransactionMarker

REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 0x7FFFFFFF
NO_COORDINATOR_EPOCH = -1
BUMPED_EPOCHS = 2
"""The first transaction version whose end markers carry a bumped epoch (KIP-890)."""


class RememberedBatch(NamedTuple):
    """One of the last batches of a producer."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    """Last offset minus first offset; sequences are as far apart."""
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry(NamedTuple):
    """What the log knows about one producer."""

    producer_id: int
    producer_epoch: int
    batches: tuple[RememberedBatch, ...]
    """Oldest first, at most five, all of this epoch."""
    last_timestamp_ms: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    transaction_first_offset: int | None = None
    """Where the open transaction begins; None when there is none."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of the last data batch; -1 when none is remembered."""
        return self.batches[-1].last_offset if self.batches else -1


class Duplicate(NamedTuple):
    """The batch is in the log already, here."""

    first_offset: int
    last_offset: int
    timestamp_ms: int


class Accepted:
    """The batch may be appended."""

    __slots__ = ()


ACCEPTED: Final = Accepted()


def check_sequence(entry: ProducerEntry | None, header: BatchHeader) -> Duplicate | Accepted:
    """Decide on a client's batch that carries a producer id; raise when it must be refused."""
    if entry is None:
        return ACCEPTED
    if header.producer_epoch != entry.producer_epoch:
        _check_new_epoch(entry, header)
    elif header.base_sequence != next_sequence(entry.last_sequence):
        return _require_duplicate(entry, header)
    if entry.transaction_first_offset is not None and not header.attributes & TRANSACTIONAL_FLAG:
        raise InvalidTxnStateError(
            f"producer {entry.producer_id} has an open transaction, the batch is not part of it"
        )
    return ACCEPTED


def find_duplicate(entry: ProducerEntry | None, header: BatchHeader) -> Duplicate | None:
    """Where a batch is in the log already, if it is one of the last five of its epoch."""
    if entry is None or header.producer_epoch != entry.producer_epoch:
        return None
    last_sequence = header.last_sequence
    for batch in entry.batches:
        if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
            return Duplicate(batch.first_offset, batch.last_offset, batch.timestamp_ms)
    return None


def check_epoch(entry: ProducerEntry | None, header: BatchHeader) -> None:
    """Decide on a batch that a group coordinator writes for a producer: it has no sequence."""
    if entry is not None and header.producer_epoch < entry.producer_epoch:
        raise _fenced(entry, header)


def apply_batch(
    entry: ProducerEntry | None, header: BatchHeader, base_offset: int
) -> ProducerEntry:
    """The entry after a data batch was appended at an offset; used alike when the log is read back.

    Nothing is checked: what is in the log has been accepted by a leader.
    """
    delta = header.last_offset_delta
    batch = RememberedBatch(header.last_sequence, base_offset + delta, delta, header.max_timestamp)
    open_since = base_offset if header.attributes & TRANSACTIONAL_FLAG else None
    if entry is None:
        return ProducerEntry(
            header.producer_id,
            header.producer_epoch,
            (batch,),
            header.max_timestamp,
            NO_COORDINATOR_EPOCH,
            open_since,
        )
    same_epoch = header.producer_epoch == entry.producer_epoch
    remembered = entry.batches[1 - REMEMBERED_BATCHES :] if same_epoch else ()
    return ProducerEntry(
        entry.producer_id,
        header.producer_epoch,
        (*remembered, batch),
        header.max_timestamp,
        entry.coordinator_epoch,
        open_since if entry.transaction_first_offset is None else entry.transaction_first_offset,
    )


def check_marker(
    entry: ProducerEntry | None,
    header: BatchHeader,
    marker: EndTransactionMarker,
    transaction_version: int = 0,
) -> bool:
    """Decide on an end marker that a transaction coordinator sends; raise when it is too late.

    False when it is in the log already, and must not be appended again (TXP-3).
    """
    if entry is None:
        return True
    if header.producer_epoch < entry.producer_epoch:
        raise _fenced(entry, header)
    if marker.coordinator_epoch < entry.coordinator_epoch:
        raise TransactionCoordinatorFencedError(
            f"a marker for producer {entry.producer_id} comes from coordinator epoch "
            f"{marker.coordinator_epoch}, the current one is {entry.coordinator_epoch}"
        )
    if transaction_version < BUMPED_EPOCHS or header.producer_epoch > entry.producer_epoch:
        return True
    if entry.transaction_first_offset is None:
        return False
    raise InvalidProducerEpochError(
        f"a marker for producer {entry.producer_id} carries epoch {header.producer_epoch}, in "
        "which another transaction has begun"
    )


def apply_marker(
    entry: ProducerEntry | None, header: BatchHeader, marker: EndTransactionMarker
) -> ProducerEntry:
    """The entry after an end marker: no transaction is open. A new epoch forgets the batches."""
    same_epoch = entry is not None and header.producer_epoch == entry.producer_epoch
    return ProducerEntry(
        header.producer_id,
        header.producer_epoch,
        entry.batches if entry is not None and same_epoch else (),
        header.max_timestamp,
        marker.coordinator_epoch,
        None,
    )


def is_expired(entry: ProducerEntry, heard_ms: int, expiration_ms: int, now_ms: int) -> bool:
    """Whether a producer was quiet so long that it is forgotten; never inside a transaction.

    `heard_ms` is when the broker last heard from the producer. Kafka uses the timestamp of the last
    batch, which the client sets: a producer of old records would be forgotten at once.
    """
    if entry.transaction_first_offset is not None:
        return False
    return now_ms - heard_ms >= expiration_ms


def next_sequence(last_sequence: int) -> int:
    return 0 if last_sequence == MAX_SEQUENCE else last_sequence + 1


def _require_duplicate(entry: ProducerEntry, header: BatchHeader) -> Duplicate:
    """A batch that does not continue the sequence is a repetition, or wrong."""
    found = find_duplicate(entry, header)
    if found is not None:
        return found
    raise OutOfOrderSequenceError(
        f"producer {entry.producer_id} sends sequence {header.base_sequence}, "
        f"{next_sequence(entry.last_sequence)} is next in epoch {entry.producer_epoch}"
    )


def _check_new_epoch(entry: ProducerEntry, header: BatchHeader) -> None:
    if header.producer_epoch < entry.producer_epoch:
        raise _fenced(entry, header)
    if header.base_sequence != 0 and entry.producer_epoch != NO_PRODUCER_EPOCH:
        raise OutOfOrderSequenceError(
            f"producer {entry.producer_id} begins epoch {header.producer_epoch} "
            f"with sequence {header.base_sequence}, not 0"
        )


def _fenced(entry: ProducerEntry, header: BatchHeader) -> InvalidProducerEpochError:
    return InvalidProducerEpochError(
        f"producer {entry.producer_id} sends epoch {header.producer_epoch}, "
        f"the log has seen epoch {entry.producer_epoch}"
    )


# A produce that comes late could otherwise begin a transaction behind the end marker of its own, or
# join the next one of the same producer; nobody would ever end it. So the leader of a partition
# asks the transaction coordinator before the first batch of a transaction, and remembers that it
# asks: a `Verification` under a number of its own. The batch is accepted while the same one is
# still remembered. An end marker takes it away, unless it is of the transaction before, and so does
# the first batch of the transaction; whoever asks afterwards gets another number (TXP-2). What
# Kafka calls a verification guard.
#
# Soft state of a leader: it is in no log and no snapshot. A rule: values in, values out.

NOT_REQUIRED: Final = -1
"""Nobody asks: the batch is not transactional, or verification is off."""
MUST_BE_OPEN: Final = 0
"""The transaction was open when the batch came, and must be when it is appended."""
FIRST_NUMBER: Final = 1


class Verification(NamedTuple):
    """A question to the coordinator about one producer."""

    number: int
    producer_epoch: int
    lowest_sequence: int
    """The batch with which the transaction begins here, if several were sent at once."""
    bumps_epochs: bool
    """The producer begins each transaction with a new epoch, and so with sequence 0."""


def is_open(entry: ProducerEntry | None, producer_epoch: int) -> bool:
    """Whether a producer has a transaction open in this epoch."""
    return (
        entry is not None
        and entry.transaction_first_offset is not None
        and entry.producer_epoch == producer_epoch
    )


def ask_again(known: Verification | None, wanted: Verification) -> Verification:
    """What is remembered when a batch asks: the question that is under way counts for all batches
    of the same epoch."""
    if known is None or known.producer_epoch != wanted.producer_epoch:
        return wanted
    return known._replace(lowest_sequence=min(known.lowest_sequence, wanted.lowest_sequence))


def ends_question(known: Verification, marker_epoch: int) -> bool:
    """Whether an end marker is about the transaction that was asked about.

    Under transaction version 2 it carries the epoch after that of its transaction: with the epoch
    of the question it ends the transaction before, which the coordinator waits for.
    """
    return not (known.bumps_epochs and known.producer_epoch >= marker_epoch)


def check_verified(
    entry: ProducerEntry | None, known: Verification | None, header: BatchHeader, number: int
) -> None:
    """Raise unless a transactional batch belongs to a transaction that its coordinator knows of."""
    if is_open(entry, header.producer_epoch):
        return
    producer = f"producer {header.producer_id} in epoch {header.producer_epoch}"
    if entry is not None and entry.transaction_first_offset is not None:
        raise InvalidTxnStateError(
            f"{producer}: a transaction of epoch {entry.producer_epoch} has not ended here"
        )
    if known is None or number != known.number or header.producer_epoch != known.producer_epoch:
        raise InvalidTxnStateError(f"{producer} has no open transaction in this partition")
    begins_late = known.bumps_epochs and entry is None and header.base_sequence > 0
    if begins_late or header.base_sequence > known.lowest_sequence:
        raise OutOfOrderSequenceError(
            f"{producer} begins a transaction with sequence {header.base_sequence}, "
            f"{0 if begins_late else known.lowest_sequence} is first"
        )


class CompletedTransaction(NamedTuple):
    """A transaction that has just ended, as the transaction index records it."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's own offset."""
    aborted: bool
    last_stable_offset: int
    """Where the next undecided transaction begins, or the offset after the marker."""


class ProducerState:
    """Producers by id. Invariant: `end_offset` is the end of what has been applied."""

    __slots__ = (
        "_completed",
        "_entries",
        "_expiration_ms",
        "_heard_ms",
        "_next_number",
        "_open",
        "_verifications",
        "end_offset",
    )

    def __init__(self, expiration_ms: int, end_offset: int = 0) -> None:
        self._expiration_ms = expiration_ms
        self._entries: dict[int, ProducerEntry] = {}
        # When this broker last heard from a producer, by its clock. Not part of the entries, which
        # are the same on every replica.
        self._heard_ms: dict[int, int] = {}
        # In the order of first offsets: offsets only grow, and `load` sorts.
        self._open: dict[int, int] = {}  # first offset -> producer id
        # First offset and marker's offset of transactions whose end may not be committed yet. Both
        # grow: one that began earlier and ended later than another takes its place.
        self._completed: deque[tuple[int, int]] = deque()
        self._verifications: dict[int, Verification] = {}  # by producer id
        self._next_number = FIRST_NUMBER
        self.end_offset = end_offset

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def find(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> Duplicate | Accepted:
        """Decide on a batch; one without a producer id is always accepted.

        One with a producer id and without a sequence comes from a group coordinator.
        """
        if header.producer_id < 0:
            return ACCEPTED
        entry = self._entries.get(header.producer_id)
        if header.base_sequence < 0:
            check_epoch(entry, header)
            return ACCEPTED
        return check_sequence(entry, header)

    def require_verified(self, header: BatchHeader, verification: int) -> None:
        """Raise unless a transactional batch may be appended with what `begin_verification` gave
        for it (TXP-2); one that is in the log already always may come again."""
        entry = self._entries.get(header.producer_id)
        if header.base_sequence >= 0 and find_duplicate(entry, header) is not None:
            return
        check_verified(entry, self._verifications.get(header.producer_id), header, verification)

    def check_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int = 0
    ) -> bool:
        """Whether an end marker is to be appended; raises when it comes too late."""
        entry = self._entries.get(header.producer_id)
        return check_marker(entry, header, marker, transaction_version)

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, *, bumps_epochs: bool
    ) -> int:
        """What a transactional batch needs to be appended: the number of a question to its
        coordinator, or `MUST_BE_OPEN` when its transaction is open here already."""
        if is_open(self._entries.get(producer_id), producer_epoch):
            return MUST_BE_OPEN
        wanted = Verification(self._next_number, producer_epoch, sequence, bumps_epochs)
        asked = ask_again(self._verifications.get(producer_id), wanted)
        self._next_number += asked.number == wanted.number
        self._verifications[producer_id] = asked
        return asked.number

    def end_verification(self, producer_id: int, number: int) -> None:
        """The coordinator has not confirmed the question: the next batch asks another one."""
        known = self._verifications.get(producer_id)
        if known is not None and known.number == number:
            del self._verifications[producer_id]

    def apply(self, header: BatchHeader, base_offset: int, heard_ms: int) -> None:
        """Take note of a data batch that is in the log at this offset."""
        self.end_offset = base_offset + header.last_offset_delta + 1
        producer_id = header.producer_id
        if producer_id < 0:
            return
        entry = apply_batch(self._entries.get(producer_id), header, base_offset)
        self._entries[producer_id] = entry
        self._heard_ms[producer_id] = heard_ms
        if entry.transaction_first_offset == base_offset:
            self._open[base_offset] = producer_id
            self._verifications.pop(producer_id, None)

    def apply_marker(
        self, header: BatchHeader, base_offset: int, marker: EndTransactionMarker, heard_ms: int
    ) -> CompletedTransaction | None:
        """Take note of an end marker; None when the transaction had nothing in this partition.

        Whatever was asked about the transaction before is answered by it (TXP-2).
        """
        self.end_offset = base_offset + header.last_offset_delta + 1
        known = self._verifications.get(header.producer_id)
        if known is not None and ends_question(known, header.producer_epoch):
            del self._verifications[header.producer_id]
        before = self._entries.get(header.producer_id)
        self._entries[header.producer_id] = apply_marker(before, header, marker)
        self._heard_ms[header.producer_id] = heard_ms
        if before is None or before.transaction_first_offset is None:
            return None
        first_offset = before.transaction_first_offset
        del self._open[first_offset]
        while self._completed and self._completed[-1][0] > first_offset:
            self._completed.pop()
        self._completed.append((first_offset, base_offset))
        return CompletedTransaction(
            header.producer_id,
            first_offset,
            base_offset,
            marker.control_type is ControlType.ABORT,
            next(iter(self._open), base_offset + 1),
        )

    def is_aborted_by(self, header: BatchHeader, marker: EndTransactionMarker) -> bool:
        """Whether an end marker aborts a transaction that has something in this partition."""
        entry = self._entries.get(header.producer_id)
        is_open = entry is not None and entry.transaction_first_offset is not None
        return is_open and marker.control_type is ControlType.ABORT

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The last stable offset stays below this (TXP-1): a transaction begins here that is still
        open, or whose end marker may yet be lost because it is not below the high watermark."""
        if not self._open and not self._completed:
            return None
        self.note_committed(high_watermark)
        first_open = next(iter(self._open), None)
        if not self._completed:
            return first_open
        first_completed = self._completed[0][0]
        return first_completed if first_open is None else min(first_open, first_completed)

    def note_committed(self, high_watermark: int) -> None:
        """Markers below the high watermark are there to stay."""
        completed = self._completed
        while completed and completed[0][1] < high_watermark:
            completed.popleft()

    def remove_expired(self, expiration_ms: int, now_ms: int) -> int:
        """Forget producers that have been quiet for `producer.id.expiration.ms`, which may have
        changed; say how many."""
        self._expiration_ms = expiration_ms
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if is_expired(entry, self._heard_ms[producer_id], self._expiration_ms, now_ms)
        ]
        for producer_id in expired:
            del self._entries[producer_id], self._heard_ms[producer_id]
        return len(expired)

    def forget_before(self, offset: int) -> None:
        """Forget the batches before an offset, and who has no other; all transactions that began
        there have ended."""
        self._entries = {
            producer_id: entry._replace(batches=batches)
            for producer_id, entry in self._entries.items()
            if (batches := tuple(one for one in entry.batches if one.last_offset >= offset))
            or entry.transaction_first_offset is not None
        }
        self._heard_ms = {producer_id: self._heard_ms[producer_id] for producer_id in self._entries}

    def to_store(self) -> tuple[ProducerEntry, ...]:
        """The entries of a snapshot. It has room for one time: the later one of the last batch's
        timestamp and the time at which the broker heard from the producer."""
        heard_ms = self._heard_ms
        return tuple(
            entry
            if entry.last_timestamp_ms >= heard_ms[producer_id]
            else entry._replace(last_timestamp_ms=heard_ms[producer_id])
            for producer_id, entry in self._entries.items()
        )

    def reset(self, end_offset: int) -> None:
        """Forget everything, before the log is read again from this offset."""
        self.load((), end_offset, now_ms=0)

    def load(self, entries: Iterable[ProducerEntry], end_offset: int, now_ms: int) -> None:
        """Replace everything by a snapshot taken at this offset, without what has expired."""
        self._entries = {
            entry.producer_id: entry
            for entry in entries
            if not is_expired(entry, entry.last_timestamp_ms, self._expiration_ms, now_ms)
        }
        self._heard_ms = {  # a timestamp of the client may lie in the future
            one.producer_id: min(one.last_timestamp_ms, now_ms) for one in self._entries.values()
        }
        self._open = dict(
            sorted(
                (entry.transaction_first_offset, entry.producer_id)
                for entry in self._entries.values()
                if entry.transaction_first_offset is not None
            )
        )
        self._completed.clear()
        self._verifications.clear()
        self.end_offset = end_offset
