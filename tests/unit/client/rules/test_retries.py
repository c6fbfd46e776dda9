"""Which failures pass by themselves, and the pauses between attempts."""

from __future__ import annotations

import pytest

from moldau.client.rules.broker_errors import MAX_UNKNOWN_TOPIC_ATTEMPTS, Backoff, may_retry
from moldau.errors import (
    BatchTooLargeError,
    BrokerUnreachableError,
    ClusterUnreachableError,
    ConnectionLostError,
    LeaderNotAvailableError,
    MoldauError,
    NoAnswerError,
    NotLeaderError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UnsupportedByBrokerError,
)


@pytest.mark.parametrize(
    "error",
    [
        BrokerUnreachableError(),
        ConnectionLostError(),
        NoAnswerError(),
        NotLeaderError(),
        LeaderNotAvailableError(),
    ],
)
def test_connections_and_leaders_come_back(error: MoldauError) -> None:
    assert may_retry(error, 1000)


@pytest.mark.parametrize(
    "error", [BatchTooLargeError(), OffsetOutOfRangeError(), UnsupportedByBrokerError()]
)
def test_what_stays_wrong_is_not_tried_again(error: MoldauError) -> None:
    assert not may_retry(error, 0)


def test_an_unknown_topic_is_tried_a_few_times() -> None:
    assert may_retry(UnknownTopicError(), 0)
    assert not may_retry(UnknownTopicError(), MAX_UNKNOWN_TOPIC_ATTEMPTS - 1)


def test_a_cluster_that_does_not_answer_is_waited_for_only_in_the_middle_of_work() -> None:
    assert not may_retry(ClusterUnreachableError(), 0)
    assert may_retry(ClusterUnreachableError(), 0, wait_for_cluster=True)


def test_pauses_double_up_to_the_limit() -> None:
    backoff = Backoff(first_seconds=0.1, max_seconds=1.0, jitter=0.0)
    pauses = [backoff.delay_seconds(attempt, lambda: 0.5) for attempt in range(6)]
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_chance_moves_a_pause_by_the_jitter_at_most() -> None:
    backoff = Backoff(first_seconds=1.0, max_seconds=1.0, jitter=0.2)
    assert backoff.delay_seconds(0, lambda: 0.0) == pytest.approx(0.8)
    assert backoff.delay_seconds(0, lambda: 1.0) == pytest.approx(1.2)


def test_a_thousandth_attempt_is_no_overflow() -> None:
    assert Backoff(jitter=0.0).delay_seconds(1000, lambda: 0.5) == 1.0
