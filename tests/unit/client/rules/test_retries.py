"""Which failures pass by themselves."""

from __future__ import annotations

import pytest

from moldau.client.rules.retries import MAX_UNKNOWN_TOPIC_ATTEMPTS, may_retry
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
