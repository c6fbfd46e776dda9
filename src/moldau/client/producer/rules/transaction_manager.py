"""The transactions of one producer: what may be sent, asked and committed when. A rule.

    state           meaning                                      moves to
    NEW             no producer id yet                           INITIALIZING
    INITIALIZING    the coordinator is asked for one             READY, FAILED
    READY           between two transactions                     OPEN, INITIALIZING
    OPEN            records and offsets are taken                COMMITTING, ABORTING, ABORTABLE,
                                                                 PREPARED
    PREPARED        all of it is in the log, and somebody        COMMITTING, ABORTING
                    else decides over it (KIP-939)
    ABORTABLE       something was not delivered: the             ABORTING
                    transaction can only be aborted
    COMMITTING      the coordinator is asked to commit           READY, ABORTABLE, FAILED
    ABORTING        the coordinator is asked to abort            READY, FAILED
    FAILED          another producer has this id, or may not     (none)

Every state but FAILED can become FAILED. `TRANSACTION_MOVES` has the same as data.

A transaction reaches the coordinator with the first partition in it. Before version 2 a partition
is added by a request of its own (AddPartitionsToTxn), and its batches wait for the answer. From
version 2 on (KIP-890) the leader adds it when the first batch comes, and the end of a transaction
brings the epoch of the next one, so that a late request can never join it. Where a sequence number
may be missing, an older coordinator is asked for a new epoch after the abort (KIP-360).

Requests go one at a time; what each answer means is decided here, when to repeat is too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from moldau.client.producer.rules.record_accumulator import (
    AskProducerId,
    AskToAddOffsets,
    AskToAddPartitions,
    AskToCommitOffsets,
    AskToEnd,
    FinishCall,
    GroupOffsets,
    ProducerIdentity,
    TransactionRequest,
)
from moldau.client.rules.broker_errors import Backoff, Chance
from moldau.errors import (
    ClientError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    KafkaError,
    MoldauError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionalIdAuthorizationError,
    TransactionStateError,
    UnknownProducerIdError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition

NEVER: Final = float("inf")

_FENCED: Final = (ProducerFencedError, InvalidProducerEpochError)
_FATAL: Final = (
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    TransactionalIdAuthorizationError,
)
"""Of the coordinator: nothing that this producer does can mend it."""


class ProducerTransactionState(Enum):
    """See the table above."""

    NEW = "it has no producer id yet"
    INITIALIZING = "it waits for its producer id"
    READY = "no transaction is open"
    OPEN = "a transaction is open"
    PREPARED = "a transaction is prepared, and this producer is to commit or abort it, or be closed"
    ABORTABLE = "the open transaction can only be aborted"
    COMMITTING = "the transaction is being committed"
    ABORTING = "the transaction is being aborted"
    FAILED = "it can do nothing any more"


_State = ProducerTransactionState

TRANSACTION_MOVES: Final[Mapping[_State, frozenset[_State]]] = MappingProxyType(
    {
        _State.NEW: frozenset({_State.INITIALIZING, _State.FAILED}),
        _State.INITIALIZING: frozenset({_State.READY, _State.FAILED}),
        _State.READY: frozenset({_State.OPEN, _State.INITIALIZING, _State.FAILED}),
        _State.OPEN: frozenset(
            {_State.COMMITTING, _State.ABORTING, _State.ABORTABLE, _State.PREPARED, _State.FAILED}
        ),
        _State.PREPARED: frozenset({_State.COMMITTING, _State.ABORTING, _State.FAILED}),
        _State.ABORTABLE: frozenset({_State.ABORTING, _State.FAILED}),
        _State.COMMITTING: frozenset({_State.READY, _State.ABORTABLE, _State.FAILED}),
        _State.ABORTING: frozenset({_State.READY, _State.INITIALIZING, _State.FAILED}),
        _State.FAILED: frozenset(),
    }
)


class TransactionCall(Enum):
    """What a program asks for, and waits for; one at a time."""

    INITIALIZE = "the producer gets its id"
    SEND_OFFSETS = "offsets are being sent"
    PREPARE = "the transaction is being prepared"
    COMMIT = "the transaction is being committed"
    ABORT = "the transaction is being aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """A transaction that is all in the log and that somebody else decides over (KIP-939): what to
    store, and to give to `Admin.complete_transactions`. No other transaction has the same."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionManager:
    """Of one producer with a transactional id. `now` is a monotonic time in seconds."""

    def __init__(self, transactional_id: str, backoff: Backoff, chance: Chance) -> None:
        self.transactional_id = transactional_id
        self.state = ProducerTransactionState.NEW
        self.identity: ProducerIdentity | None = None
        self.failure: MoldauError | None = None  # why it is ABORTABLE or FAILED
        self.is_version_2 = False  # as the coordinator said last
        self._backoff = backoff
        self._chance = chance
        self._partitions: set[TopicPartition] = set()  # in the transaction, as far as is known
        self._new_partitions: set[TopicPartition] = set()  # to be added
        self._offsets: list[GroupOffsets] = []  # to be committed with the transaction
        self._groups: set[str] = set()  # that were added to the transaction
        self._has_offsets = False  # some were sent: the coordinator knows of the transaction
        self._needs_epoch = False  # a sequence number may be missing
        self._asked: TransactionRequest | None = None
        self._attempt = 0
        self._not_before = 0.0

    # What the program does

    def begin_transaction(self) -> None:
        """Open a transaction."""
        self.require_working()
        if self.state is not ProducerTransactionState.READY:
            raise TransactionStateError(f"a transaction cannot begin: {self.state.value}")
        self._move(ProducerTransactionState.OPEN)

    def initialize(self) -> None:
        """Ask for the producer id: whoever had the transactional id before is fenced from then on,
        and what it left open is aborted."""
        self.require_working()
        if self.is_abortable:
            raise TransactionStateError("a transaction is open already: commit or abort it first")
        if self.state is ProducerTransactionState.PREPARED:
            raise TransactionStateError(f"a transaction cannot begin: {self.state.value}")
        if self.state is ProducerTransactionState.NEW:
            self._move(ProducerTransactionState.INITIALIZING)

    def require_open(self) -> None:
        """Raise unless records may be sent."""
        refusal = self.find_refusal()
        if refusal is not None:
            raise refusal

    def find_refusal(self) -> MoldauError | None:
        """Why no records may be sent; None if they may."""
        match self.state:
            case ProducerTransactionState.OPEN:
                return None
            case ProducerTransactionState.FAILED:
                return self.failure
            case ProducerTransactionState.ABORTABLE:
                return self.explain_aborted()
            case ProducerTransactionState.PREPARED:
                return TransactionStateError(f"nothing more can be sent: {self.state.value}")
            case _:
                return TransactionStateError(
                    "this producer has a transactional id: send within a transaction "
                    "(`with producer.transaction(): ...`)"
                )

    @property
    def is_abortable(self) -> bool:
        return self.state in (ProducerTransactionState.OPEN, ProducerTransactionState.ABORTABLE)

    @property
    def is_prepared(self) -> bool:
        return self.state is ProducerTransactionState.PREPARED

    def require_committable(self) -> None:
        """Raise unless there is something to commit."""
        if not self.is_prepared:
            self.require_open()

    def require_abortable(self) -> None:
        """Raise unless there is something to abort."""
        self.require_working()
        if not self.is_abortable and not self.is_prepared:
            raise TransactionStateError(f"there is nothing to abort: {self.state.value}")

    def add_offsets(self, offsets: GroupOffsets) -> None:
        """Have offsets of a group committed with the transaction."""
        self.require_open()
        self._offsets.append(offsets)

    def prepare(self) -> None:
        """All records are confirmed: leave the end of the transaction to whoever decides over it.
        One that nobody has heard of is over."""
        self.require_open()
        self._move(
            ProducerTransactionState.PREPARED
            if self.needs_end
            else ProducerTransactionState.COMMITTING
        )

    def find_prepared(self) -> PreparedTransaction | None:
        """What is prepared, for whoever completes it; None when nothing is."""
        if not self.is_prepared:
            return None
        identity = self._require_identity()
        return PreparedTransaction(
            transactional_id=self.transactional_id,
            producer_id=identity.id,
            producer_epoch=identity.epoch,
        )

    def commit(self) -> None:
        """All records are confirmed: end the transaction."""
        self.require_committable()
        self._move(ProducerTransactionState.COMMITTING)

    def abort(self) -> None:
        """Nothing is under way any more: end the transaction."""
        self.require_abortable()
        self._new_partitions.clear()
        self._offsets.clear()
        self._move(ProducerTransactionState.ABORTING)

    def require_working(self) -> None:
        if self.state is ProducerTransactionState.FAILED and self.failure is not None:
            raise self.failure.with_traceback(None)

    def explain_aborted(self) -> MoldauError:
        """What whoever sent a record of a transaction is told that does not come about."""
        if self.failure is None:
            return TransactionAbortedError("the transaction was aborted")
        if self.state is ProducerTransactionState.FAILED:
            return self.failure
        error = TransactionAbortedError(
            f"the transaction can only be aborted: {self.failure}; abort it, and do its work again"
        )
        error.__cause__ = self.failure
        return error

    def is_done(self, call: TransactionCall) -> bool:
        """Whether what the program asked for has come to its end."""
        if self.state is ProducerTransactionState.FAILED:
            return True
        if call is TransactionCall.SEND_OFFSETS:
            return not self._offsets or self.state is ProducerTransactionState.ABORTABLE
        ends = (TransactionCall.COMMIT, TransactionCall.PREPARE)
        if call in ends and self.state is ProducerTransactionState.ABORTABLE:
            return True
        if call is TransactionCall.PREPARE and self.is_prepared:
            return True
        return self.state is ProducerTransactionState.READY

    def find_failure(self) -> MoldauError | None:
        """How a call that is done has ended: None if well."""
        if self.state is ProducerTransactionState.FAILED:
            return self.failure
        return self.explain_aborted() if self.state is ProducerTransactionState.ABORTABLE else None

    # Sending

    @property
    def is_asking(self) -> bool:
        """Whether a coordinator has not answered yet."""
        return self._asked is not None

    @property
    def is_busy(self) -> bool:
        """Whether something has been asked, or is to be, that the end of the transaction needs."""
        return bool(self._asked or self._new_partitions or self._offsets)

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether batches of the partition may leave; it is added to the transaction if not."""
        if self.identity is None or self.state is not ProducerTransactionState.OPEN:
            return False
        if partition in self._partitions:
            return True
        if self.is_version_2:
            self._partitions.add(partition)  # by its leader, with the first batch
            return True
        self._new_partitions.add(partition)
        return False

    def on_not_delivered(self, error: MoldauError) -> None:
        """A batch of the transaction was given up or refused: its numbers may be missing."""
        self._needs_epoch = True
        if isinstance(error, ProducerFencedError):
            self._fail(self._explain_fenced(error))
        elif self.state is ProducerTransactionState.OPEN:
            self.failure = error
            self._move(ProducerTransactionState.ABORTABLE)

    # Asking

    def next_request(self, now: float) -> TransactionRequest | None:
        """What to ask now, one at a time; its answer comes to `answered` or `refused`."""
        if self._asked is not None or now < self._not_before:
            return None
        self._asked = self._choose_request()
        return self._asked

    def wake_at(self) -> float:
        """When there is something to ask again."""
        waits = self._asked is None and self._attempt and self._choose_request() is not None
        return self._not_before if waits else NEVER

    def _choose_request(self) -> TransactionRequest | None:
        match self.state:
            case ProducerTransactionState.INITIALIZING:
                return AskProducerId(self.transactional_id, self.identity)
            case ProducerTransactionState.OPEN:
                return self._choose_addition()
            case ProducerTransactionState.COMMITTING | ProducerTransactionState.ABORTING:
                is_commit = self.state is ProducerTransactionState.COMMITTING
                addition = self._choose_addition() if is_commit else None
                if addition is not None:
                    return addition
                return AskToEnd(self.transactional_id, self._require_identity(), is_commit)
            case _:
                return None

    def _choose_addition(self) -> TransactionRequest | None:
        identity = self._require_identity()
        if self._new_partitions:
            return AskToAddPartitions(
                self.transactional_id, identity, tuple(sorted(self._new_partitions))
            )
        if self._offsets:
            offsets = self._offsets[0]
            if not self.is_version_2 and offsets.group.group_id not in self._groups:
                return AskToAddOffsets(self.transactional_id, identity, offsets.group.group_id)
            return AskToCommitOffsets(self.transactional_id, identity, offsets)
        return None

    def _require_identity(self) -> ProducerIdentity:
        if self.identity is None:
            raise TransactionStateError("the producer has no id yet")
        return self.identity

    @property
    def needs_end(self) -> bool:
        """Whether the coordinator knows of the transaction."""
        return bool(self._partitions or self._groups or self._has_offsets)

    def finish_empty(self) -> bool:
        """End a transaction that nobody has heard of; False if somebody has to be asked."""
        is_ending = self.state in (
            ProducerTransactionState.COMMITTING,
            ProducerTransactionState.ABORTING,
        )
        if not is_ending or self.is_busy or self.needs_end:
            return False
        self._on_ended(None)
        return True

    # Answers

    def initialized(self, identity: ProducerIdentity, *, is_version_2: bool) -> None:
        self._take_answer()
        self.identity = identity
        self.is_version_2 = is_version_2
        self._needs_epoch = False
        self._move(ProducerTransactionState.READY)

    def answered(self, identity: ProducerIdentity | None = None) -> None:
        """The last request was granted; the end of a transaction may bring another identity."""
        asked = self._take_answer()
        match asked:
            case AskToAddPartitions(_, _, partitions):
                self._partitions.update(partitions)
                self._new_partitions.difference_update(partitions)
            case AskToAddOffsets(_, _, group_id):
                self._groups.add(group_id)
            case AskToCommitOffsets():
                if self._offsets:
                    del self._offsets[0]
                self._has_offsets = True
            case AskToEnd():
                self._on_ended(identity)
            case _:
                raise TransactionStateError(f"nobody has asked for that: {asked}")

    def refused(self, error: KafkaError | ClientError, now: float) -> None:
        """The last request failed: it is made again if that may help."""
        asked = self._asked
        self._asked = None
        if isinstance(asked, AskToCommitOffsets) and self.is_version_2:
            self._has_offsets = True  # it may have been added all the same
        if may_pass(error):
            self._not_before = now + self._backoff.delay_seconds(self._attempt, self._chance)
            self._attempt += 1
            return
        self._attempt = 0
        if isinstance(error, _FENCED):
            self._fail(self._explain_fenced(error))
        elif isinstance(error, _FATAL) or isinstance(asked, AskProducerId | AskToEnd):
            if isinstance(error, TransactionAbortableError | UnknownProducerIdError) and (
                self.state is ProducerTransactionState.COMMITTING
            ):
                self._give_up(error)
            else:
                self._fail(error)
        else:
            self._give_up(error)

    def _give_up(self, error: KafkaError | ClientError) -> None:
        """The transaction can only be aborted."""
        self.failure = error
        self._new_partitions.clear()
        self._offsets.clear()
        if self.state in (ProducerTransactionState.OPEN, ProducerTransactionState.COMMITTING):
            self._move(ProducerTransactionState.ABORTABLE)

    def _take_answer(self) -> TransactionRequest | None:
        asked, self._asked = self._asked, None
        self._attempt = 0
        self._not_before = 0.0
        return asked

    def _on_ended(self, identity: ProducerIdentity | None) -> None:
        if identity is not None:
            self.identity = identity
            self._needs_epoch = False
        self._partitions.clear()
        self._new_partitions.clear()
        self._groups.clear()
        self._offsets.clear()
        self._has_offsets = False
        self.failure = None
        if self._needs_epoch:
            self._move(ProducerTransactionState.INITIALIZING)
        else:
            self._move(ProducerTransactionState.READY)

    def _fail(self, error: MoldauError) -> None:
        self.failure = error
        self._move(ProducerTransactionState.FAILED)

    def _explain_fenced(self, error: MoldauError) -> ProducerFencedError:
        fenced = ProducerFencedError(
            f"another producer has the transactional id {self.transactional_id!r} now, and this "
            "one can do nothing any more: close it. If no other one should be there, give each a "
            "transactional id of its own; if the transaction took too long, raise "
            "transaction.timeout.ms"
        )
        fenced.__cause__ = error
        return fenced

    def _move(self, state: ProducerTransactionState) -> None:
        if state is self.state:
            return
        if state not in TRANSACTION_MOVES[self.state]:
            raise TransactionStateError(f"from {self.state.name} nothing leads to {state.name}")
        self.state = state


def may_pass(error: KafkaError | ClientError) -> bool:
    """Whether the coordinator may answer otherwise soon."""
    if isinstance(error, KafkaError):
        return error.code.retriable
    # Nobody could be asked, or nobody answered; but who has no such request will not have it soon.
    return not isinstance(error, UnsupportedByBrokerError)


# A commit and a preparation wait until every batch is confirmed, an abort until none is under way;
# what they ask of the coordinator then is decided by `TransactionManager`.


_WAIT_FOR_ALL: Final = (TransactionCall.COMMIT, TransactionCall.PREPARE)
_ENDS: Final = (*_WAIT_FOR_ALL, TransactionCall.ABORT)
"""After these the transaction takes no records."""


class TransactionCalls:
    """Of one producer with a transactional id."""

    def __init__(self, transactions: TransactionManager) -> None:
        self.transactions = transactions
        self._call: TransactionCall | None = None  # what the program waits for
        self._call_id = 0

    @property
    def needs_flush(self) -> bool:
        """Nothing is to linger: the program waits for all of it."""
        return self._call in _WAIT_FOR_ALL

    @property
    def drops_waiting(self) -> bool:
        """What was not sent yet does not have to be."""
        is_over = self.transactions.state is ProducerTransactionState.FAILED
        return is_over or self._call is TransactionCall.ABORT

    def find_refusal(self) -> MoldauError | None:
        """Why no record may be sent at the moment; None if it may."""
        if self._call in _ENDS:
            return TransactionStateError("the transaction is being ended")
        return self.transactions.find_refusal()

    def begin_call(self, call: TransactionCall) -> int:
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
        call_id = self.begin_call(TransactionCall.SEND_OFFSETS)
        self.transactions.add_offsets(offsets)
        return call_id

    def advance(self, *, is_still: bool, is_empty: bool) -> FinishCall | None:
        """End the transaction if that is wanted and nothing is in its way: no batch is under way
        (`is_still`), or even collected. Tells how the call went, once it is over."""
        transactions, state = self.transactions, self.transactions.state
        is_open = state in (ProducerTransactionState.OPEN, ProducerTransactionState.PREPARED)
        wants_commit = self._call is TransactionCall.COMMIT and is_open
        wants_prepare = (
            self._call is TransactionCall.PREPARE and state is ProducerTransactionState.OPEN
        )
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
