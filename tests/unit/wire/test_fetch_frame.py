"""Fetch by hand, compared with kio in every version."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.errors import MalformedFrameError, UnsupportedVersionError
from moldau.wire.endpoints import NodeEndpoint
from moldau.wire.fetch_frame import (
    FIRST_VERSION,
    LAST_VERSION,
    NO_HIGH_WATERMARK,
    Chunk,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    encode_fetch_body,
    encode_fetch_frame,
    parse_fetch_request,
)
from moldau.wire.messages import parse, parse_response
from moldau.wire.shape import millis
from moldau.wire.versions import request_class, response_class

from .strategies import (
    HOSTILE,
    damaged,
    integers_of,
    messages,
    texts,
    uuids,
    versions_of,
    written_by_kio,
)

pytestmark = pytest.mark.usefixtures("each_reader")

FETCH = 1
VERSIONS = range(FIRST_VERSION, LAST_VERSION + 1)

every_version = pytest.mark.parametrize("version", VERSIONS)


def _plain_kio_request(request: Any) -> FetchRequest:
    """kio's request in our words; what its version has not takes Kafka's default."""
    state = getattr(request, "replica_state", None)
    return FetchRequest(
        replica_id=state.replica_id if state else request.replica_id,
        replica_epoch=state.replica_epoch if state else -1,
        max_wait_ms=millis(request.max_wait),
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=getattr(request, "session_id", 0),
        session_epoch=getattr(request, "session_epoch", -1),
        topics=[
            (*_reference(topic), [_plain_kio_partition(entry) for entry in topic.partitions])  # type: ignore[misc]
            for topic in request.topics
        ],
        forgotten_topics=[
            (*_reference(topic), list(topic.partitions))  # type: ignore[misc]
            for topic in getattr(request, "forgotten_topics_data", ())
        ],
        rack_id=getattr(request, "rack_id", ""),
        cluster_id=getattr(request, "cluster_id", None),
    )


def _reference(topic: Any) -> tuple[str | None, UUID | None]:
    return getattr(topic, "topic", None), getattr(topic, "topic_id", None)


def _plain_kio_partition(partition: Any) -> tuple[object, ...]:
    return (
        partition.partition,
        getattr(partition, "current_leader_epoch", -1),
        partition.fetch_offset,
        getattr(partition, "last_fetched_epoch", -1),
        getattr(partition, "log_start_offset", -1),
        partition.partition_max_bytes,
        getattr(partition, "replica_directory_id", None),
        getattr(partition, "high_watermark", NO_HIGH_WATERMARK),
    )


def test_the_versions_are_those_of_kio() -> None:
    assert list(VERSIONS) == versions_of(FETCH)


@every_version
@settings(max_examples=20)
@given(data=st.data())
def test_a_request_reads_as_kio_wrote_it(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(request_class(FETCH, version)))
    raw = written_by_kio(request)
    parsed = parse_fetch_request(version, memoryview(b"header" + raw + b"garbage"), 6)
    assert parsed == _plain_kio_request(request)


@every_version
@settings(max_examples=25)
@given(data=st.data())
def test_a_damaged_request_reads_as_kio_reads_it_or_is_malformed(
    version: int, data: st.DataObject
) -> None:
    request_of_version = request_class(FETCH, version)
    raw = data.draw(messages(request_of_version).map(written_by_kio).flatmap(damaged))
    try:
        parsed = parse_fetch_request(version, memoryview(raw), 0)
    except MalformedFrameError:
        with pytest.raises(MalformedFrameError):
            parse(request_of_version, memoryview(raw), 0)
    else:
        assert parsed == _plain_kio_request(parse(request_of_version, memoryview(raw), 0))


@every_version
@given(pieces=st.lists(st.binary(max_size=8) | st.sampled_from(HOSTILE), max_size=12))
@settings(max_examples=25)
def test_random_bytes_are_a_request_or_malformed(version: int, pieces: list[bytes]) -> None:
    try:
        parse_fetch_request(version, memoryview(b"".join(pieces)), 0)
    except MalformedFrameError:
        return


@every_version
@settings(max_examples=8)
@given(data=st.data())
def test_a_request_cut_anywhere_is_malformed(version: int, data: st.DataObject) -> None:
    raw = memoryview(written_by_kio(data.draw(messages(request_class(FETCH, version)))))
    for end in range(len(raw)):
        with pytest.raises(MalformedFrameError):
            parse_fetch_request(version, raw[:end], 0)


@pytest.mark.parametrize("version", [3, 19, -1])
def test_other_versions_are_unsupported(version: int) -> None:
    with pytest.raises(UnsupportedVersionError):
        parse_fetch_request(version, memoryview(bytes(100)), 0)


def _request_v18(tags: bytes) -> memoryview:
    partition = struct.pack(">iiqiqi", 4, 5, 6, 7, 8, 9) + tags
    topic = bytes(16) + b"\x02" + partition + tags
    forgotten = bytes(16) + b"\x02" + struct.pack(">i", 3) + tags
    limits = struct.pack(">iiibii", 500, 1, 100, 0, 0, -1)
    return memoryview(limits + b"\x02" + topic + b"\x02" + forgotten + b"\x01" + tags)


def test_unknown_tagged_fields_are_skipped() -> None:
    tagged = parse_fetch_request(18, _request_v18(b"\x02\x07\x02xy\x63\x00"), 0)
    assert tagged == parse_fetch_request(18, _request_v18(b"\x00"), 0)
    assert tagged.topics[0].partitions[0].partition_max_bytes == 9
    assert tagged.forgotten_topics[0].partitions == [3]


DIRECTORY_ID = b"\x00\x10" + UUID(int=9).bytes
HIGH_WATERMARK = b"\x01\x08" + struct.pack(">q", 5)
REPLICA_STATE = b"\x01\x0d" + struct.pack(">iqb", 3, 4, 0)


@pytest.mark.parametrize("version", range(12, 19))
def test_a_tag_of_a_later_version_is_unknown_to_an_earlier_one(version: int) -> None:
    partition = struct.pack(">iiqiqi", 4, 5, 6, 7, 8, 9) + b"\x02" + DIRECTORY_ID + HIGH_WATERMARK
    reference = b"\x02t" if version < 13 else bytes(16)
    limits = struct.pack(">iiibii", 500, 1, 100, 0, 0, -1)
    limits = limits if version >= 15 else struct.pack(">i", -1) + limits
    topic = reference + b"\x02" + partition + b"\x00"
    frame = limits + b"\x02" + topic + b"\x01" + b"\x01" + b"\x01" + REPLICA_STATE
    request = parse_fetch_request(version, memoryview(frame), 0)
    (wanted,) = request.topics[0].partitions
    assert request[:2] == ((3, 4) if version >= 15 else (-1, -1))
    assert wanted.replica_directory_id == (UUID(int=9) if version >= 17 else None)
    assert wanted.high_watermark == (5 if version >= 18 else NO_HIGH_WATERMARK)


@pytest.mark.parametrize(
    "tagged",
    [
        b"\x00\x03\x02ab",  # a cluster id of one character in three bytes
        b"\x01\x0e" + struct.pack(">iqbb", 3, 4, 0, 0),
        b"\x01\x0c" + struct.pack(">iqb", 3, 4, 0),
    ],
)
def test_a_tagged_field_of_another_size_than_it_announces_is_malformed(tagged: bytes) -> None:
    limits = struct.pack(">iiibii", 500, 1, 100, 0, 0, -1)
    frame = limits + b"\x01\x01\x01" + b"\x01" + tagged
    with pytest.raises(MalformedFrameError):
        parse_fetch_request(18, memoryview(frame), 0)


@pytest.mark.parametrize("count", [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"])
def test_a_hostile_number_of_topics_is_malformed(count: bytes) -> None:
    frame = struct.pack(">iiiib", -1, 500, 1, 100, 0) + count + bytes(30)
    with pytest.raises(MalformedFrameError, match="elements"):
        parse_fetch_request(4, memoryview(frame), 0)


@dataclass(frozen=True)
class Records:
    """Stands for a range of a file."""

    raw: bytes

    @property
    def length(self) -> int:
        return len(self.raw)


def _joined(chunks: list[Chunk]) -> bytes:
    return b"".join(chunk if isinstance(chunk, bytes) else _raw(chunk) for chunk in chunks)


def _raw(chunk: object) -> bytes:
    assert isinstance(chunk, Records)
    return chunk.raw


partitions = st.builds(
    FetchedPartition,
    integers_of(32),
    st.sampled_from([-1, 0, 1, 87]),
    integers_of(64),
    integers_of(64),
    integers_of(64),
    st.none() | st.lists(st.tuples(integers_of(64), integers_of(64)), max_size=3),
    integers_of(32),
    st.none() | st.binary(max_size=300).map(Records),
    st.none() | st.tuples(integers_of(32), integers_of(64)),
    st.none() | st.tuples(integers_of(32), integers_of(32)),
)
topics = st.lists(st.tuples(texts, uuids, st.lists(partitions, max_size=3)), max_size=3)
node_endpoints = st.lists(
    st.builds(NodeEndpoint, integers_of(32), texts, integers_of(32), st.none() | texts), max_size=3
)


def _expected_partition(version: int, partition: FetchedPartition) -> tuple[object, ...]:
    """The values of a partition that the version can say; records are never null."""
    values: tuple[object, ...] = partition[:4]
    if version >= 5:
        values += (partition.log_start_offset,)
    values += (partition.aborted_transactions,)
    if version >= 11:
        values += (partition.preferred_read_replica,)
    values += (_raw(partition.records) if partition.records else b"",)
    if version >= 12:
        values += (partition.diverging_epoch or (-1, -1), partition.current_leader or (-1, -1))
    return values


def _kio_partition(version: int, partition: Any) -> tuple[object, ...]:
    aborted = partition.aborted_transactions
    values: tuple[object, ...] = (
        partition.partition_index,
        partition.error_code,
        partition.high_watermark,
        partition.last_stable_offset,
    )
    if version >= 5:
        values += (partition.log_start_offset,)
    values += (None if aborted is None else [(a.producer_id, a.first_offset) for a in aborted],)
    if version >= 11:
        values += (partition.preferred_read_replica,)
    values += (partition.records,)
    if version >= 12:
        diverging, leader = partition.diverging_epoch, partition.current_leader
        values += ((diverging.epoch, diverging.end_offset), (leader.leader_id, leader.leader_epoch))
    return values


@every_version
@settings(max_examples=25)
@given(topics, integers_of(32), st.sampled_from([0, 70, 71]), integers_of(32), node_endpoints)
def test_kio_reads_a_response_as_it_was_written(
    version: int,
    topics: list[FetchedTopic],
    throttle_time_ms: int,
    error_code: int,
    session_id: int,
    node_endpoints: list[NodeEndpoint],
) -> None:
    chunks, total_bytes = encode_fetch_frame(
        version, 77, topics, throttle_time_ms, error_code, session_id, node_endpoints
    )
    frame = _joined(chunks)
    assert len(frame) == total_bytes
    assert struct.unpack_from(">i", frame)[0] == total_bytes - 4
    correlation_id, response = parse_response(FETCH, version, memoryview(frame)[4:])
    assert correlation_id == 77
    _assert_equal(version, response, topics)
    assert millis(response.throttle_time) == throttle_time_ms  # type: ignore[attr-defined]
    if version >= 7:
        assert response.error_code == error_code  # type: ignore[attr-defined]
        assert response.session_id == session_id  # type: ignore[attr-defined]
    if version >= 16:
        endpoints = [(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]  # type: ignore[attr-defined]
        assert endpoints == node_endpoints


def _assert_equal(version: int, response: Any, topics: list[FetchedTopic]) -> None:
    assert [
        (
            topic.topic_id if version >= 13 else topic.topic,
            [_kio_partition(version, partition) for partition in topic.partitions],
        )
        for topic in response.responses
    ] == [
        (
            topic_id if version >= 13 else name,
            [_expected_partition(version, partition) for partition in partitions],
        )
        for name, topic_id, partitions in topics
    ]


@every_version
def test_a_response_is_written_byte_for_byte_as_kio_writes_it(version: int) -> None:
    partition = FetchedPartition(1, 0, 5, 4, 2, [(8, 9)], 3, Records(b"abc"), (1, 2), (3, 4))
    chunks, _ = encode_fetch_body(
        version, [("t", UUID(int=7), [partition])], 9, 0, 5, [NodeEndpoint(3, "h", 1)]
    )
    body = _joined(chunks)
    assert written_by_kio(parse(response_class(FETCH, version), memoryview(body), 0)) == body


@every_version
def test_records_are_chunks_of_their_own_and_bytes_between_them_are_joined(version: int) -> None:
    first, second, empty = Records(b"first"), Records(b"second"), Records(b"")
    answers = [
        FetchedPartition(0, records=first),
        FetchedPartition(1, records=empty),
        FetchedPartition(2),
        FetchedPartition(3, records=second),
    ]
    chunks, _ = encode_fetch_frame(version, 1, [("t", UUID(int=7), answers)])
    kinds = [type(chunk) for chunk in chunks]
    tail = [bytes] if version >= 12 else []
    assert kinds == [bytes, Records, bytes, Records, *tail]
    assert chunks[1] is first
    assert chunks[3] is second


@every_version
def test_an_empty_response_is_one_chunk_with_its_header(version: int) -> None:
    chunks, total_bytes = encode_fetch_frame(version, 1, [])
    assert [type(chunk) for chunk in chunks] == [bytes]
    assert total_bytes == len(_joined(chunks))
