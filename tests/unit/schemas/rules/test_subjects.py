from __future__ import annotations

import pytest

from moldau.errors import ConfigurationError
from moldau.schemas.rules.framing import SubjectStrategy, parse_strategy, subject_of


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("topic", "clicks-value"),
        ("record", "a.b.Click"),
        ("topic-record", "clicks-a.b.Click"),
    ],
)
def test_subjects_are_named_as_confluents_strategies_name_them(
    strategy: SubjectStrategy, subject: str
) -> None:
    assert subject_of(strategy, "clicks", "value", "a.b.Click") == subject


def test_javas_class_names_are_taken_as_well() -> None:
    name = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"

    assert parse_strategy(name) == "topic-record"
    with pytest.raises(ConfigurationError, match="choose topic"):
        parse_strategy("something")


def test_a_schema_without_a_name_is_told() -> None:
    assert subject_of("topic", "t", "key", None) == "t-key"
    with pytest.raises(ConfigurationError, match="title"):
        subject_of("record", "t", "value", None)
