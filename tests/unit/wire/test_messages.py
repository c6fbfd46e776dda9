"""Messages through kio, and what the guard keeps from it."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.static.protocol import Payload

from moldau.errors import MalformedFrameError
from moldau.wire import messages as messages_module
from moldau.wire.guard import Edits, apply_edits, walker_of
from moldau.wire.headers import read_request_header
from moldau.wire.layout import element_class_of, layout_of
from moldau.wire.messages import (
    MAX_REQUEST_ELEMENTS,
    encode_body,
    encode_request,
    encode_response,
    parse,
    parse_request,
    parse_response,
)
from moldau.wire.primitives import encode_varint
from moldau.wire.shape import EncodedArray, fit
from moldau.wire.versions import reader_of, request_class, response_class

from .strategies import HOSTILE, SERVED_APIS, damaged, messages, versions_of, written_by_kio

METADATA = 3
CREATE_TOPICS = 19

served_apis = pytest.mark.parametrize("api_key", SERVED_APIS.values(), ids=SERVED_APIS)


def _writable(raw: bytes) -> memoryview:
    return memoryview(bytearray(raw))


def _classes_of(api_key: int) -> st.SearchStrategy[type[Payload]]:
    versions = st.sampled_from(versions_of(api_key))
    loaders = st.sampled_from((request_class, response_class))
    return st.builds(lambda load, version: load(api_key, version), loaders, versions)


@served_apis
@settings(max_examples=20)
@given(data=st.data())
def test_a_message_reads_as_kio_wrote_it(api_key: int, data: st.DataObject) -> None:
    message_class = data.draw(_classes_of(api_key))
    message = data.draw(messages(message_class))
    raw = written_by_kio(message)
    assert parse(message_class, _writable(raw), 0) == message
    assert parse(message_class, _writable(b"header" + raw + b"garbage"), 6) == message


@served_apis
@settings(max_examples=20)
@given(data=st.data())
def test_a_message_is_written_byte_for_byte_as_kio_writes_it(
    api_key: int, data: st.DataObject
) -> None:
    message = data.draw(_classes_of(api_key).flatmap(messages))
    assert encode_body(message) == written_by_kio(message)


@served_apis
@settings(max_examples=20)
@given(data=st.data())
def test_arrays_that_are_encoded_already_make_the_same_message(
    api_key: int, data: st.DataObject
) -> None:
    message = data.draw(messages(data.draw(_classes_of(api_key))))
    values: dict[str, object] = {}
    for field in layout_of(type(message)):
        value = values[field.name] = getattr(message, field.name)
        if field.structure is not None and field.is_array and field.tag is None and value:
            assert element_class_of(type(message), field.name) is field.structure
            values[field.name] = EncodedArray([encode_body(element) for element in value])
    assert encode_body(type(message)(**values)) == encode_body(message)


@served_apis
@settings(max_examples=25)
@given(data=st.data())
def test_a_damaged_message_is_a_message_or_malformed(api_key: int, data: st.DataObject) -> None:
    message_class = data.draw(_classes_of(api_key))
    raw = data.draw(messages(message_class).map(written_by_kio).flatmap(damaged))
    _parse_or_refuse(message_class, raw)


@served_apis
@settings(max_examples=25)
@given(data=st.data())
def test_random_bytes_are_a_message_or_malformed(api_key: int, data: st.DataObject) -> None:
    pieces = st.lists(st.binary(max_size=8) | st.sampled_from(HOSTILE), max_size=10)
    _parse_or_refuse(data.draw(_classes_of(api_key)), b"".join(data.draw(pieces)))


@served_apis
@settings(max_examples=8)
@given(data=st.data())
def test_a_message_cut_anywhere_is_malformed(api_key: int, data: st.DataObject) -> None:
    message_class = data.draw(_classes_of(api_key))
    raw = memoryview(written_by_kio(data.draw(messages(message_class))))
    for end in range(len(raw)):
        with pytest.raises(MalformedFrameError):
            parse(message_class, raw[:end], 0)


def _parse_or_refuse(message_class: type[Payload], raw: bytes) -> None:
    """Where the bytes are a message, guard and kio have to agree on where it ends: otherwise the
    guard has looked at other lengths than kio has."""
    try:
        message = parse(message_class, memoryview(raw), 0)
    except MalformedFrameError:
        return
    assert isinstance(message, message_class)
    edits = Edits()
    end = walker_of(message_class).walk(memoryview(raw), 0, edits)
    if not edits:
        assert reader_of(message_class)(raw, 0) == (message, end)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (1, struct.pack(">i", 0x7FFFFFFF)),
        (1, struct.pack(">ih", 0x7FFFFFFF, 1) + b"a"),
        (1, struct.pack(">i", -2)),
        (9, b"\xff\xff\xff\xff\x07"),
        (9, b"\xff\xff\xff\xff\x0f"),
        (9, b"\xff\xff\xff\xff\x7f"),
        (9, b"\x81\x80\x80\x80\x70" + bytes(100)),
        (12, b"\xff\xff\xff\x7f" + bytes(100)),
    ],
)
def test_a_hostile_array_length_never_reaches_the_native_reader(
    version: int, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(message_class: type[Payload]) -> Any:
        pytest.fail("kio would reserve memory for all these elements")

    monkeypatch.setattr(messages_module, "reader_of", refuse)
    with pytest.raises(MalformedFrameError):
        parse_request(METADATA, version, memoryview(body), 0)


def test_a_hostile_array_length_inside_an_element_is_malformed() -> None:
    topic = b"\x02a" + struct.pack(">ih", 1, 1)
    frame = memoryview(b"\x02" + topic + b"\xff\xff\xff\xff\x07" + bytes(50))
    with pytest.raises(MalformedFrameError, match="assignments"):
        parse_request(CREATE_TOPICS, 5, frame, 0)


@pytest.mark.parametrize(("version", "null"), [(2, b"\xff\xff\xff\xff"), (7, b"\x00")])
def test_null_is_malformed_where_an_array_is_required(version: int, null: bytes) -> None:
    with pytest.raises(MalformedFrameError, match="topics"):
        parse_request(CREATE_TOPICS, version, memoryview(null + bytes(20)), 0)


def test_null_is_none_where_an_array_may_be_null() -> None:
    request: Any = parse_request(METADATA, 1, memoryview(b"\xff\xff\xff\xff"), 0)
    assert request.topics is None


def _fetch_v15(request_tags: bytes, partition_tags: bytes) -> memoryview:
    partition = struct.pack(">iiqiqi", 4, 5, 6, 7, 8, 9) + partition_tags
    topic = bytes(16) + b"\x02" + partition + b"\x00"
    limits = struct.pack(">iiibii", 500, 1, 100, 0, 0, -1)
    return memoryview(limits + b"\x02" + topic + b"\x01" + b"\x01" + request_tags)


def _replica_state(tags: bytes) -> bytes:
    value = struct.pack(">iq", 11, 12) + tags
    return b"\x01" + bytes((len(value),)) + value


@pytest.mark.parametrize(
    ("request_tags", "partition_tags"),
    [
        (b"\x01" + _replica_state(b"\x00"), b"\x00"),
        (b"\x01" + _replica_state(b"\x00"), b"\x01\x63\x02xy"),
        (b"\x03" + _replica_state(b"\x00") + b"\x07\x00" + b"\x63\x02xy", b"\x00"),
        (b"\x02" + _replica_state(b"\x02\x05\x01a\xff\x01\x00") + b"\x63\x02xy", b"\x01\x63\x00"),
    ],
    ids=["none", "in an element", "beside a known field", "inside a known field"],
)
def test_unknown_tagged_fields_are_ignored(request_tags: bytes, partition_tags: bytes) -> None:
    request: Any = parse_request(1, 15, _fetch_v15(request_tags, partition_tags), 0)
    assert request.replica_state.replica_epoch == 12
    assert request.topics[0].partitions[0].partition_max_bytes == 9
    assert request.rack_id == ""


def test_cutting_unknown_tagged_fields_leaves_the_message_without_them() -> None:
    tags = b"\x02" + _replica_state(b"\x02\x05\x01a\xff\x01\x00") + b"\x63\x02xy"
    frame = _fetch_v15(tags, b"\x01\x63\x00")
    edits = Edits()
    end = walker_of(request_class(1, 15)).walk(frame, 0, edits)
    assert end == len(frame)
    assert apply_edits(frame, 0, edits) == _fetch_v15(b"\x01" + _replica_state(b"\x00"), b"\x00")


def test_null_and_counts_may_take_more_bytes_than_they_need() -> None:
    """The guard has to step over them exactly as kio does."""
    topic = bytes(16) + b"\x80\x00" + b"\x00"
    body = b"\x82\x00" + topic + b"\x01\x00" + b"\x80\x00"
    request: Any = parse_request(METADATA, 12, memoryview(body), 0)
    assert request.topics[0].name is None
    assert request.allow_auto_topic_creation
    assert walker_of(request_class(METADATA, 12)).walk(memoryview(body), 0, Edits()) == len(body)


@pytest.mark.parametrize("size", [b"\x03", b"\xff\xff\xff\xff\x0f"])
def test_an_unknown_tagged_field_past_the_end_is_malformed(size: bytes) -> None:
    with pytest.raises(MalformedFrameError):
        parse_request(1, 15, _fetch_v15(b"\x01\x63" + size + b"xy", b"\x00"), 0)


def test_a_tagged_string_may_be_null() -> None:
    tags = b"\x02\x00\x01\x00" + _replica_state(b"\x00")
    request: Any = parse_request(1, 15, _fetch_v15(tags, b"\x00"), 0)
    assert request.cluster_id is None
    assert request.replica_state.replica_id == 11


def test_a_tagged_field_that_is_longer_than_it_says_is_malformed() -> None:
    tags = b"\x01\x01\x0c" + struct.pack(">iq", 11, 12) + b"\x00"
    with pytest.raises(MalformedFrameError):
        parse_request(1, 15, _fetch_v15(tags, b"\x00"), 0)


def test_a_request_frame_is_read_by_the_broker_as_the_client_wrote_it() -> None:
    values = {"client_software_name": "moldau", "client_software_version": "1"}
    request = fit(request_class(18, 3), values)
    frame = memoryview(encode_request(request, 9, "me"))
    header, position = read_request_header(frame[4:])
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert header == (18, 3, 9, "me")
    assert parse_request(18, 3, frame[4:], position) == request


@pytest.mark.parametrize(("api_key", "version"), [(18, 3), (3, 1), (3, 12)])
@given(data=st.data())
@settings(max_examples=20)
def test_a_response_frame_is_read_by_the_client_as_the_broker_wrote_it(
    api_key: int, version: int, data: st.DataObject
) -> None:
    response = data.draw(messages(response_class(api_key, version)))
    frame = memoryview(encode_response(response, 9))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    assert parse_response(api_key, version, frame[4:]) == (9, response)


def test_a_request_with_more_elements_than_anybody_needs_is_malformed() -> None:
    """Its bytes have arrived and are cheap; an object for each element is not."""
    leave = request_class(13, 4)  # LeaveGroup: a group id, and members of three bytes each
    count = MAX_REQUEST_ELEMENTS + 1
    body = b"\x02g" + encode_varint(count + 1) + b"\x01\x00\x00" * count + b"\x00"
    with pytest.raises(MalformedFrameError, match="too many elements"):
        parse_request(13, 4, _writable(body), 0)
    assert len(parse(leave, _writable(body), 0).members) == count  # type: ignore[attr-defined]


def test_unknown_tagged_fields_count_as_elements() -> None:
    count = MAX_REQUEST_ELEMENTS + 1
    body = b"\x02g\x01" + encode_varint(count) + b"\x40\x00" * count
    with pytest.raises(MalformedFrameError, match="too many elements"):
        parse_request(13, 4, _writable(body), 0)


def test_a_large_request_of_few_elements_is_a_request() -> None:
    large = b"a" * (20 << 20)
    values = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": "m",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": "m", "assignment": large}],
    }
    body = encode_body(fit(request_class(14, 5), values))
    found = parse_request(14, 5, _writable(body), 0)
    assert found.assignments[0].assignment == large  # type: ignore[attr-defined]
