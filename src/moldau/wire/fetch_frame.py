"""Fetch, versions 4 to 18, by hand: a response is a list of chunks, with the records left out.

    v5   log start offset                      v13  topics by id
    v7   fetch sessions (KIP-227)              v15  replica id moves to a tagged field (KIP-903)
    v9   leader epoch of the client            v16  endpoints in the answer (KIP-951)
    v11  rack, preferred replica (KIP-392)     v17  directory id of the follower (KIP-853)
    v12  flexible, last fetched epoch,         v18  high watermark of the follower (KIP-1166)
         leader and divergence in the answer

Whoever sends a response puts the bytes of each records object, by sendfile where it can, between
the chunks of bytes around it. kio knows the same messages, and the tests compare the two. A rule.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from moldau.errors import MalformedFrameError, UnsupportedVersionError
from moldau.wire import quick_frames
from moldau.wire.apis import FETCH, SHARE_FETCH
from moldau.wire.endpoints import NodeEndpoint, encode_endpoints_tag, encode_leader
from moldau.wire.headers import response_prefix
from moldau.wire.primitives import (
    COMPACT,
    LEGACY,
    READ_ERRORS,
    Encoding,
    encode_compact_count,
    encode_compact_string,
    encode_legacy_count,
    encode_legacy_string,
    encode_uuid,
    encode_varint,
    read_compact_string,
    read_tagged_fields,
    read_uuid,
    skip_tagged_fields,
    uuid_of,
)

FIRST_VERSION: Final = 4
LAST_VERSION: Final = 18

NO_HIGH_WATERMARK: Final = (1 << 63) - 1
"""What a follower that does not report its high watermark is taken to say."""

_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_SESSIONS: Final = 7
_FIRST_WITH_LEADER_EPOCH: Final = 9
_FIRST_WITH_RACK: Final = 11
_KEY: Final = FETCH.key
_FIRST_FLEXIBLE: Final = FETCH.first_flexible
_FIRST_WITH_TOPIC_ID: Final = 13
_FIRST_WITH_REPLICA_STATE: Final = 15
_FIRST_WITH_ENDPOINTS: Final = 16
_FIRST_WITH_DIRECTORY_ID: Final = 17
_FIRST_WITH_HIGH_WATERMARK: Final = 18

_CLUSTER_ID_TAG: Final = 0
_REPLICA_STATE_TAG: Final = 1
_DIRECTORY_ID_TAG: Final = 0
_HIGH_WATERMARK_TAG: Final = 1

_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_LIMITS: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_REPLICA_STATE: Final = struct.Struct(">iq")
_PARTITION_V4: Final = struct.Struct(">iqi")
_PARTITION_V5: Final = struct.Struct(">iqqi")
_PARTITION_V9: Final = struct.Struct(">iiqqi")
_PARTITION_V12: Final = struct.Struct(">iiqiqi")

_START_V12: Final = struct.Struct(">ibihi")  # response header, throttle time, error, session
_END_OF_ONE: Final = b"\0\0\0"  # tagged fields of partition, topic, response
_NO_TAGS: Final = (None, None)
_SESSION_DATA: Final = struct.Struct(">ihi")
_PARTITION_DATA_V4: Final = struct.Struct(">ihqq")
_PARTITION_DATA_V5: Final = struct.Struct(">ihqqq")
_PARTITION_DATA_V12: Final = struct.Struct(">ihqqqBi")
_ABORTED_V4: Final = struct.Struct(">qq")
_ABORTED_V12: Final = struct.Struct(">qqb")
_DIVERGING_EPOCH: Final = struct.Struct(">BBiqb")
_DIVERGING_EPOCH_BYTES: Final = 13

# The least that a topic and a partition take, by which counts are bounded.
_MIN_TOPIC_BYTES: Final = 3
_MIN_PARTITION_BYTES: Final = 16
_INT32_BYTES: Final = 4


class FetchPartition(NamedTuple):
    """What is wanted of one partition."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int
    replica_directory_id: UUID | None = None
    high_watermark: int = NO_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """A topic by name, or by id from version 13 on."""

    name: str | None
    topic_id: UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that an incremental session drops."""

    name: str | None
    topic_id: UUID | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    """A parsed request."""

    replica_id: int  # -1 for consumers
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str
    cluster_id: str | None


class RecordsChunk(Protocol):
    """Records to be sent, wherever they are."""

    @property
    def length(self) -> int:
        """How many bytes they are."""
        ...


class FetchedPartition(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: Sequence[tuple[int, int]] | None = None  # producer id, first offset
    preferred_read_replica: int = -1
    records: RecordsChunk | None = None
    diverging_epoch: tuple[int, int] | None = None  # epoch, end offset
    current_leader: tuple[int, int] | None = None  # broker id, leader epoch


FetchedTopic = tuple[str | None, UUID | None, Sequence[FetchedPartition]]
"""Name, id, partitions; the name counts up to version 12, the id from 13 on."""

Chunk = bytes | RecordsChunk


def parse_fetch_request(version: int, frame: memoryview, position: int) -> FetchRequest:
    """The request whose body starts at the position."""
    if not FIRST_VERSION <= version <= LAST_VERSION:
        raise UnsupportedVersionError(f"Fetch has no version {version}")
    usual = quick_frames.parse_fetch(
        version, frame, position, FetchRequest, FetchTopic, FetchPartition, uuid_of
    )
    if usual is not None:
        return usual
    try:
        return _parse(version, frame, position)
    except READ_ERRORS as error:
        raise MalformedFrameError(f"FetchRequest: {error}") from error


def _parse(version: int, frame: memoryview, position: int) -> FetchRequest:
    is_flexible = version >= _FIRST_FLEXIBLE
    encoding = COMPACT if is_flexible else LEGACY
    replica_id, replica_epoch = -1, -1
    if version < _FIRST_WITH_REPLICA_STATE:
        replica_id = _INT32.unpack_from(frame, position)[0]
        position += 4
    max_wait_ms, min_bytes, max_bytes, isolation_level = _LIMITS.unpack_from(frame, position)
    position += 13
    session_id, session_epoch = 0, -1
    if version >= _FIRST_WITH_SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(frame, position)
        position += 8
    topics, position = _parse_topics(version, encoding, frame, position)
    forgotten: list[ForgottenTopic] = []
    if version >= _FIRST_WITH_SESSIONS:
        forgotten, position = _parse_forgotten(version, encoding, frame, position)
    rack_id = ""
    if version >= _FIRST_WITH_RACK:
        rack_id, position = _parse_required_string(encoding, frame, position)
    cluster_id = None
    if is_flexible and frame[position]:
        cluster_id, state = _parse_request_tags(version, frame, position)
        if state is not None:
            replica_id, replica_epoch = state
    return FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten,
        rack_id,
        cluster_id,
    )


def _parse_topics(
    version: int, encoding: Encoding, frame: memoryview, position: int
) -> tuple[list[FetchTopic], int]:
    count, position = encoding.array_count(frame, position, _MIN_TOPIC_BYTES)
    parse_partitions = _parse_partitions if version >= _FIRST_FLEXIBLE else _parse_old_partitions
    topics = []
    for _ in range(count):
        name, topic_id, position = _parse_topic_reference(version, encoding, frame, position)
        partitions, position = parse_partitions(version, frame, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    return topics, position


def _parse_topic_reference(
    version: int, encoding: Encoding, frame: memoryview, position: int
) -> tuple[str | None, UUID | None, int]:
    if version >= _FIRST_WITH_TOPIC_ID:
        topic_id, position = read_uuid(frame, position)
        return None, topic_id, position
    name, position = _parse_required_string(encoding, frame, position)
    return name, None, position


def _parse_required_string(encoding: Encoding, frame: memoryview, position: int) -> tuple[str, int]:
    value, end = encoding.string(frame, position)
    if value is None:
        raise MalformedFrameError(f"null at {position} of the frame, where a string is required")
    return value, end


def _parse_partitions(
    version: int, frame: memoryview, position: int
) -> tuple[list[FetchPartition], int]:
    """Partitions of flexible versions, and the end of their topic."""
    count, position = COMPACT.array_count(frame, position, _MIN_PARTITION_BYTES)
    partitions = []
    for _ in range(count):
        fields = _PARTITION_V12.unpack_from(frame, position)
        position += 32
        if frame[position]:
            (directory_id, high_watermark), position = _parse_partition_tags(
                version, frame, position
            )
            partitions.append(FetchPartition._make((*fields, directory_id, high_watermark)))
        else:
            position += 1
            partitions.append(FetchPartition(*fields))
    if frame[position]:
        return partitions, skip_tagged_fields(frame, position)
    return partitions, position + 1


def _parse_old_partitions(
    version: int, frame: memoryview, position: int
) -> tuple[list[FetchPartition], int]:
    """Partitions of the versions before 12, which have fewer fields."""
    count, position = LEGACY.array_count(frame, position, _MIN_PARTITION_BYTES)
    partitions = []
    leader_epoch, log_start_offset = -1, -1
    for _ in range(count):
        if version >= _FIRST_WITH_LEADER_EPOCH:
            fields = _PARTITION_V9.unpack_from(frame, position)
            partition, leader_epoch, offset, log_start_offset, max_bytes = fields
            position += 28
        elif version >= _FIRST_WITH_LOG_START:
            fields = _PARTITION_V5.unpack_from(frame, position)
            partition, offset, log_start_offset, max_bytes = fields
            position += 24
        else:
            partition, offset, max_bytes = _PARTITION_V4.unpack_from(frame, position)
            position += 16
        partitions.append(
            FetchPartition(partition, leader_epoch, offset, -1, log_start_offset, max_bytes)
        )
    return partitions, position


def _parse_partition_tags(
    version: int, frame: memoryview, position: int
) -> tuple[tuple[UUID | None, int], int]:
    directory_id, high_watermark = None, NO_HIGH_WATERMARK
    for tag, start, position in read_tagged_fields(frame, position):  # noqa: B020
        if tag == _DIRECTORY_ID_TAG and version >= _FIRST_WITH_DIRECTORY_ID:
            directory_id, end = read_uuid(frame, start)
        elif tag == _HIGH_WATERMARK_TAG and version >= _FIRST_WITH_HIGH_WATERMARK:
            high_watermark, end = _INT64.unpack_from(frame, start)[0], start + 8
        else:
            continue
        _require_end(end, position)
    return (directory_id, high_watermark), position


def _parse_forgotten(
    version: int, encoding: Encoding, frame: memoryview, position: int
) -> tuple[list[ForgottenTopic], int]:
    count, position = encoding.array_count(frame, position, _MIN_TOPIC_BYTES)
    forgotten = []
    for _ in range(count):
        name, topic_id, position = _parse_topic_reference(version, encoding, frame, position)
        partition_count, position = encoding.array_count(frame, position, _INT32_BYTES)
        end = position + partition_count * _INT32_BYTES
        partitions = [index for (index,) in _INT32.iter_unpack(frame[position:end])]
        position = skip_tagged_fields(frame, end) if version >= _FIRST_FLEXIBLE else end
        forgotten.append(ForgottenTopic(name, topic_id, partitions))
    return forgotten, position


def _parse_request_tags(
    version: int, frame: memoryview, position: int
) -> tuple[str | None, tuple[int, int] | None]:
    """Cluster id, and the replica's id and epoch."""
    cluster_id, state = None, None
    for tag, start, field_end in read_tagged_fields(frame, position):
        if tag == _CLUSTER_ID_TAG:
            cluster_id, end = read_compact_string(frame, start)
        elif tag == _REPLICA_STATE_TAG and version >= _FIRST_WITH_REPLICA_STATE:
            state = _REPLICA_STATE.unpack_from(frame, start)
            end = skip_tagged_fields(frame, start + 12)
        else:
            continue
        _require_end(end, field_end)
    return cluster_id, state


