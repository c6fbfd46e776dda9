"""Before a batch opens a transaction in a partition, the coordinator has confirmed it (KIP-890).

A produce that comes late could otherwise begin a transaction behind the end marker of its own, or
join the next one of the same producer; nobody would ever end it. So the leader of a partition asks
the transaction coordinator before the first batch of a transaction, and remembers that it asks: a
`Verification` under a number of its own. The batch is accepted while the same one is still
remembered. An end marker takes it away, unless it is of the transaction before, and so does the
first batch of the transaction; whoever asks afterwards gets another number (TXP-2). What Kafka
calls a verification guard.

Soft state of a leader: it is in no log and no snapshot. A rule: values in, values out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from moldau.errors import InvalidTxnStateError, OutOfOrderSequenceError
from moldau.records.batch_header import BatchHeader
from moldau.storage.rules.producer_sequences import ProducerEntry

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
    entry: ProducerEntry | None,
    known: Verification | None,
    header: BatchHeader,
    number: int,
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
