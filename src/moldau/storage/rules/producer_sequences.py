"""The numbers of an idempotent producer: is a batch new, a repetition, or out of order?

The rules are those of Kafka's `ProducerAppendInfo` and `ProducerStateEntry`. A producer numbers its
records per partition, from 0 in each of its epochs, without gap and repetition (SEQ-1), and has at
most five batches under way. So the last five are remembered, and one that comes again is answered
with the offsets it got at first (SEQ-2).

- A producer that the log knows nothing of may start at any number: its records may have been
  deleted by retention.
- A new epoch starts at 0. An older epoch is fenced.
- After 2^31-1 comes 0.
- What is older than the remembered batches is out of order, as a gap is.

Transactions: the first transactional batch opens one, an end marker closes it. Markers of
transaction version 2 (KIP-890) carry the epoch after that of the transaction, so one that comes
again late is told from the end of the next transaction (TXP-3). Before a batch may open a
transaction, its coordinator has confirmed it (`transaction_verification`). Entries are immutable;
an append that fails leaves the one that was there. A rule: values in, values out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from moldau.model import NO_PRODUCER_EPOCH, NO_SEQUENCE
from moldau.records.batch_header import TRANSACTIONAL_FLAG, BatchHeader
from moldau.records.record_batch import EndTransactionMarker

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
