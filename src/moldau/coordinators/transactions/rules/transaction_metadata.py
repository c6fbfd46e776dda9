"""What is known of one transactional id, its states, and what each step makes of it.

A value that never changes: a step returns the next one, which is logged, and only then takes its
place. Every move of its state but the one to DEAD is a record of `__transaction_state`; a
coordinator that takes over arrives at the same state by the same records.

                 first partition               EndTxn: commit
    EMPTY ------------------------> ONGOING -------------------> PREPARE_COMMIT
      ^                              |  ^ ^                            |
      | InitProducerId               |  | |                            | every partition has
      |                              |  | |                            | its marker
      |      EndTxn: abort,          |  | +--- first partition ---+    v
      |      time is over,           |  |                      COMPLETE_COMMIT
      |      another producer came   |  |
      |                              v  +--- first partition --+
      |                        PREPARE_ABORT --------> COMPLETE_ABORT
      |                                                        |
      +---------------------- InitProducerId ------------------+  (and from COMPLETE_COMMIT)

Epochs (KIP-360, KIP-890, KIP-939):

- A producer that initialises the id gets the next epoch; who has an earlier one is fenced.
- Under transaction version 2 the end of a transaction raises the epoch, too. The markers carry the
  raised epoch, so that nothing that was sent before can get in after them.
- Fencing raises the epoch by one more than an end would, so that an EndTxn of the fenced producer
  is not taken for one that comes again.
- Epochs end at 32,767. Nobody is handed the last one: it is for the marker that fences the last
  but one. After that the id gets another producer id, and begins with epoch 0.
- A prepared transaction of two phases is kept for its next producer: `producer_id` and
  `producer_epoch` stay those of the transaction, and the producer that may complete it has
  `next_producer_id` and `next_producer_epoch`.

A rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from moldau.errors import InvariantViolation
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

MAX_EPOCH: Final = 2**15 - 1
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The time-out of a producer that commits in two phases: its transactions wait for a decision."""

FIRST_WITH_EPOCH_BUMP: Final = 2
"""The transaction version (KIP-890) from which on the end of a transaction raises the epoch."""


