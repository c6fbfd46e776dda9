"""What handlers share: how responses state errors and list partitions."""

from __future__ import annotations

from moldau.broker.api import error_values, group_by_topic
from moldau.errors import ErrorCode, UnknownTopicError
from moldau.model import TopicPartition


def test_partitions_are_grouped_by_topic_in_the_order_of_their_coming() -> None:
    values = {
        TopicPartition("views", 1): "a",
        TopicPartition("clicks", 0): "b",
        TopicPartition("views", 0): "c",
    }
    grouped = group_by_topic(values)
    assert list(grouped) == ["views", "clicks"]
    assert grouped == {"views": {1: "a", 0: "c"}, "clicks": {0: "b"}}


def test_an_error_is_stated_by_its_code_and_message() -> None:
    assert error_values(None) == {"error_code": ErrorCode.none, "error_message": None}
    stated = error_values(UnknownTopicError("there is no topic"))
    assert stated["error_code"] is ErrorCode.unknown_topic_or_partition
    assert stated["error_message"] == "there is no topic"
