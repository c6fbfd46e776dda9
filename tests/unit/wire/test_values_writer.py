"""Messages written from plain values, without kio's classes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.errors import ShapeError
from moldau.wire.layout import layout_of
from moldau.wire.messages import encode_body
from moldau.wire.shape import EncodedArray, fit
from moldau.wire.values_writer import encode_values
from moldau.wire.versions import request_class, response_class

from .strategies import SERVED_APIS, messages, neutral, versions_of

PRODUCE, METADATA, OFFSET_COMMIT, DESCRIBE_GROUPS = 0, 3, 8, 15

served_apis = pytest.mark.parametrize("api_key", SERVED_APIS.values(), ids=SERVED_APIS)


@served_apis
@settings(max_examples=20)
@given(data=st.data())
def test_values_are_written_byte_for_byte_as_their_classes_are(
    api_key: int, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(versions_of(api_key)))
    load = data.draw(st.sampled_from((request_class, response_class)))
    message = data.draw(messages(load(api_key, version)))
    assert encode_values(type(message), neutral(message)) == encode_body(message)


@served_apis
@settings(max_examples=20)
@given(data=st.data())
def test_what_is_left_out_is_the_default_or_a_mistake_as_with_classes(
    api_key: int, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(versions_of(api_key)))
    message_class = response_class(api_key, version)
    values = neutral(data.draw(messages(message_class)))
    names = [field.name for field in layout_of(message_class)]
    for name in data.draw(st.sets(st.sampled_from(names))) if names else ():
        del values[name]
    try:
        expected = encode_body(fit(message_class, values))
    except ShapeError:
        with pytest.raises(ShapeError):
            encode_values(message_class, values)
    else:
        assert encode_values(message_class, values) == expected


def _committed(**partition: object) -> Mapping[str, object]:
    rows = [{"partition_index": 0, "error_code": 0, **partition}]
    return {"throttle_time": 5, "topics": [{"name": "t", "partitions": rows}]}


@pytest.mark.parametrize("version", [2, 3, 8])
def test_what_a_version_cannot_say_is_dropped_where_it_may_be(version: int) -> None:
    message_class = response_class(OFFSET_COMMIT, version)
    droppable = frozenset({"throttle_time", "more"})
    expected = encode_body(fit(message_class, _committed(more=1), droppable))
    assert encode_values(message_class, _committed(more=1), droppable) == expected


def test_a_field_that_the_version_has_not_is_refused() -> None:
    with pytest.raises(ShapeError, match="cannot say more=1"):
        encode_values(response_class(OFFSET_COMMIT, 8), _committed(more=1))
    with pytest.raises(ShapeError, match="cannot say throttle_time=5"):
        encode_values(response_class(OFFSET_COMMIT, 2), _committed())


def test_a_field_under_another_name_is_refused_though_their_number_is_right() -> None:
    rows = [{"partition_index": 0, "error": 0}]
    values = {"throttle_time": 0, "topics": [{"name": "t", "partitions": rows}]}
    with pytest.raises(ShapeError, match="cannot say error=0"):
        encode_values(response_class(OFFSET_COMMIT, 8), values)


@pytest.mark.parametrize("topics", [None, "t", b"t", {"name": "t"}, 7])
def test_what_is_no_sequence_is_refused(topics: object) -> None:
    with pytest.raises(ShapeError):
        encode_values(response_class(OFFSET_COMMIT, 8), {"throttle_time": 0, "topics": topics})


@pytest.mark.parametrize("version", [2, 8])
def test_any_sequence_and_encoded_elements_are_taken(version: int) -> None:
    message_class = response_class(OFFSET_COMMIT, version)
    droppable = frozenset({"throttle_time"})
    values = _committed()
    expected = encode_values(message_class, values, droppable)
    (topic,) = values["topics"]  # type: ignore[misc]
    row_class = layout_of(layout_of(message_class)[-1].structure)[1].structure  # type: ignore[arg-type]
    assert row_class is not None
    encoded = EncodedArray([encode_values(row_class, row) for row in topic["partitions"]])
    for partitions in (iter(topic["partitions"]), encoded):
        again = {**values, "topics": ({**topic, "partitions": partitions},)}
        assert encode_values(message_class, again, droppable) == expected


def test_an_iterator_is_not_read_twice() -> None:
    """What is dropped and what is left out may make up for each other in number: it is written
    again then."""
    (groups,) = (f for f in layout_of(response_class(DESCRIBE_GROUPS, 5)) if f.name == "groups")
    assert groups.structure is not None
    droppable = frozenset({"more"})
    members = [
        {
            "member_id": "m",
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "h",
            "member_metadata": b"",
            "member_assignment": b"",
        }
    ]
    values = {
        "error_code": 0,
        "group_id": "g",
        "group_state": "Stable",
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": members,
        "more": 1,
    }
    expected = encode_body(fit(groups.structure, values, droppable))
    assert encode_values(groups.structure, values, droppable) == expected
    with pytest.raises(ShapeError, match="members has to be a sequence"):
        encode_values(groups.structure, {**values, "members": iter(members)}, droppable)


@pytest.mark.parametrize("time", [0, 250, 249.7, timedelta(milliseconds=250)])
def test_times_are_milliseconds_or_what_is_made_of_them(time: object) -> None:
    message_class = response_class(OFFSET_COMMIT, 8)
    values = {"throttle_time": time, "topics": ()}
    assert encode_values(message_class, values) == encode_body(fit(message_class, values))
