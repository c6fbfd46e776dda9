"""Produce by hand, compared with kio in every version."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.errors import MalformedFrameError, UnsupportedVersionError
from moldau.wire.endpoints import NodeEndpoint
from moldau.wire.messages import parse, parse_response
from moldau.wire.produce_frame import (
    FIRST_VERSION,
    LAST_VERSION,
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    encode_produce_body,
    encode_produce_frame,
    parse_produce_request,
)
from moldau.wire.shape import millis
from moldau.wire.versions import request_class, response_class

from .strategies import (
    HOSTILE,
    damaged,
    integers_of,
    messages,
    texts,
    timestamps,
    uuids,
    versions_of,
    written_by_kio,
)

pytestmark = pytest.mark.usefixtures("each_reader")

PRODUCE = 0
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)

every_version = pytest.mark.parametrize("version", VERSIONS)


def _as_kio(version: int, raw: bytes) -> Any:
    return parse(response_class(PRODUCE, version), memoryview(raw), 0)


def _plain_request(request: ProduceRequest) -> object:
    topics = [
        (topic.name, topic.topic_id, [(index, _bytes_of(raw)) for index, raw in topic.partitions])
        for topic in request.topics
    ]
    return (request.transactional_id, request.acks, request.timeout_ms, topics)


def _plain_kio_request(request: Any) -> object:
    topics = [
        (
            getattr(topic, "name", None),
            getattr(topic, "topic_id", None),
            [(partition.index, partition.records) for partition in topic.partition_data],
        )
        for topic in request.topic_data
    ]
    return (request.transactional_id, request.acks, millis(request.timeout), topics)


def _bytes_of(raw: memoryview | None) -> bytes | None:
    return None if raw is None else bytes(raw)


def test_the_versions_are_those_of_kio() -> None:
    assert list(VERSIONS) == versions_of(PRODUCE)


@every_version
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_reads_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(request_class(PRODUCE, version)))
    raw = written_by_kio(request)
    parsed = parse_produce_request(version, memoryview(b"header" + raw + b"garbage"), 6)
    assert _plain_request(parsed) == _plain_kio_request(request)


@every_version
@settings(max_examples=25)
@given(data=st.data())
def test_a_damaged_request_reads_as_kio_reads_it_or_is_malformed(
    version: int, data: st.DataObject
) -> None:
    request_of_version = request_class(PRODUCE, version)
    raw = data.draw(messages(request_of_version).map(written_by_kio).flatmap(damaged))
    try:
        parsed = parse_produce_request(version, memoryview(raw), 0)
    except MalformedFrameError:
        with pytest.raises(MalformedFrameError):
            parse(request_of_version, memoryview(raw), 0)
    else:
        kio_parsed = parse(request_of_version, memoryview(raw), 0)
        assert _plain_request(parsed) == _plain_kio_request(kio_parsed)


@every_version
@given(pieces=st.lists(st.binary(max_size=8) | st.sampled_from(HOSTILE), max_size=8))
@settings(max_examples=25)
def test_random_bytes_are_a_request_or_malformed(version: int, pieces: list[bytes]) -> None:
    try:
        parse_produce_request(version, memoryview(b"".join(pieces)), 0)
    except MalformedFrameError:
        return


@every_version
@settings(max_examples=8)
@given(data=st.data())
def test_a_request_cut_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    raw = memoryview(written_by_kio(data.draw(messages(request_class(PRODUCE, version)))))
    for end in range(len(raw)):
        with pytest.raises(MalformedFrameError):
            parse_produce_request(version, raw[:end], 0)


@pytest.mark.parametrize("version", [2, 14, -1])
def test_other_versions_are_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        parse_produce_request(version, memoryview(bytes(100)), 0)


def _request_v9(tags: bytes = b"\0") -> bytes:
    partition = struct.pack(">i", 3) + b"\x05abcd" + tags
    topic = b"\x02t" + b"\x02" + partition + tags
    return b"\x00" + struct.pack(">hi", -1, 1500) + b"\x02" + topic + tags


def test_records_are_a_writable_slice_of_the_frame() -> None:
    frame = bytearray(_request_v9())
    (topic,) = parse_produce_request(9, memoryview(frame), 0).topics
    ((index, records),) = topic.partitions
    assert index == 3
    assert records is not None
    records[0:4] = b"wxyz"
    assert b"wxyz" in frame


def test_unknown_tagged_fields_are_skipped() -> None:
    tagged = parse_produce_request(9, memoryview(_request_v9(b"\x02\x07\x02xy\x63\x00")), 0)
    assert _plain_request(tagged) == _plain_request(
        parse_produce_request(9, memoryview(_request_v9()), 0)
    )


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff\x07", b"\xff\xff\x7f", b"\x00"])
def test_a_hostile_number_of_topics_is_malformed(count: bytes) -> None:
    frame = b"\x00" + struct.pack(">hi", -1, 1500) + count + bytes(30)
    with pytest.raises(MalformedFrameError, match="elements"):
        parse_produce_request(9, memoryview(frame), 0)


def test_a_topic_without_a_name_is_malformed() -> None:
    frame = b"\x00" + struct.pack(">hi", -1, 1500) + b"\x02\x00\x01\x00\x00"
    with pytest.raises(MalformedFrameError):
        parse_produce_request(9, memoryview(frame), 0)


partitions = st.builds(
    ProducedPartition,
    integers_of(32),
    st.sampled_from([-1, 0, 1, 87]),
    integers_of(64),
    st.just(-1) | timestamps,
    integers_of(64),
    st.lists(st.tuples(integers_of(32), st.none() | texts), max_size=3),
    st.none() | texts,
    st.none() | st.tuples(integers_of(32), integers_of(32)),
)
topics = st.lists(st.tuples(texts, uuids, st.lists(partitions, max_size=3)), max_size=3)
node_endpoints = st.lists(
    st.builds(NodeEndpoint, integers_of(32), texts, integers_of(32), st.none() | texts), max_size=3
)


def _expected_partition(version: int, partition: ProducedPartition) -> tuple[object, ...]:
    """The values of a partition that the version can say."""
    values: tuple[object, ...] = partition[:4]
    if version >= 5:
        values += (partition.log_start_offset,)
    if version >= 8:
        values += (partition.record_errors, partition.error_message)
    if version >= 10:
        values += (partition.current_leader or (-1, -1),)
    return values


def _kio_partition(version: int, partition: Any) -> tuple[object, ...]:
    values: tuple[object, ...] = (
        partition.index,
        partition.error_code,
        partition.base_offset,
        millis(partition.log_append_time),
    )
    if version >= 5:
        values += (partition.log_start_offset,)
    if version >= 8:
        errors = [(e.batch_index, e.batch_index_error_message) for e in partition.record_errors]
        values += (errors, partition.error_message)
    if version >= 10:
        leader = partition.current_leader
        values += ((leader.leader_id, leader.leader_epoch),)
    return values


@every_version
@settings(max_examples=25)
@given(topics, integers_of(32), node_endpoints)
def test_kio_reads_a_response_as_it_was_written(
    version: int,
    topics: list[ProducedTopic],
    throttle_time_ms: int,
    node_endpoints: list[NodeEndpoint],
) -> None:
    response = _as_kio(
        version, encode_produce_body(version, topics, throttle_time_ms, node_endpoints)
    )
    assert millis(response.throttle_time) == throttle_time_ms
    assert [
        (
            topic.topic_id if version >= 13 else topic.name,
            [_kio_partition(version, partition) for partition in topic.partition_responses],
        )
        for topic in response.responses
    ] == [
        (
            topic_id if version >= 13 else name,
            [_expected_partition(version, partition) for partition in partitions],
        )
        for name, topic_id, partitions in topics
    ]
    if version >= 10:
        endpoints = [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]
        assert endpoints == node_endpoints


@every_version
def test_a_response_is_written_byte_for_byte_as_kio_writes_it(version: int) -> None:
    partition = ProducedPartition(1, 0, 5, 1000, 2, [(1, "bad")], "very bad", (3, 4))
    body = encode_produce_body(
        version, [("t", UUID(int=7), [partition])], 9, [NodeEndpoint(3, "h", 1)]
    )
    assert written_by_kio(_as_kio(version, body)) == body


@every_version
def test_a_response_frame_has_length_and_header(version: int) -> None:
    topics = [("t", UUID(int=7), [ProducedPartition(1)])]
    frame = memoryview(encode_produce_frame(version, 77, topics, throttle_time_ms=3))
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    body = encode_produce_body(version, topics, 3)
    assert parse_response(PRODUCE, version, frame[4:]) == (77, _as_kio(version, body))


def test_plain_tuples_do_as_partitions() -> None:
    plain = [("t", None, [(0, 0, 5, -1, 0, (), None, None)])]
    named = [("t", None, [ProducedPartition(0, 0, 5, -1, 0)])]
    assert encode_produce_body(9, plain) == encode_produce_body(9, named)  # type: ignore[arg-type]
