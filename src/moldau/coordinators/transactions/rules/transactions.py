"""The transactional ids of one partition of `__transaction_state`: the machine behind a shard.

`handle` takes an event and tells what is to be done; `apply` takes a record that was logged and is
the only way to hard state. Loading a shard is `apply` in a loop. Whatever is prepared then has its
markers sent again, to every partition: who has one already says so.

Where this differs from Kafka's coordinator:

- An event sees every record before it, committed or not; its answer waits until all of them are
  committed. So there are no pending transitions that would have to be refused.
- A producer with an old epoch that initialises the id is fenced at once; the transaction of the
  one that has the id is not aborted for it.
- Who asks again with the epoch before the current one is recognised after a move of the
  coordinator, too: the log has that epoch.

A rule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from moldau.coordinators.transactions.rules import transaction_metadata as steps
from moldau.coordinators.transactions.rules.transaction_metadata import (
    FIRST_WITH_EPOCH_BUMP,
    IdAndEpoch,
    TransactionMetadata,
    TransactionState,
    check_move,
)
from moldau.errors import ErrorCode
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class InitProducer:
    """A producer wants an identity under which it is the only one."""

    transactional_id: str
    timeout_ms: int  # `NO_TIMEOUT_MS` for one that commits in two phases
    expected: IdAndEpoch | None = None  # who it was; it goes on after an error (KIP-360)
    keeps_prepared: bool = False  # it will complete what is prepared, rather than abort it
    spare_id: int | None = None
    """A producer id that nobody has; rules cannot fetch one. None if none seemed to be needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPartitions:
    """A producer is about to write to partitions, or to commit offsets."""

    transactional_id: str
    producer: IdAndEpoch
    partitions: frozenset[TopicPartition]
    version: int = 0  # the transaction version that the producer speaks


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """A producer has decided."""

    transactional_id: str
    producer: IdAndEpoch
    commit: bool
    version: int = 0
    spare_id: int | None = None  # as of `InitProducer`


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTimedOut:
    """The time of a transaction is over; one that has ended meanwhile is not meant."""

    transactional_id: str
    producer_epoch: int
    started_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireId:
    """Look whether a transactional id can be forgotten."""

    transactional_id: str
    expiration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkersWritten:
    """Partitions have their markers, or need none: they were deleted."""

    transactional_id: str
    producer: IdAndEpoch  # of the markers
    partitions: frozenset[TopicPartition]


TransactionEvent: TypeAlias = (
    InitProducer | AddPartitions | EndTransaction | AbortTimedOut | ExpireId | MarkersWritten
)


class TransactionAnswer(NamedTuple):
    """To a request."""

    error: ErrorCode = ErrorCode.none
    producer: IdAndEpoch = IdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    prepared: IdAndEpoch = IdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
    """Whose transaction was kept, for its new producer to complete (KIP-939)."""


