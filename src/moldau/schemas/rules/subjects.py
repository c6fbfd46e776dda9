"""Under which subject the schema of a topic's keys or values is registered. A rule.

Confluent's three strategies, by their short names or by those of the Java classes.
"""

from __future__ import annotations

from typing import Final, Literal

from moldau.errors import ConfigurationError
from moldau.schemas.model import Field

SubjectStrategy = Literal["topic", "record", "topic-record"]

_BY_NAME: Final[dict[str, SubjectStrategy]] = {
    "topic": "topic",
    "topicnamestrategy": "topic",
    "record": "record",
    "recordnamestrategy": "record",
    "topic-record": "topic-record",
    "topicrecordnamestrategy": "topic-record",
}


def parse_strategy(text: str) -> SubjectStrategy:
    """Raises ConfigurationError."""
    found = _BY_NAME.get(text.rpartition(".")[2].lower())
    if found is None:
        raise ConfigurationError(
            f"{text!r} is no strategy for the names of subjects; choose topic, record or "
            "topic-record"
        )
    return found


def subject_of(strategy: SubjectStrategy, topic: str, field: Field, record_name: str | None) -> str:
    """Raises ConfigurationError for a schema without a name where the strategy needs one."""
    if strategy == "topic":
        return f"{topic}-{field}"
    if not record_name:
        raise ConfigurationError(
            f"the schema of the {field} has no name, which the subject name strategy "
            f"{strategy!r} needs; name it (JSON Schema: title), or use the strategy topic"
        )
    return record_name if strategy == "record" else f"{topic}-{record_name}"
