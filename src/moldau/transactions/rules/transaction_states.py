"""The states of a transactional id and the ways between them.

Every move but the one to DEAD is a record of `__transaction_state`; a coordinator that takes over
arrives at the same state by the same records, and goes on from there.

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

A rule.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from moldau.errors import InvariantViolation


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
