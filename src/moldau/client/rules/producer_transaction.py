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

from moldau.client.rules.producer_batches import ProducerIdentity
from moldau.client.rules.producer_instructions import (
    AskProducerId,
    AskToAddOffsets,
    AskToAddPartitions,
    AskToCommitOffsets,
    AskToEnd,
    GroupOffsets,
    TransactionRequest,
)
from moldau.client.rules.retries import Backoff, Chance
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


class TransactionPhase(Enum):
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


_S = TransactionPhase

TRANSACTION_MOVES: Final[Mapping[_S, frozenset[_S]]] = MappingProxyType(
    {
        _S.NEW: frozenset({_S.INITIALIZING, _S.FAILED}),
        _S.INITIALIZING: frozenset({_S.READY, _S.FAILED}),
        _S.READY: frozenset({_S.OPEN, _S.INITIALIZING, _S.FAILED}),
        _S.OPEN: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE, _S.PREPARED, _S.FAILED}),
        _S.PREPARED: frozenset({_S.COMMITTING, _S.ABORTING, _S.FAILED}),
        _S.ABORTABLE: frozenset({_S.ABORTING, _S.FAILED}),
        _S.COMMITTING: frozenset({_S.READY, _S.ABORTABLE, _S.FAILED}),
        _S.ABORTING: frozenset({_S.READY, _S.INITIALIZING, _S.FAILED}),
        _S.FAILED: frozenset(),
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


class ProducerTransactions:
    """Of one producer with a transactional id. `now` is a monotonic time in seconds."""

    def __init__(self, transactional_id: str, backoff: Backoff, chance: Chance) -> None:
        self.transactional_id = transactional_id
        self.state = TransactionPhase.NEW
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

    def begin(self) -> None:
        """Open a transaction."""
        self.require_working()
        if self.state is not TransactionPhase.READY:
            raise TransactionStateError(f"a transaction cannot begin: {self.state.value}")
        self._move(TransactionPhase.OPEN)

    def initialize(self) -> None:
        """Ask for the producer id: whoever had the transactional id before is fenced from then on,
        and what it left open is aborted."""
        self.require_working()
        if self.is_abortable:
            raise TransactionStateError("a transaction is open already: commit or abort it first")
        if self.state is TransactionPhase.PREPARED:
            raise TransactionStateError(f"a transaction cannot begin: {self.state.value}")
        if self.state is TransactionPhase.NEW:
            self._move(TransactionPhase.INITIALIZING)

    def require_open(self) -> None:
        """Raise unless records may be sent."""
        refusal = self.find_refusal()
        if refusal is not None:
            raise refusal

    def find_refusal(self) -> MoldauError | None:
        """Why no records may be sent; None if they may."""
        match self.state:
            case TransactionPhase.OPEN:
                return None
            case TransactionPhase.FAILED:
                return self.failure
            case TransactionPhase.ABORTABLE:
                return self.explain_aborted()
            case TransactionPhase.PREPARED:
                return TransactionStateError(f"nothing more can be sent: {self.state.value}")
            case _:
                return TransactionStateError(
                    "this producer has a transactional id: send within a transaction "
                    "(`with producer.transaction(): ...`)"
                )

    @property
    def is_abortable(self) -> bool:
        return self.state in (TransactionPhase.OPEN, TransactionPhase.ABORTABLE)

    @property
    def is_prepared(self) -> bool:
        return self.state is TransactionPhase.PREPARED

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
        self._move(TransactionPhase.PREPARED if self.needs_end else TransactionPhase.COMMITTING)

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
        self._move(TransactionPhase.COMMITTING)

    def abort(self) -> None:
        """Nothing is under way any more: end the transaction."""
        self.require_abortable()
        self._new_partitions.clear()
        self._offsets.clear()
        self._move(TransactionPhase.ABORTING)

    def require_working(self) -> None:
        if self.state is TransactionPhase.FAILED and self.failure is not None:
            raise self.failure.with_traceback(None)

    def explain_aborted(self) -> MoldauError:
        """What whoever sent a record of a transaction is told that does not come about."""
        if self.failure is None:
            return TransactionAbortedError("the transaction was aborted")
        if self.state is TransactionPhase.FAILED:
            return self.failure
        error = TransactionAbortedError(
            f"the transaction can only be aborted: {self.failure}; abort it, and do its work again"
        )
        error.__cause__ = self.failure
        return error

    def is_done(self, call: TransactionCall) -> bool:
        """Whether what the program asked for has come to its end."""
        if self.state is TransactionPhase.FAILED:
            return True
        if call is TransactionCall.SEND_OFFSETS:
            return not self._offsets or self.state is TransactionPhase.ABORTABLE
        ends = (TransactionCall.COMMIT, TransactionCall.PREPARE)
        if call in ends and self.state is TransactionPhase.ABORTABLE:
            return True
        if call is TransactionCall.PREPARE and self.is_prepared:
            return True
        return self.state is TransactionPhase.READY

    def find_failure(self) -> MoldauError | None:
        """How a call that is done has ended: None if well."""
        if self.state is TransactionPhase.FAILED:
            return self.failure
        return self.explain_aborted() if self.state is TransactionPhase.ABORTABLE else None

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
        if self.identity is None or self.state is not TransactionPhase.OPEN:
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
        elif self.state is TransactionPhase.OPEN:
            self.failure = error
            self._move(TransactionPhase.ABORTABLE)

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
            case TransactionPhase.INITIALIZING:
                return AskProducerId(self.transactional_id, self.identity)
            case TransactionPhase.OPEN:
                return self._choose_addition()
            case TransactionPhase.COMMITTING | TransactionPhase.ABORTING:
                is_commit = self.state is TransactionPhase.COMMITTING
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
            TransactionPhase.COMMITTING,
            TransactionPhase.ABORTING,
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
        self._move(TransactionPhase.READY)

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
                self.state is TransactionPhase.COMMITTING
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
        if self.state in (TransactionPhase.OPEN, TransactionPhase.COMMITTING):
            self._move(TransactionPhase.ABORTABLE)

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
            self._move(TransactionPhase.INITIALIZING)
        else:
            self._move(TransactionPhase.READY)

    def _fail(self, error: MoldauError) -> None:
        self.failure = error
        self._move(TransactionPhase.FAILED)

    def _explain_fenced(self, error: MoldauError) -> ProducerFencedError:
        fenced = ProducerFencedError(
            f"another producer has the transactional id {self.transactional_id!r} now, and this "
            "one can do nothing any more: close it. If no other one should be there, give each a "
            "transactional id of its own; if the transaction took too long, raise "
            "transaction.timeout.ms"
        )
        fenced.__cause__ = error
        return fenced

    def _move(self, state: TransactionPhase) -> None:
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