class TransactionRecord(NamedTuple):
    """A line of the log; None is a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None


class MarkersToWrite(NamedTuple):
    """The end of a transaction, for its partitions. To be sent when the decision is committed, and
    as often as it takes (TXN-3)."""

    transactional_id: str
    producer: IdAndEpoch
    commit: bool
    version: int
    partitions: frozenset[TopicPartition]
    started_ms: int  # when the transaction began


class TransactionOutcome(NamedTuple):
    """What an event leads to: the records are to be logged together, then applied."""

    answer: TransactionAnswer | None = None
    records: tuple[TransactionRecord, ...] = ()
    note: str | None = None  # for the broker's own log


def markers_of(metadata: TransactionMetadata) -> MarkersToWrite:
    """Of a prepared transaction."""
    return MarkersToWrite(
        metadata.transactional_id,
        IdAndEpoch(metadata.producer_id, metadata.producer_epoch),
        metadata.state is TransactionState.PREPARE_COMMIT,
        metadata.client_version,
        metadata.partitions,
        metadata.started_ms,
    )


_NOTHING: Final = TransactionOutcome()


class _Sender(Enum):
    """Who sent a request, as far as the log knows."""

    CURRENT = 1  # the producer that has the id now
    BEFORE = 2  # the same, before the answer to its last request reached it
    FENCED = 3


class Transactions:
    """All transactional ids of a shard."""

    def __init__(self) -> None:
        self._by_id: dict[str, TransactionMetadata] = {}
        self._unmarked: dict[str, frozenset[TopicPartition]] = {}
        """Of what is prepared: the partitions without a marker, as far as is known here. Soft."""
        self._open: dict[str, TransactionMetadata] = {}
        """Those that may time out: few of the hundred thousand that there may be."""
        self._open_since: dict[AbortTimedOut, float] = {}
        """When what is open was first seen here, in monotonic seconds. Soft."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(tuple(self._by_id.values()))

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        return self._by_id.get(transactional_id)

    # Hard state

    def apply(self, record: TransactionRecord, *, is_live: bool = False) -> None:
        """Take a record that is in the log; `is_live` when it was logged just now."""
        transactional_id, metadata = record
        former = self._by_id.get(transactional_id)
        if is_live:
            former_state = TransactionState.DEAD if former is None else former.state
            new_state = TransactionState.DEAD if metadata is None else metadata.state
            check_move(transactional_id, former_state, new_state)
        self._unmarked.pop(transactional_id, None)
        self._open.pop(transactional_id, None)
        if metadata is None or metadata.state is TransactionState.DEAD:
            self._by_id.pop(transactional_id, None)
            return
        self._by_id[transactional_id] = metadata
        if metadata.may_time_out:
            self._open[transactional_id] = metadata
        if metadata.state.is_prepared:
            self._unmarked[transactional_id] = metadata.partitions

    def markers(self) -> Iterator[MarkersToWrite]:
        """Those of all that is prepared: what a coordinator that takes over goes on with."""
        return (markers_of(one) for one in self if one.state.is_prepared)

    # Events

    def handle(self, event: TransactionEvent, now_ms: int) -> TransactionOutcome:
        """What an event leads to. A request gets its answer here."""
        found = self._by_id.get(event.transactional_id)
        match event:
            case InitProducer():
                return _init(found, event, now_ms)
            case AddPartitions():
                return _add(found, event, now_ms)
            case EndTransaction():
                return _end(found, event, now_ms)
            case AbortTimedOut():
                return _abort_timed_out(found, event, now_ms)
            case ExpireId():
                return _expire(found, event, now_ms)
            case MarkersWritten():
                return self._complete(found, event, now_ms)

    def _complete(
        self, found: TransactionMetadata | None, event: MarkersWritten, now_ms: int
    ) -> TransactionOutcome:
        """Complete when no partition is left (TXN-3)."""
        unmarked = self._unmarked.get(event.transactional_id)
        if found is None or unmarked is None or event.producer != markers_of(found).producer:
            return _NOTHING  # of a transaction that has been completed meanwhile
        left = unmarked - event.partitions
        if left:
            self._unmarked[event.transactional_id] = left
            return _NOTHING
        return TransactionOutcome(records=_records(steps.complete(found, now_ms)))

    # Questions

    def verify(
        self,
        transactional_id: str,
        producer: IdAndEpoch,
        partitions: frozenset[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions belong to the open transaction of a producer (KIP-890)."""
        found = self._by_id.get(transactional_id)
        error = _find_sender_error(found, producer)
        if error is not None or found is None:
            return dict.fromkeys(partitions, error or ErrorCode.invalid_producer_id_mapping)
        is_open = found.state is TransactionState.ONGOING
        absent = ErrorCode.transaction_abortable
        return {
            one: ErrorCode.none if is_open and one in found.partitions else absent
            for one in partitions
        }

    def wants_producer_id(self, transactional_id: str) -> bool:
        """Whether the next step of this id may need a producer id that nobody has."""
        found = self._by_id.get(transactional_id)
        return found is None or found.client.is_exhausted

    def is_prepared(self, transactional_id: str) -> bool:
        """Whether it is on its way to the end, and can be asked again soon."""
        found = self._by_id.get(transactional_id)
        return found is not None and found.state.is_prepared

    def find_timed_out(self, now_ms: int, now: float) -> list[AbortTimedOut]:
        """What has been open for too long by the wall clock, or since it was first seen here.

        The one alone would not do: clocks are set back, and another coordinator's was ahead, so a
        transaction may have begun in the future. Nor would the other (`now`, in monotonic seconds):
        it begins anew with each coordinator.
        """
        former, self._open_since = self._open_since, {}
        timed_out: list[AbortTimedOut] = []
        for one in self._open.values():
            abort = AbortTimedOut(
                transactional_id=one.transactional_id,
                producer_epoch=one.producer_epoch,
                started_ms=one.started_ms,
            )
            since = self._open_since[abort] = former.get(abort, now)
            if one.started_ms + one.timeout_ms < now_ms or since + one.timeout_ms / 1000 < now:
                timed_out.append(abort)
        return timed_out

    def expired(self, expiration_ms: int, now_ms: int) -> list[str]:
        return [one.transactional_id for one in self if one.has_expired(expiration_ms, now_ms)]


# InitProducerId


def _init(
    found: TransactionMetadata | None, event: InitProducer, now_ms: int
) -> TransactionOutcome:
    spare_id = event.spare_id
    if found is None:
        if spare_id is None:
            return _refuse(ErrorCode.concurrent_transactions)  # it was there a moment ago
        first = steps.begin_id(event.transactional_id, spare_id, event.timeout_ms, now_ms)
        return _answer_client(first, _records(first))
    expected = event.expected
    sender = _Sender.CURRENT if expected is None else _sender_of(found, expected)
    is_open = found.state is TransactionState.ONGOING
    if sender is _Sender.FENCED or (sender is _Sender.BEFORE and is_open):
        return _refuse(ErrorCode.producer_fenced)  # or late: a transaction is open since
    if found.state.is_prepared:
        return _refuse(ErrorCode.concurrent_transactions)
    if sender is _Sender.BEFORE and found.client.producer_epoch < steps.MAX_EPOCH:
        return _answer_client(found, ())
    if spare_id is None and found.client.is_exhausted and (event.keeps_prepared or not is_open):
        return _refuse(ErrorCode.concurrent_transactions)
    continues = expected is not None
    if not is_open:
        handed_out = steps.hand_out(
            found,
            continues=continues,
            timeout_ms=event.timeout_ms,
            now_ms=now_ms,
            spare_id=spare_id or 0,
        )
        return _answer_client(handed_out, _records(handed_out))
    if event.keeps_prepared and found.has_two_phases:
        kept = steps.keep(found, continues=continues, now_ms=now_ms, spare_id=spare_id or 0)
        prepared = IdAndEpoch(kept.producer_id, kept.producer_epoch)
        answer = TransactionAnswer(producer=kept.client, prepared=prepared)
        return TransactionOutcome(answer, _records(kept))
    # Another producer, or the same after a crash: what is open is aborted, under an epoch that
    # nobody else is handed. The client asks again.
    fenced = steps.fence(found, now_ms, continues=continues)
    note = f"producer {found.producer_id} is fenced at epoch {found.producer_epoch}"
    return TransactionOutcome(
        TransactionAnswer(ErrorCode.concurrent_transactions), _records(fenced), note
    )


def _sender_of(found: TransactionMetadata, producer: IdAndEpoch) -> _Sender:
    """Fencing (TXN-2): one producer at a time has the id, and whoever had it before is told."""
    if producer == found.client:
        return _Sender.CURRENT
    if producer.producer_epoch != found.last_producer_epoch:
        return _Sender.FENCED
    is_same_id = producer.producer_id in (found.client.producer_id, found.producer_id)
    had_all_epochs = (
        producer.producer_id == found.previous_producer_id
        and producer.is_exhausted
        and found.producer_epoch == 0
    )
    return _Sender.BEFORE if is_same_id or had_all_epochs else _Sender.FENCED


# AddPartitionsToTxn, AddOffsetsToTxn


def _find_sender_error(found: TransactionMetadata | None, producer: IdAndEpoch) -> ErrorCode | None:
    """Why a producer cannot write in a transaction now; None when it can."""
    if found is None or producer.producer_id not in (found.client.producer_id, found.producer_id):
        return ErrorCode.invalid_producer_id_mapping
    if producer != found.client:
        return ErrorCode.producer_fenced
    if found.state.is_prepared:
        return ErrorCode.concurrent_transactions
    return ErrorCode.invalid_txn_state if found.is_kept else None


def _add(
    found: TransactionMetadata | None, event: AddPartitions, now_ms: int
) -> TransactionOutcome:
    error = _find_sender_error(found, event.producer)
    if error is not None or found is None:
        return _refuse(error or ErrorCode.invalid_producer_id_mapping)
    is_open = found.state is TransactionState.ONGOING
    if not event.partitions or (is_open and event.partitions <= found.partitions):
        return TransactionOutcome(TransactionAnswer())
    added = steps.add(found, event.partitions, version=event.version, now_ms=now_ms)
    return TransactionOutcome(TransactionAnswer(), _records(added))


# EndTxn


def _end(
    found: TransactionMetadata | None, event: EndTransaction, now_ms: int
) -> TransactionOutcome:
    if found is None:
        return _refuse(ErrorCode.invalid_producer_id_mapping)
    raises_epoch = event.version >= FIRST_WITH_EPOCH_BUMP
    comes_again = raises_epoch and _comes_again(found, event.producer)
    if event.producer != found.client and not comes_again:
        is_known = event.producer.producer_id in (found.client.producer_id, found.producer_id)
        fenced, unknown = ErrorCode.producer_fenced, ErrorCode.invalid_producer_id_mapping
        return _refuse(fenced if is_known else unknown)
    if found.state is TransactionState.ONGOING:
        return _decide(found, event, now_ms)
    if found.state is TransactionState.EMPTY or (raises_epoch and not comes_again):
        return _end_nothing(found, event, now_ms)
    was_commit = found.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
    if was_commit != event.commit:
        return _refuse(ErrorCode.invalid_txn_state)
    if found.state.is_prepared:
        return _refuse(ErrorCode.concurrent_transactions)
    return _answer_client(found, ())


def _end_nothing(
    found: TransactionMetadata, event: EndTransaction, now_ms: int
) -> TransactionOutcome:
    """No partition was added. Under version 2 such a transaction can be aborted."""
    if found.state.is_prepared:
        return _refuse(ErrorCode.concurrent_transactions)
    if event.commit or event.version < FIRST_WITH_EPOCH_BUMP:
        return _refuse(ErrorCode.invalid_txn_state)
    return _decide(found, event, now_ms)


def _comes_again(found: TransactionMetadata, producer: IdAndEpoch) -> bool:
    """Whether this EndTxn, of transaction version 2, has been dealt with: the epoch is one further,
    and nothing has begun since."""
    if found.state in (TransactionState.ONGOING, TransactionState.EMPTY) or found.is_fenced_end():
        return False
    if found.last_producer_epoch >= 0:
        return _sender_of(found, producer) is _Sender.BEFORE
    # A log of Kafka's does not tell the epoch before.
    bumped = IdAndEpoch(producer.producer_id, producer.producer_epoch + 1)
    return found.raises_epochs and bumped == (found.producer_id, found.producer_epoch)


def _decide(found: TransactionMetadata, event: EndTransaction, now_ms: int) -> TransactionOutcome:
    raises_epoch = event.version >= FIRST_WITH_EPOCH_BUMP
    if raises_epoch and found.client.is_exhausted and event.spare_id is None:
        return _refuse(ErrorCode.concurrent_transactions)
    prepared = steps.prepare(
        found,
        commit=event.commit,
        version=event.version,
        now_ms=now_ms,
        spare_id=event.spare_id or 0,
    )
    records = _records(prepared)
    if not prepared.partitions:
        records += _records(steps.complete(prepared, now_ms))
    return _answer_client(prepared, records)


# Time


def _abort_timed_out(
    found: TransactionMetadata | None, event: AbortTimedOut, now_ms: int
) -> TransactionOutcome:
    meant = (event.producer_epoch, event.started_ms)
    if found is None or not found.may_time_out or (found.producer_epoch, found.started_ms) != meant:
        return _NOTHING
    note = f"its transaction is open for more than {found.timeout_ms} ms and is aborted"
    return TransactionOutcome(
        records=_records(steps.fence(found, now_ms, continues=False)), note=note
    )


def _expire(found: TransactionMetadata | None, event: ExpireId, now_ms: int) -> TransactionOutcome:
    if found is None or not found.has_expired(event.expiration_ms, now_ms):
        return _NOTHING
    return TransactionOutcome(records=(TransactionRecord(found.transactional_id, None),))


# Outcomes


def _records(metadata: TransactionMetadata) -> tuple[TransactionRecord, ...]:
    return (TransactionRecord(metadata.transactional_id, metadata),)


def _refuse(error: ErrorCode) -> TransactionOutcome:
    return TransactionOutcome(TransactionAnswer(error))


def _answer_client(
    metadata: TransactionMetadata, records: tuple[TransactionRecord, ...]
) -> TransactionOutcome:
    """A success; the producer is told who it is from now on."""
    return TransactionOutcome(TransactionAnswer(producer=metadata.client), records)
