"""What a broker's answer means for a batch: confirmed, once more, in halves, or refused. A rule.

Failures that may pass (a leader that moved, a broker that is gone, too few replicas) are worth
another attempt. With idempotence so is a batch that is out of order: either one before it comes
again first, or its numbers begin anew (see `partition_queue`). A batch that the broker has already
is confirmed, though its offset may be unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from moldau.client.rules.producer_batches import ProducerBatch
from moldau.config.client_options import ACKS_NONE, ProducerOptions
from moldau.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    ConnectionLostError,
    DeliveryTimeoutError,
    DuplicateSequenceError,
    FencedLeaderEpochError,
    InvalidProducerEpochError,
    InvariantViolation,
    KafkaError,
    LeaderNotAvailableError,
    MoldauError,
    NoAnswerError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    ReplicaNotAvailableError,
    RequestTimedOutError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownProducerIdError,
    UnknownTopicError,
    UnknownTopicIdError,
)

_NOT_REACHED = (BrokerUnreachableError, ConnectionLostError, NoAnswerError)
_STALE_METADATA = (
    *_NOT_REACHED,
    FencedLeaderEpochError,
    LeaderNotAvailableError,
    NotLeaderError,
    ReplicaNotAvailableError,
    StorageError,
    UnknownLeaderEpochError,
    UnknownTopicError,
    UnknownTopicIdError,
)
_LOST_COUNT = (InvalidProducerEpochError, OutOfOrderSequenceError, UnknownProducerIdError)
_WRONG_EPOCH = (InvalidProducerEpochError,)
_TOO_LARGE = (BatchTooLargeError, RecordListTooLargeError)
_IN_DOUBT = (
    ConnectionLostError,
    NoAnswerError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
    StorageError,
)


class NextStep(Enum):
    """What becomes of the batch."""

    CONFIRM = 1
    RETRY = 2
    DIVIDE = 3
    REFUSE = 4


class Verdict(NamedTuple):
    """What becomes of the batch, and what has to happen beside it."""

    step: NextStep
    refresh_metadata: bool = False
    restart_numbers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How stubborn a producer is."""

    retries: int
    is_idempotent: bool
    is_transactional: bool = False
    """Whether a number that is missing ends the transaction, instead of beginning an epoch."""
    retries_lost_requests: bool = True
    """Whether a request is sent again of which nobody knows if it came through (not for acks=0)."""

    @classmethod
    def of(cls, options: ProducerOptions) -> RetryPolicy:
        return cls(
            retries=options.retries,
            is_idempotent=options.enable_idempotence,
            is_transactional=options.transactional_id is not None,
            retries_lost_requests=options.acks != ACKS_NONE,
        )


def judge(
    batch: ProducerBatch[Any], error: MoldauError | None, *, is_oldest: bool, policy: RetryPolicy
) -> Verdict:
    """`is_oldest` when every batch before it has come to its end; no error is a confirmation."""
    if error is None or isinstance(error, DuplicateSequenceError):
        return Verdict(NextStep.CONFIRM)
    if isinstance(error, _TOO_LARGE) and len(batch) > 1 and not batch.is_in_doubt:
        # One in doubt is not divided: the broker would not recognise its halves.
        return Verdict(NextStep.DIVIDE)
    refresh = isinstance(error, _STALE_METADATA)
    if policy.is_idempotent and isinstance(error, _LOST_COUNT):
        may_retry = batch.attempts <= policy.retries
        if policy.is_transactional:
            passes = may_retry and not is_oldest and not isinstance(error, _WRONG_EPOCH)
            return Verdict(NextStep.RETRY if passes else NextStep.REFUSE)
        return Verdict(NextStep.RETRY if may_retry else NextStep.REFUSE, restart_numbers=is_oldest)
    if batch.attempts <= policy.retries and _may_pass(error, policy):
        return Verdict(NextStep.RETRY, refresh_metadata=refresh)
    return Verdict(NextStep.REFUSE, refresh_metadata=refresh)


def leaves_doubt(error: MoldauError | None) -> bool:
    """Whether the batch may have been written in spite of this error."""
    return isinstance(error, _IN_DOUBT)


def _may_pass(error: MoldauError, policy: RetryPolicy) -> bool:
    if isinstance(error, ConnectionLostError | NoAnswerError):
        return policy.retries_lost_requests
    if isinstance(error, KafkaError):
        return error.code.retriable
    return isinstance(error, _NOT_REACHED)


def explain_refusal(batch: ProducerBatch[Any], error: MoldauError | None) -> MoldauError:
    """What the senders of a batch are told that was refused for good."""
    if error is None:
        return InvariantViolation(f"{batch} was refused for no reason")
    if isinstance(error, BatchTooLargeError) and len(batch) == 1:
        return BatchTooLargeError(
            f"a record of about {batch.size_bytes} bytes for {batch.partition} is more than the "
            f"broker takes; see max.message.bytes of the topic ({error})"
        )
    return error


def explain_too_late(batch: ProducerBatch[Any], seconds: float) -> DeliveryTimeoutError:
    """What they are told when the time for delivery is over."""
    records = "1 record" if len(batch) == 1 else f"{len(batch)} records"
    in_doubt = batch.is_in_doubt or batch.is_abandoned
    doubt = "; it is not known whether they were written" if in_doubt else ""
    reason = f" (last failure: {batch.last_error})" if batch.last_error is not None else ""
    error = DeliveryTimeoutError(
        f"{records} for {batch.partition} were not confirmed within {seconds:g} seconds"
        f"{doubt}{reason}"
    )
    error.__cause__ = batch.last_error
    return error
