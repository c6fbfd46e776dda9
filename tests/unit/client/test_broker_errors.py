"""From error codes to exceptions."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from moldau.client.rules.broker_errors import error_class, error_for, is_retriable
from moldau.errors import InvalidRequestError, KafkaError, NotLeaderError, UnknownTopicError


@pytest.mark.parametrize("code", [code for code in ErrorCode if code is not ErrorCode.none])
def test_every_code_has_a_class_that_carries_it(code: ErrorCode) -> None:
    found = error_class(code)
    assert issubclass(found, KafkaError)
    assert found.code is code
    assert found is error_class(code)


def test_codes_that_moldau_raises_become_the_same_classes() -> None:
    assert error_class(ErrorCode.unknown_topic_or_partition) is UnknownTopicError
    assert error_class(ErrorCode.not_leader_or_follower) is NotLeaderError
    assert error_class(ErrorCode.invalid_request) is InvalidRequestError


def test_codes_without_a_class_get_a_readable_one() -> None:
    error = error_for(ErrorCode.snapshot_not_found, None, "topic 't'")
    assert type(error).__name__ == "SnapshotNotFoundError"
    assert str(error) == "topic 't': snapshot not found"


def test_the_brokers_own_words_come_first() -> None:
    error = error_for(ErrorCode.invalid_config, "retention.ms=x is no number", "topic clicks")
    assert str(error) == "topic clicks: retention.ms=x is no number"


def test_the_subject_is_not_said_twice() -> None:
    error = error_for(ErrorCode.topic_already_exists, "topic 'a' exists already", "topic 'a'")
    assert str(error) == "topic 'a' exists already"


def test_retriable_is_what_kafka_says() -> None:
    assert is_retriable(error_for(ErrorCode.not_leader_or_follower, None))
    assert not is_retriable(error_for(ErrorCode.message_too_large, None))