class IdAndEpoch(NamedTuple):
    """Who sends."""

    producer_id: int
    producer_epoch: int

    @property
    def is_exhausted(self) -> bool:
        """The next epoch could not be handed out."""
        return self.producer_epoch >= MAX_EPOCH - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """One transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int  # of the records or, once prepared, of the markers (TXN-2)
    timeout_ms: int
    state: TransactionState
    updated_ms: int
    partitions: frozenset[TopicPartition] = frozenset()  # empty unless ongoing or prepared
    started_ms: int = NO_TIMESTAMP
    previous_producer_id: int = NO_PRODUCER_ID  # before epochs were exhausted
    next_producer_id: int = NO_PRODUCER_ID  # whose it is after this transaction, if another's
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch that the producer had before; -1 when another producer had it. Somebody who asks
    with it has not heard the answer to the same request."""
    client_version: int = 0  # the transaction version that the producer speaks

    @property
    def client(self) -> IdAndEpoch:
        """The producer that may send requests now."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return IdAndEpoch(self.next_producer_id, max(self.next_producer_epoch, 0))
        return IdAndEpoch(self.producer_id, self.producer_epoch)

    @property
    def has_two_phases(self) -> bool:
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def is_kept(self) -> bool:
        """A prepared transaction that another producer was handed: it can only be completed."""
        is_open = self.state is TransactionState.ONGOING
        return is_open and self.next_producer_id != NO_PRODUCER_ID

    @property
    def raises_epochs(self) -> bool:
        return self.client_version >= FIRST_WITH_EPOCH_BUMP

    def is_fenced_end(self) -> bool:
        """The epoch is the last one, and not because of an EndTxn: see `fence`."""
        return self.producer_epoch == MAX_EPOCH and self.next_producer_id == NO_PRODUCER_ID

    @property
    def may_time_out(self) -> bool:
        """A transaction of two phases never does (TXN-6)."""
        return self.state is TransactionState.ONGOING and not self.has_two_phases

    def has_expired(self, expiration_ms: int, now_ms: int) -> bool:
        return self.state.is_idle and self.updated_ms + expiration_ms <= now_ms


def begin_id(
    transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int
) -> TransactionMetadata:
    """Nobody has used this transactional id, or it was forgotten."""
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        updated_ms=now_ms,
    )


def hand_out(
    former: TransactionMetadata, *, continues: bool, timeout_ms: int, now_ms: int, spare_id: int
) -> TransactionMetadata:
    """The next epoch, or another producer id where epochs are exhausted, for a producer that
    initialises the id. `continues`: it is the one that had the last epoch."""
    last_epoch = former.producer_epoch if continues else NO_PRODUCER_EPOCH
    is_new_id = former.client.is_exhausted
    return replace(
        former,
        producer_id=spare_id if is_new_id else former.producer_id,
        producer_epoch=0 if is_new_id else former.producer_epoch + 1,
        previous_producer_id=former.producer_id if is_new_id else former.previous_producer_id,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        updated_ms=now_ms,
        started_ms=NO_TIMESTAMP,
    )


def add(
    former: TransactionMetadata, added: frozenset[TopicPartition], *, version: int, now_ms: int
) -> TransactionMetadata:
    """More partitions; the first ones begin a transaction."""
    is_open = former.state is TransactionState.ONGOING
    return replace(
        former,
        state=TransactionState.ONGOING,
        partitions=former.partitions | added,
        started_ms=former.started_ms if is_open else now_ms,
        updated_ms=now_ms,
        client_version=version,
    )


def prepare(
    former: TransactionMetadata, *, commit: bool, version: int, now_ms: int, spare_id: int
) -> TransactionMetadata:
    """The producer has decided; `spare_id` is used when its epochs are exhausted."""
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    prepared = replace(former, state=state, updated_ms=now_ms, client_version=version)
    if not former.partitions:
        prepared = replace(prepared, started_ms=now_ms)
    if version < FIRST_WITH_EPOCH_BUMP:
        return prepared
    client = former.client
    prepared = replace(
        prepared,
        producer_epoch=former.producer_epoch + 1,
        last_producer_epoch=client.producer_epoch,
    )
    if client.is_exhausted:
        return replace(prepared, next_producer_id=spare_id, next_producer_epoch=0)
    if former.is_kept:
        return replace(prepared, next_producer_epoch=client.producer_epoch + 1)
    return prepared


def fence(former: TransactionMetadata, now_ms: int, *, continues: bool) -> TransactionMetadata:
    """Abort an open transaction in the place of its producer, which is fenced; unless it is the
    producer itself that begins anew (`continues`)."""
    step = 2 if former.raises_epochs else 1
    fenced = replace(
        former,
        producer_epoch=min(former.producer_epoch + step, MAX_EPOCH),
        last_producer_epoch=former.client.producer_epoch if continues else NO_PRODUCER_EPOCH,
        state=TransactionState.PREPARE_ABORT,
        updated_ms=now_ms,
    )
    if former.is_kept:
        return replace(fenced, next_producer_epoch=min(former.client.producer_epoch + 2, MAX_EPOCH))
    return fenced


def keep(
    former: TransactionMetadata, *, continues: bool, now_ms: int, spare_id: int
) -> TransactionMetadata:
    """Hand an open transaction of two phases to another producer, which may complete it."""
    client = former.client
    is_new_id = client.is_exhausted
    return replace(
        former,
        next_producer_id=spare_id if is_new_id else client.producer_id,
        next_producer_epoch=0 if is_new_id else client.producer_epoch + 1,
        last_producer_epoch=client.producer_epoch if continues else NO_PRODUCER_EPOCH,
        updated_ms=now_ms,
    )


def complete(former: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Every partition has its marker."""
    if not former.state.is_prepared:
        raise InvariantViolation(
            f"TXN-1: {former.transactional_id!r} is completed in {former.state.label}"
        )
    client = former.client
    is_commit = former.state is TransactionState.PREPARE_COMMIT
    is_new_id = client.producer_id != former.producer_id
    return replace(
        former,
        producer_id=client.producer_id,
        producer_epoch=client.producer_epoch,
        previous_producer_id=former.producer_id if is_new_id else former.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_PRODUCER_EPOCH,
        partitions=frozenset(),
        state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        updated_ms=now_ms,
    )


