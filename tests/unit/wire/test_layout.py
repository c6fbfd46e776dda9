"""Where error codes stand in answers."""

from __future__ import annotations

from typing import Any

from moldau.wire.apis import DELETE_TOPICS, HEARTBEAT, METADATA, OFFSET_COMMIT
from moldau.wire.layout import arrays_with_errors, element_class_of
from moldau.wire.versions import response_class


def names_in(structure: Any) -> list[str]:
    return [name for name, _ in arrays_with_errors(structure)]


def test_arrays_are_named_whose_structures_have_errors_at_any_depth() -> None:
    assert names_in(response_class(HEARTBEAT.key, 4)) == []
    assert names_in(response_class(DELETE_TOPICS.key, 6)) == ["responses"]
    committed = response_class(OFFSET_COMMIT.key, 8)
    assert names_in(committed) == ["topics"]
    assert names_in(element_class_of(committed, "topics")) == ["partitions"]
    assert names_in(response_class(METADATA.key, 12)) == ["topics"]  # and not the brokers
