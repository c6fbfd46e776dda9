"""What keeps a message from being written is named, wherever in it."""

from __future__ import annotations

import pytest

from moldau.wire.apis import CREATE_TOPICS
from moldau.wire.layout import find_misfit
from moldau.wire.shape import Values
from moldau.wire.versions import request_class

TOPIC = {
    "name": "clicks",
    "num_partitions": 3,
    "replication_factor": 1,
    "assignments": [{"partition_index": 0, "broker_ids": (1, 2)}],
    "configs": [{"name": "retention.ms", "value": None}],
}


def misfit(values: Values) -> str | None:
    return find_misfit(request_class(CREATE_TOPICS.key, 7), values)


def test_a_message_that_can_be_written_has_none() -> None:
    assert misfit({"topics": [TOPIC], "timeout": 30_000, "validate_only": False}) is None
    assert misfit({"topics": ()}) is None


def test_a_number_of_numpy_is_not_what_a_message_stumbled_over() -> None:
    numpy = pytest.importorskip("numpy")
    values = {"topics": [{**TOPIC, "num_partitions": numpy.int64(3)}], "timeout": "soon"}
    assert misfit(values) == "timeout is 'soon', not a number of milliseconds"


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"topics": "clicks"}, "topics is 'clicks', not a list"),
        ({"topics": 5}, "topics is 5, not a list"),
        ({"topics": None}, "topics is None, not a list"),
        ({"timeout": "5"}, "timeout is '5', not a number of milliseconds"),
        ({"validate_only": "no"}, "validate_only is 'no', not True or False"),
        ({"topics": [TOPIC, {**TOPIC, "name": 5}]}, "topics[1].name is 5, not text"),
        (
            {"topics": [{**TOPIC, "replication_factor": 1 << 15}]},
            "topics[0].replication_factor is 32768, which is not from -32768 to 32767",
        ),
        (
            {"topics": [{"assignments": [{"partition_index": 0, "broker_ids": ["1"]}]}]},
            "topics[0].assignments[0].broker_ids[0] is '1', not a whole number",
        ),
    ],
)
def test_the_value_and_its_place_are_told(values: Values, found: str) -> None:
    assert misfit(values) == found
