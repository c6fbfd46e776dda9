"""What can happen to a transactional id, and what comes out of it.

Requests of producers, time, and markers that partitions have written go in; an answer, records and
markers to write come out. A rule: values only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from moldau.errors import ErrorCode
from moldau.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from moldau.transactions.rules.transaction_metadata import IdAndEpoch, TransactionMetadata
from moldau.transactions.rules.transaction_states import TransactionState


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