class TransactionState(IntEnum):
    """Where a transactional id is; the value is Kafka's number for it in the log."""

    EMPTY = 0
    """A producer has its id and epoch; it has added no partition yet.

    Answers: the first partition begins a transaction; EndTxn is INVALID_TXN_STATE, but for an
    abort under transaction version 2, which only raises the epoch.
    Moves: to ONGOING with the first partition; to EMPTY again by InitProducerId; to DEAD when it
    has not been used for `transactional.id.expiration.ms`.
    """

    ONGOING = 1
    """Partitions have been added; records are written.

    Answers: more partitions; EndTxn decides.
    Moves: to PREPARE_COMMIT or PREPARE_ABORT by EndTxn; to PREPARE_ABORT, with a higher epoch, when
    its time is over or another producer initialises the id (fencing).
    """

    PREPARE_COMMIT = 2
    """It is decided: every partition will have its commit marker, whoever coordinates.

    Answers: CONCURRENT_TRANSACTIONS to everybody who has the right epoch, so that they ask again.
    Moves: to COMPLETE_COMMIT when every partition has its marker.
    """

    PREPARE_ABORT = 3
    """It is decided: every partition will have its abort marker, whoever coordinates.

    Answers: as PREPARE_COMMIT.
    Moves: to COMPLETE_ABORT when every partition has its marker.
    """

    COMPLETE_COMMIT = 4
    """Every reader can see what the transaction wrote.

    Answers: an EndTxn that comes again is a success if it asks for the same; the first partition
    begins the next transaction.
    Moves: to ONGOING, EMPTY (InitProducerId), PREPARE_ABORT (an abort of nothing), DEAD.
    """

    COMPLETE_ABORT = 5
    """No reader of committed records will see what the transaction wrote. Else as COMPLETE_COMMIT.
    """

    DEAD = 6
    """Forgotten: a tombstone in the log. A request for it finds nothing."""

    PREPARE_EPOCH_FENCE = 7
    """Kafka's word for the moment between the raising of an epoch and the abort that follows. Here
    both are one record, PREPARE_ABORT, so nobody is ever seen in it; the number is taken."""

    @property
    def label(self) -> str:
        """Kafka's word: `PrepareCommit`."""
        return "".join(part.capitalize() for part in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Decided, and not every partition knows it yet."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """Nothing is open or on its way: it may be forgotten one day."""
        return self in (
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )


_EMPTY, _ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
_PREPARE_COMMIT, _PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
_COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
_DEAD = TransactionState.DEAD

MOVES: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _EMPTY: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT, _DEAD}),
    _ONGOING: frozenset({_ONGOING, _PREPARE_COMMIT, _PREPARE_ABORT}),
    _PREPARE_COMMIT: frozenset({_COMPLETE_COMMIT}),
    _PREPARE_ABORT: frozenset({_COMPLETE_ABORT}),
    _COMPLETE_COMMIT: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT, _DEAD}),
    _COMPLETE_ABORT: frozenset({_EMPTY, _ONGOING, _PREPARE_ABORT, _DEAD}),
    _DEAD: frozenset({_EMPTY}),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset(),
}
"""By a record, while the id is served. Loading follows the log, in which compaction leaves gaps."""


def check_move(transactional_id: str, former: TransactionState, new: TransactionState) -> None:
    """A decision is never taken back (TXN-1)."""
    if new not in MOVES[former]:
        raise InvariantViolation(
            f"TXN-1: transactional id {transactional_id!r} cannot move from {former.label} to "
            f"{new.label}"
        )


def print_table() -> str:
    """The moves as text, for people."""
    rows = (
        f"{former.label:<18} {', '.join(sorted(new.label for new in moves)) or '-'}"
        for former, moves in MOVES.items()
    )
    return "\n".join(rows)
