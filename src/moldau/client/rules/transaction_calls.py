"""What a program asks of its producer's transaction, one thing at a time. A rule.

A commit and a preparation wait until every batch is confirmed, an abort until none is under way;
what they ask of the coordinator then is decided by `producer_transaction`.
"""

from __future__ import annotations

from typing import Final

from moldau.client.rules.producer_instructions import FinishCall, GroupOffsets
from moldau.client.rules.producer_transaction import (
    ProducerTransactions,
    TransactionCall,
    TransactionPhase,
)
from moldau.errors import MoldauError, TransactionStateError

_WAIT_FOR_ALL: Final = (TransactionCall.COMMIT, TransactionCall.PREPARE)
_ENDS: Final = (*_WAIT_FOR_ALL, TransactionCall.ABORT)
"""After these the transaction takes no records."""


class TransactionCalls:
    """Of one producer with a transactional id."""

    def __init__(self, transactions: ProducerTransactions) -> None:
        self.transactions = transactions
        self._call: TransactionCall | None = None  # what the program waits for
        self._call_id = 0

    @property
    def is_hurried(self) -> bool:
        """Nothing is to linger: the program waits for all of it."""
        return self._call in _WAIT_FOR_ALL

    @property
    def drops_waiting(self) -> bool:
        """What was not sent yet does not have to be."""
        is_over = self.transactions.state is TransactionPhase.FAILED
        return is_over or self._call is TransactionCall.ABORT

    def find_refusal(self) -> MoldauError | None:
        """Why no record may be sent at the moment; None if it may."""
        if self._call in _ENDS:
            return TransactionStateError("the transaction is being ended")
        return self.transactions.find_refusal()

    def begin(self, call: TransactionCall) -> int:
        """The number of the call; raises TransactionStateError."""
        if self._call is not None:
            raise TransactionStateError(f"something else is being done: {self._call.value}")
        match call:
            case TransactionCall.INITIALIZE:
                self.transactions.initialize()
            case TransactionCall.COMMIT:
                self.transactions.require_committable()
            case TransactionCall.ABORT:
                self.transactions.require_abortable()
            case TransactionCall.PREPARE | TransactionCall.SEND_OFFSETS:
                self.transactions.require_open()
        self._call = call
        self._call_id += 1
        return self._call_id

    def begin_offsets(self, offsets: GroupOffsets) -> int:
        call_id = self.begin(TransactionCall.SEND_OFFSETS)
        self.transactions.add_offsets(offsets)
        return call_id

    def advance(self, *, is_still: bool, is_empty: bool) -> FinishCall | None:
        """End the transaction if that is wanted and nothing is in its way: no batch is under way
        (`is_still`), or even collected. Tells how the call went, once it is over."""
        transactions, state = self.transactions, self.transactions.state
        is_open = state in (TransactionPhase.OPEN, TransactionPhase.PREPARED)
        wants_commit = self._call is TransactionCall.COMMIT and is_open
        wants_prepare = self._call is TransactionCall.PREPARE and state is TransactionPhase.OPEN
        wants_abort = self._call is TransactionCall.ABORT and (
            transactions.is_abortable or transactions.is_prepared
        )
        if wants_commit and is_still and is_empty:
            transactions.commit()
        elif wants_prepare and is_still and is_empty and not transactions.is_busy:
            transactions.prepare()
        elif wants_abort and is_still and not transactions.is_asking:
            transactions.abort()
        transactions.finish_empty()
        if self._call is None or not transactions.is_done(self._call):
            return None
        self._call = None
        return FinishCall(self._call_id, transactions.find_failure())
