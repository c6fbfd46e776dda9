"""What an answer means for a batch."""

from __future__ import annotations

import pytest

from moldau.client.producer.rules.record_accumulator import ProducerBatch
from moldau.client.producer.rules.sender import (
    BatchCompletion,
    NextStep,
    RetryPolicy,
    decide_completion,
    leaves_doubt,
)
from moldau.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    ConnectionLostError,
    CorruptBatchError,
    DuplicateSequenceError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTopicError,
    KafkaError,
    LeaderNotAvailableError,
    MoldauError,
    NoAnswerError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    OutOfOrderSequenceError,
    RecordListTooLargeError,
    RequestTimedOutError,
    StorageError,
    UnknownProducerIdError,
    UnknownTopicError,
    UnsupportedByBrokerError,
)
from moldau.model import TopicPartition

PATIENT = RetryPolicy(retries=10, is_idempotent=True)


def batch_of(count: int = 2, attempts: int = 1) -> ProducerBatch[None]:
    batch = ProducerBatch(TopicPartition("rivers", 0), None, 0, 0.0)
    for _ in range(count):
        batch.add((0, None, b"", ()), 1)
    batch.attempts = attempts
    return batch


def verdict_on(
    error: MoldauError | None, *, is_oldest: bool = True, policy: RetryPolicy = PATIENT
) -> BatchCompletion:
    return decide_completion(batch_of(), error, is_oldest=is_oldest, policy=policy)


def test_no_error_is_a_confirmation() -> None:
    assert verdict_on(None) == BatchCompletion(NextStep.CONFIRM)


def test_what_the_broker_has_already_is_confirmed() -> None:
    assert verdict_on(DuplicateSequenceError()) == BatchCompletion(NextStep.CONFIRM)


@pytest.mark.parametrize(
    "error",
    [
        NotLeaderError(),
        LeaderNotAvailableError(),
        UnknownTopicError(),
        StorageError(),
        BrokerUnreachableError(),
        ConnectionLostError(),
        NoAnswerError(),
    ],
)
def test_a_stale_view_of_the_cluster_is_renewed_before_the_next_attempt(error: MoldauError) -> None:
    assert verdict_on(error) == BatchCompletion(NextStep.RETRY, refresh_metadata=True)


@pytest.mark.parametrize(
    "error",
    [
        NotEnoughReplicasError(),
        NotEnoughReplicasAfterAppendError(),
        RequestTimedOutError(),
        CorruptBatchError(),
    ],
)
def test_a_weakness_of_the_cluster_is_waited_for(error: MoldauError) -> None:
    assert verdict_on(error) == BatchCompletion(NextStep.RETRY)


@pytest.mark.parametrize(
    "error", [InvalidRecordError(), InvalidTopicError(), KafkaError(), UnsupportedByBrokerError()]
)
def test_what_does_not_pass_is_refused(error: MoldauError) -> None:
    assert verdict_on(error) == BatchCompletion(NextStep.REFUSE)


def test_retries_come_to_an_end() -> None:
    policy = RetryPolicy(retries=2, is_idempotent=False)
    steps = [
        decide_completion(
            batch_of(attempts=attempts), NotLeaderError(), is_oldest=True, policy=policy
        ).step
        for attempts in (1, 2, 3)
    ]
    assert steps == [NextStep.RETRY, NextStep.RETRY, NextStep.REFUSE]


@pytest.mark.parametrize(
    "error", [OutOfOrderSequenceError(), UnknownProducerIdError(), InvalidProducerEpochError()]
)
def test_a_batch_out_of_order_comes_again_with_new_numbers_only_if_none_is_before_it(
    error: MoldauError,
) -> None:
    assert verdict_on(error, is_oldest=False) == BatchCompletion(NextStep.RETRY)
    assert verdict_on(error, is_oldest=True) == BatchCompletion(
        NextStep.RETRY, restart_numbers=True
    )


def test_without_idempotence_nothing_is_out_of_order() -> None:
    policy = RetryPolicy(retries=10, is_idempotent=False)
    assert verdict_on(OutOfOrderSequenceError(), policy=policy) == BatchCompletion(NextStep.REFUSE)


@pytest.mark.parametrize("error", [BatchTooLargeError(), RecordListTooLargeError()])
def test_a_batch_that_is_too_large_is_divided_down_to_one_record(error: MoldauError) -> None:
    assert verdict_on(error) == BatchCompletion(NextStep.DIVIDE)
    single = decide_completion(batch_of(1), error, is_oldest=True, policy=PATIENT)
    assert single == BatchCompletion(NextStep.REFUSE)


def test_a_batch_that_may_be_in_the_log_is_not_divided() -> None:
    batch = batch_of(2, attempts=2)
    batch.is_in_doubt = True
    completion = decide_completion(batch, BatchTooLargeError(), is_oldest=True, policy=PATIENT)
    assert completion == BatchCompletion(NextStep.REFUSE)


@pytest.mark.parametrize(
    ("error", "in_doubt"),
    [
        (ConnectionLostError(), True),
        (NoAnswerError(), True),
        (RequestTimedOutError(), True),
        (NotEnoughReplicasAfterAppendError(), True),
        (NotEnoughReplicasError(), False),
        (NotLeaderError(), False),
        (BrokerUnreachableError(), False),
        (None, False),
    ],
)
def test_some_failures_leave_doubt(error: MoldauError | None, in_doubt: bool) -> None:
    assert leaves_doubt(error) is in_doubt


def test_without_answers_only_what_never_left_is_sent_again() -> None:
    policy = RetryPolicy(retries=10, is_idempotent=False, retries_lost_requests=False)
    assert verdict_on(BrokerUnreachableError(), policy=policy).step is NextStep.RETRY
    assert verdict_on(ConnectionLostError(), policy=policy).step is NextStep.REFUSE
    assert verdict_on(NoAnswerError(), policy=policy).step is NextStep.REFUSE
