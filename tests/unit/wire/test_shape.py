"""Neutral values into the classes of one version."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from moldau.errors import InvariantViolation, ShapeError
from moldau.wire.shape import EncodedArray, fit, millis
from moldau.wire.versions import request_class, response_class

from .strategies import SERVED_APIS, long_millis, messages, neutral, versions_of

PRODUCE, METADATA, DELETE_RECORDS, DESCRIBE_TOPIC_PARTITIONS = 0, 3, 21, 75

ZERO_UUID = UUID(int=0)


@pytest.mark.parametrize("api_key", SERVED_APIS.values(), ids=SERVED_APIS)
@settings(max_examples=15)
@given(data=st.data())
def test_neutral_values_become_exactly_the_classes_of_the_version(
    api_key: int, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(versions_of(api_key)))
    response = data.draw(messages(response_class(api_key, version)))
    assert fit(type(response), neutral(response)) == response


def _produced(**partition: object) -> dict[str, object]:
    partition = {"index": 0, "error_code": 0, "base_offset": 5, "log_append_time": -1, **partition}
    return {"responses": [{"name": "t", "partition_responses": [partition]}], "throttle_time": 250}


def _partition_of(response: Any) -> Any:
    return response.responses[0].partition_responses[0]


def test_times_codes_and_nesting_are_converted() -> None:
    response: Any = fit(response_class(PRODUCE, 3), _produced())
    assert response.throttle_time == timedelta(milliseconds=250)
    assert response.responses[0].name == "t"
    assert _partition_of(response).error_code is ErrorCode.none
    assert _partition_of(response).log_append_time is None


def test_a_nullable_time_that_is_set_becomes_a_datetime() -> None:
    response = fit(response_class(PRODUCE, 3), _produced(log_append_time=1_000_123))
    expected = datetime(1970, 1, 1, 0, 16, 40, 123_000, tzinfo=UTC)
    assert _partition_of(response).log_append_time == expected


@pytest.mark.parametrize("code", [ErrorCode.corrupt_message, 2])
def test_error_codes_are_taken_as_numbers_and_as_codes(code: int) -> None:
    response = fit(response_class(PRODUCE, 3), _produced(error_code=code))
    assert _partition_of(response).error_code is ErrorCode.corrupt_message


def test_an_unknown_error_code_is_refused() -> None:
    with pytest.raises(ShapeError, match="12345"):
        fit(response_class(PRODUCE, 3), _produced(error_code=12345))


def test_missing_fields_take_the_defaults_of_the_class() -> None:
    response: Any = fit(response_class(PRODUCE, 12), _produced(record_errors=()))
    assert _partition_of(response).log_start_offset == -1
    assert _partition_of(response).current_leader.leader_id == -1
    assert response.node_endpoints == ()


def test_a_missing_field_without_a_default_is_refused() -> None:
    with pytest.raises(ShapeError, match="record_errors"):
        fit(response_class(PRODUCE, 12), _produced())


def test_a_field_that_the_version_has_not_is_refused() -> None:
    with pytest.raises(ShapeError, match="PartitionProduceResponse v3 cannot say log_start"):
        fit(response_class(PRODUCE, 3), _produced(log_start_offset=0))


def test_a_droppable_field_is_dropped_only_where_the_version_has_it_not() -> None:
    values = _produced(log_start_offset=7)
    droppable = frozenset({"log_start_offset"})
    assert not hasattr(
        _partition_of(fit(response_class(PRODUCE, 3), values, droppable)), "log_start_offset"
    )
    assert _partition_of(fit(response_class(PRODUCE, 5), values, droppable)).log_start_offset == 7


def test_what_is_droppable_does_not_excuse_the_rest() -> None:
    values = _produced(log_start_offset=7, error_message="x")
    with pytest.raises(ShapeError, match="error_message"):
        fit(response_class(PRODUCE, 3), values, frozenset({"log_start_offset"}))


def test_values_are_left_as_they_were() -> None:
    values = _produced(log_start_offset=7)
    fit(response_class(PRODUCE, 3), values, frozenset({"log_start_offset"}))
    assert values == _produced(log_start_offset=7)


@pytest.mark.parametrize("value", [None, "abc", b"abc", {"name": "t"}])
def test_an_array_has_to_be_given_as_a_sequence(value: object) -> None:
    with pytest.raises(ShapeError, match="responses"):
        fit(response_class(PRODUCE, 3), {"responses": value})


def test_a_value_of_the_wrong_type_is_refused() -> None:
    with pytest.raises(ShapeError, match="ProduceResponse v3"):
        fit(response_class(PRODUCE, 3), {"responses": 5})


@pytest.mark.parametrize("value", [None, 5, [], "t"])
def test_a_structure_has_to_be_given_as_a_mapping(value: object) -> None:
    with pytest.raises(ShapeError, match="TopicProduceResponse"):
        fit(response_class(PRODUCE, 3), {"responses": [value]})


def test_an_array_that_may_be_null_is_given_as_none() -> None:
    request: Any = fit(request_class(METADATA, 1), {"topics": None})
    assert request.topics is None


def test_an_array_of_numbers_may_be_any_iterable() -> None:
    request: Any = fit(
        request_class(23, 4),
        {"topics": ({"topic": name, "partitions": ()} for name in "ab")},
    )
    assert [topic.topic for topic in request.topics] == ["a", "b"]


@pytest.mark.parametrize("cursor", [None, {"topic_name": "t", "partition_index": 3}])
def test_a_structure_that_may_be_null_is_none_or_built(cursor: dict[str, object] | None) -> None:
    values = {"topics": (), "throttle_time": 0, "next_cursor": cursor}
    response: Any = fit(response_class(DESCRIBE_TOPIC_PARTITIONS, 0), values)
    assert (response.next_cursor is None) == (cursor is None)
    assert cursor is None or response.next_cursor.partition_index == 3


@pytest.mark.parametrize(
    ("given_id", "expected"), [(None, None), (ZERO_UUID, None), (UUID(int=5), UUID(int=5))]
)
def test_the_zero_id_is_none(given_id: UUID | None, expected: UUID | None) -> None:
    values = {"responses": [{"topic_id": given_id, "partition_responses": ()}]}
    response: Any = fit(response_class(PRODUCE, 13), values)
    assert response.responses[0].topic_id == expected


def test_requests_are_built_in_the_same_way() -> None:
    values = {"topics": (), "timeout": 1500}
    request: Any = fit(request_class(DELETE_RECORDS, 2), values)
    assert request.timeout == timedelta(milliseconds=1500)


def test_a_shape_error_is_a_bug_of_ours() -> None:
    assert issubclass(ShapeError, InvariantViolation)


@given(long_millis)
def test_millis_undoes_what_fit_and_kio_do_to_times(value: int) -> None:
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert millis(timedelta(milliseconds=value)) == value
    assert millis(epoch + timedelta(milliseconds=value)) == value
    assert millis(value) == value


def test_millis_of_no_time_is_minus_one() -> None:
    assert millis(None) == -1


def test_an_array_may_be_given_as_the_bytes_of_its_elements() -> None:
    encoded = EncodedArray([b"one", b"two"])
    values = {"throttle_time": 0, "responses": encoded}
    assert fit(response_class(PRODUCE, 9), values).responses is encoded  # type: ignore[attr-defined]
