"""What programs and administrators hear about transactions. Values."""

from __future__ import annotations

from dataclasses import dataclass

from moldau.model import TopicPartition

ONGOING = "Ongoing"
PREPARE_COMMIT = "PrepareCommit"
PREPARE_ABORT = "PrepareAbort"
UNDECIDED_OR_COMPLETING = frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT})
"""The states in which a coordinator will still end the transaction, in Kafka's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionListing:
    """A transactional id as it is listed."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id, and what is open of it."""

    transactional_id: str
    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None  # None when nothing is open
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer that a partition remembers."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None  # of its last marker
    transaction_start_offset: int | None  # None when no transaction of it is open here


@dataclass(frozen=True, slots=True, kw_only=True)
class HangingTransaction:
    """An open transaction in a partition, of which no coordinator knows: it will never end, and
    holds up every reader of committed records."""

    partition: TopicPartition
    producer: ActiveProducer
    transactional_id: str | None  # of its producer, if there is one