def _require_end(end: int, expected_end: int) -> None:
    if end != expected_end:
        raise MalformedFrameError(f"tagged field ends at {end}, not at {expected_end}")


def encode_fetch_frame(
    version: int,
    correlation_id: int,
    topics: Sequence[FetchedTopic],
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> tuple[list[Chunk], int]:
    """A whole response frame: chunks, the first of which starts with length and header, and how
    many bytes they are in all, records included."""
    if len(topics) == 1 and version >= _FIRST_FLEXIBLE and not node_endpoints:
        name, topic_id, partitions = topics[0]
        if len(partitions) == 1 and partitions[0][8:] == _NO_TAGS and not partitions[0][5]:
            start = _START_V12.pack(correlation_id, 0, throttle_time_ms, error_code, session_id)
            return _encode_one(start, _topic_of_one(version, name, topic_id), partitions[0])
    chunks, body_bytes = encode_fetch_body(
        version, topics, throttle_time_ms, error_code, session_id, node_endpoints
    )
    prefix = response_prefix(_KEY, version, correlation_id, body_bytes)
    first = chunks[0]
    chunks[0] = prefix + first if isinstance(first, bytes) else prefix
    return chunks, len(prefix) + body_bytes


def _encode_one(start: bytes, topic: bytes, partition: FetchedPartition) -> tuple[list[Chunk], int]:
    """A frame with a single partition that has nothing unusual: what nearly every response is."""
    records = partition.records
    length = 0 if records is None else records.length
    aborted_count = 0 if partition[5] is None else 1
    fields = _PARTITION_DATA_V12.pack(*partition[:5], aborted_count, partition[6])
    head = b"".join((start, topic, fields, encode_varint(length + 1)))
    size_bytes = len(head) + length + len(_END_OF_ONE)
    prefix = _INT32.pack(size_bytes)
    if records is None or not length:
        return [b"".join((prefix, head, _END_OF_ONE))], 4 + size_bytes
    return [prefix + head, records, _END_OF_ONE], 4 + size_bytes


@lru_cache(maxsize=1024)
def _topic_of_one(version: int, name: str | None, topic_id: UUID | None) -> bytes:
    """What stands before a single partition of a single topic."""
    one = encode_compact_count(1)
    return one + _encode_topic_reference(version, name, topic_id) + one


def encode_fetch_body(
    version: int,
    topics: Sequence[FetchedTopic],
    throttle_time_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> tuple[list[Chunk], int]:
    """The body of a response, the first chunk being bytes, and its size with all records. What
    the version cannot say is left out, as Kafka leaves it out."""
    is_flexible = version >= _FIRST_FLEXIBLE
    count = encode_compact_count if is_flexible else encode_legacy_count
    head = _encode_head if is_flexible else _encode_old_head
    if version >= _FIRST_WITH_SESSIONS:
        parts = [_SESSION_DATA.pack(throttle_time_ms, error_code, session_id)]
    else:
        parts = [_INT32.pack(throttle_time_ms)]
    parts.append(count(len(topics)))
    chunks: list[Chunk] = []
    total_bytes = 0
    for name, topic_id, partitions in topics:
        parts += (_encode_topic_reference(version, name, topic_id), count(len(partitions)))
        for partition in partitions:
            records = partition.records
            length = 0 if records is None else records.length
            parts.append(head(version, partition, length))
            if records is not None and length:
                joined = b"".join(parts)
                chunks += (joined, records)
                total_bytes += len(joined) + length
                parts = []
            if is_flexible:
                parts.append(_encode_partition_tags(partition))
        if is_flexible:
            parts.append(b"\0")
    if is_flexible:
        has_endpoints = node_endpoints and version >= _FIRST_WITH_ENDPOINTS
        parts.append(encode_endpoints_tag(node_endpoints) if has_endpoints else b"\0")
    if parts:
        joined = b"".join(parts)
        chunks.append(joined)
        total_bytes += len(joined)
    return chunks, total_bytes


def _encode_topic_reference(version: int, name: str | None, topic_id: UUID | None) -> bytes:
    if version >= _FIRST_WITH_TOPIC_ID:
        return encode_uuid(topic_id)
    if version >= _FIRST_FLEXIBLE:
        return encode_compact_string(name)
    return encode_legacy_string(name)


def _encode_head(version: int, partition: FetchedPartition, records_bytes: int) -> bytes:
    """A partition up to the length of its records, in flexible versions."""
    _, _, _, _, _, aborted, preferred_read_replica, _, _, _ = partition
    aborted_count = 0 if aborted is None else len(aborted) + 1
    length = encode_varint(records_bytes + 1)
    if aborted_count <= 1:
        fields = _PARTITION_DATA_V12.pack(*partition[:5], aborted_count, preferred_read_replica)
        return fields + length
    parts = [_PARTITION_DATA_V5.pack(*partition[:5]), encode_varint(aborted_count)]
    for producer_id, first_offset in aborted or ():
        parts.append(_ABORTED_V12.pack(producer_id, first_offset, 0))
    parts += (_INT32.pack(preferred_read_replica), length)
    return b"".join(parts)


def _encode_old_head(version: int, partition: FetchedPartition, records_bytes: int) -> bytes:
    """A partition up to the length of its records, in the versions before 12."""
    if version >= _FIRST_WITH_LOG_START:
        parts = [_PARTITION_DATA_V5.pack(*partition[:5])]
    else:
        parts = [_PARTITION_DATA_V4.pack(*partition[:4])]
    aborted = partition.aborted_transactions
    parts.append(encode_legacy_count(-1 if aborted is None else len(aborted)))
    for producer_id, first_offset in aborted or ():
        parts.append(_ABORTED_V4.pack(producer_id, first_offset))
    if version >= _FIRST_WITH_RACK:
        parts.append(_INT32.pack(partition.preferred_read_replica))
    parts.append(_INT32.pack(records_bytes))
    return b"".join(parts)


def _encode_partition_tags(partition: FetchedPartition) -> bytes:
    """What follows the records of a partition in flexible versions."""
    diverging_epoch, current_leader = partition.diverging_epoch, partition.current_leader
    if diverging_epoch is None and current_leader is None:
        return b"\0"
    tagged = []
    if diverging_epoch is not None:
        tagged.append(_DIVERGING_EPOCH.pack(0, _DIVERGING_EPOCH_BYTES, *diverging_epoch, 0))
    if current_leader is not None:
        tagged.append(b"\x01" + encode_leader(*current_leader))
    return encode_varint(len(tagged)) + b"".join(tagged)


# The answer of ShareFetch, versions 1 and 2, by hand: a list of chunks, with the records left out.
#
# As in `fetch_frame`, whoever sends it puts the bytes of each records object between the chunks.
# kio knows the same message, and the tests compare the two. A rule.


_INT16: Final = struct.Struct(">h")
_HEAD: Final = struct.Struct(">ih")  # throttle time, error
_PARTITION: Final = struct.Struct(">ih")  # index, error
_LEADER: Final = struct.Struct(">iib")  # with its tagged fields
_ACQUIRED: Final = struct.Struct(">qqhb")  # with its tagged fields
_NO_TAGGED_FIELDS: Final = b"\0"
_NO_LEADER: Final = (-1, -1)


class SharedPartition(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    current_leader: tuple[int, int] = _NO_LEADER  # broker id, leader epoch
    records: Sequence[RecordsChunk] = ()  # one after the other
    acquired: Sequence[tuple[int, int, int]] = ()  # first and last offset, delivery count


def encode_share_fetch_frame(
    version: int,
    correlation_id: int,
    topics: Mapping[UUID, Sequence[SharedPartition]],
    *,
    acquisition_lock_timeout_ms: int,
    throttle_ms: int = 0,
    error_code: int = 0,
    error_message: str | None = None,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> list[Chunk]:
    """A whole response frame: chunks, the first of which starts with length and header."""
    parts = [
        _HEAD.pack(throttle_ms, error_code),
        encode_compact_string(error_message),
        _INT32.pack(acquisition_lock_timeout_ms),
        encode_compact_count(len(topics)),
    ]
    chunks: list[Chunk] = []
    total_bytes = 0
    for topic_id, partitions in topics.items():
        parts += (encode_uuid(topic_id), encode_compact_count(len(partitions)))
        for partition in partitions:
            parts.append(_encode_shared_head(partition))
            if partition.records:
                joined = b"".join(parts)
                chunks += (joined, *partition.records)
                total_bytes += len(joined) + sum(one.length for one in partition.records)
                parts = []
            parts.append(encode_compact_count(len(partition.acquired)))
            parts += (_ACQUIRED.pack(*acquired, 0) for acquired in partition.acquired)
            parts.append(_NO_TAGGED_FIELDS)
        parts.append(_NO_TAGGED_FIELDS)
    parts += (_encode_endpoints(node_endpoints), _NO_TAGGED_FIELDS)
    chunks.append(b"".join(parts))
    last = chunks[-1]
    total_bytes += len(last) if isinstance(last, bytes) else 0
    prefix = response_prefix(SHARE_FETCH.key, version, correlation_id, total_bytes)
    return [prefix, *chunks]


def _encode_shared_head(partition: SharedPartition) -> bytes:
    """A partition up to the length of its records."""
    length = sum(one.length for one in partition.records)
    return b"".join(
        (
            _PARTITION.pack(partition.partition, partition.error_code),
            encode_compact_string(partition.error_message),
            _INT16.pack(partition.acknowledge_error_code),
            encode_compact_string(partition.acknowledge_error_message),
            _LEADER.pack(*partition.current_leader, 0),
            encode_varint(length + 1),
        )
    )


def _encode_endpoints(node_endpoints: Sequence[NodeEndpoint]) -> bytes:
    parts = [encode_compact_count(len(node_endpoints))]
    for node_id, host, port, rack in node_endpoints:
        parts += (_INT32.pack(node_id), encode_compact_string(host))
        parts += (_INT32.pack(port), encode_compact_string(rack), _NO_TAGGED_FIELDS)
    return b"".join(parts)
