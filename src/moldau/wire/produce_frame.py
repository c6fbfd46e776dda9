"""Produce, versions 3 to 13, by hand: record bytes stay where the socket put them.

    v3   the first version with batches of format 2      v9   flexible
    v5   log start offset in the answer                  v10  leader and endpoints in the answer
    v8   errors of single records in the answer          v13  topics by id

The records of a parsed request are slices of the frame, writable when the frame is, so that base
offset and leader epoch are stamped in place; they are good for as long as the frame is. kio knows
the same messages, and the tests compare the two. A rule: bytes in, values out.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple
from uuid import UUID

from moldau.errors import MalformedFrameError, UnsupportedVersionError
from moldau.wire import quick_frames
from moldau.wire.apis import PRODUCE
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
    read_uuid,
    skip_tagged_fields,
    uuid_of,
)

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 13

_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_RECORD_ERRORS: Final = 8
_KEY: Final = PRODUCE.key
_FIRST_FLEXIBLE: Final = PRODUCE.first_flexible
_FIRST_WITH_LEADER: Final = 10
_FIRST_WITH_TOPIC_ID: Final = 13

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")

# The least that a topic and a partition take, by which counts are bounded.
_MIN_TOPIC_BYTES: Final = 3
_MIN_PARTITION_BYTES: Final = 6

_PARTITION_V3: Final = struct.Struct(">ihqq")
_PARTITION_V5: Final = struct.Struct(">ihqqq")
_NO_RECORD_ERRORS_V8: Final = struct.pack(">ih", 0, -1)
_NO_RECORD_ERRORS_V9: Final = b"\x01\x00\x00"  # no errors, no message, no tagged fields


class ProduceTopic(NamedTuple):
    """A topic by name, or by id from version 13 on, and what to append to its partitions."""

    name: str | None
    topic_id: UUID | None
    partitions: list[tuple[int, memoryview | None]]  # index and records


class ProduceRequest(NamedTuple):
    """A parsed request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducedPartition(NamedTuple):
    """The answer for one partition."""

    partition: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # index in the batch, message
    error_message: str | None = None
    current_leader: tuple[int, int] | None = None  # broker id, leader epoch


ProducedTopic = tuple[str | None, UUID | None, Sequence[ProducedPartition]]
"""Name, id, partitions; the name counts up to version 12, the id from 13 on."""


def parse_produce_request(version: int, frame: memoryview, position: int) -> ProduceRequest:
    """The request whose body starts at the position."""
    if not FIRST_VERSION <= version <= LAST_VERSION:
        raise UnsupportedVersionError(f"Produce has no version {version}")
    usual = quick_frames.parse_produce(
        version, frame, position, ProduceRequest, ProduceTopic, uuid_of
    )
    if usual is not None:
        return usual
    try:
        return _parse(version, frame, position)
    except READ_ERRORS as error:
        raise MalformedFrameError(f"ProduceRequest: {error}") from error


def _parse(version: int, frame: memoryview, position: int) -> ProduceRequest:
    is_flexible = version >= _FIRST_FLEXIBLE
    string, byte_slice, count = COMPACT if is_flexible else LEGACY
    transactional_id, position = string(frame, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topic_count, position = count(frame, position + 6, _MIN_TOPIC_BYTES)
    topics = []
    for _ in range(topic_count):
        name, topic_id = None, None
        if version >= _FIRST_WITH_TOPIC_ID:
            topic_id, position = read_uuid(frame, position)
        else:
            name, position = string(frame, position)
            if name is None:
                raise MalformedFrameError("topic without a name")
        partition_count, position = count(frame, position, _MIN_PARTITION_BYTES)
        partitions = []
        for _ in range(partition_count):
            index: int = _INT32.unpack_from(frame, position)[0]
            records, position = byte_slice(frame, position + 4)
            partitions.append((index, records))
            if is_flexible:
                position = skip_tagged_fields(frame, position) if frame[position] else position + 1
        if is_flexible:
            position = skip_tagged_fields(frame, position) if frame[position] else position + 1
        topics.append(ProduceTopic(name, topic_id, partitions))
    if is_flexible and frame[position]:
        skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_frame(
    version: int,
    correlation_id: int,
    topics: Sequence[ProducedTopic],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """A whole response frame: length, header, body."""
    if len(topics) == 1 and not throttle_time_ms and not node_endpoints:
        name, topic_id, partitions = topics[0]
        if len(partitions) == 1 and not partitions[0][1]:
            length, before, pack, field_count, after = _frame_of_one(version, name, topic_id)
            return pack(length, correlation_id, before, *partitions[0][:field_count], after)
    body = encode_produce_body(version, topics, throttle_time_ms, node_endpoints)
    return response_prefix(_KEY, version, correlation_id, len(body)) + body


@lru_cache(maxsize=1024)
def _frame_of_one(
    version: int, name: str | None, topic_id: UUID | None
) -> tuple[int, bytes, Callable[..., bytes], int, bytes]:
    """What stands around the fields of a single partition without an error, which is what nearly
    every response says: the length before the correlation id, the bytes behind that, what packs
    all of it, how many fields of the partition there are, and the bytes at the end."""
    layout = _PARTITION_V3 if version < _FIRST_WITH_LOG_START else _PARTITION_V5
    placeholder = ProducedPartition(0x5EA2C4, 0, 0x5EA2C4, 0x5EA2C4, 0x5EA2C4)
    body = encode_produce_body(version, [(name, topic_id, [placeholder])])
    frame = response_prefix(_KEY, version, 0, len(body)) + body
    field_count = 5 if layout is _PARTITION_V5 else 4
    head, after = frame.rsplit(layout.pack(*placeholder[:field_count]), 1)
    before = head[8:]
    whole = struct.Struct(f">ii{len(before)}s{layout.format[1:]}{len(after)}s")
    return len(frame) - 4, before, whole.pack, field_count, after


def encode_produce_body(
    version: int,
    topics: Sequence[ProducedTopic],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """The body of a response. What the version cannot say (log start offset, record errors,
    message, leader, endpoints) is left out, as Kafka leaves it out."""
    parts: list[bytes] = []
    if version < _FIRST_FLEXIBLE:
        _encode_legacy_topics(version, topics, parts)
        parts.append(_INT32.pack(throttle_time_ms))
    else:
        _encode_flexible_topics(version, topics, parts)
        has_endpoints = version >= _FIRST_WITH_LEADER and node_endpoints
        tagged = encode_endpoints_tag(node_endpoints) if has_endpoints else b"\0"
        parts += (_INT32.pack(throttle_time_ms), tagged)
    return b"".join(parts)


def _encode_legacy_topics(
    version: int, topics: Sequence[ProducedTopic], parts: list[bytes]
) -> None:
    parts.append(encode_legacy_count(len(topics)))
    for name, _, partitions in topics:
        parts += (encode_legacy_string(name), encode_legacy_count(len(partitions)))
        for partition in partitions:
            if version < _FIRST_WITH_LOG_START:
                parts.append(_PARTITION_V3.pack(*partition[:4]))
                continue
            parts.append(_PARTITION_V5.pack(*partition[:5]))
            if version >= _FIRST_WITH_RECORD_ERRORS:
                parts.append(_encode_legacy_errors(partition[5], partition[6]))


def _encode_legacy_errors(
    record_errors: Sequence[tuple[int, str | None]], error_message: str | None
) -> bytes:
    if not record_errors and error_message is None:
        return _NO_RECORD_ERRORS_V8
    parts = [encode_legacy_count(len(record_errors))]
    for batch_index, message in record_errors:
        parts += (_INT32.pack(batch_index), encode_legacy_string(message))
    parts.append(encode_legacy_string(error_message))
    return b"".join(parts)


def _encode_flexible_topics(
    version: int, topics: Sequence[ProducedTopic], parts: list[bytes]
) -> None:
    parts.append(encode_compact_count(len(topics)))
    for name, topic_id, partitions in topics:
        has_id = version >= _FIRST_WITH_TOPIC_ID
        parts.append(encode_uuid(topic_id) if has_id else encode_compact_string(name))
        parts.append(encode_compact_count(len(partitions)))
        for partition in partitions:
            parts.append(_PARTITION_V5.pack(*partition[:5]))
            parts.append(_encode_flexible_errors(version, *partition[5:]))
        parts.append(b"\0")


def _encode_flexible_errors(
    version: int,
    record_errors: Iterable[tuple[int, str | None]] = (),
    error_message: str | None = None,
    current_leader: tuple[int, int] | None = None,
) -> bytes:
    if not record_errors and error_message is None and current_leader is None:
        return _NO_RECORD_ERRORS_V9
    errors = tuple(record_errors)
    parts = [encode_compact_count(len(errors))]
    for batch_index, message in errors:
        parts += (_INT32.pack(batch_index), encode_compact_string(message), b"\0")
    parts.append(encode_compact_string(error_message))
    if current_leader is None or version < _FIRST_WITH_LEADER:
        parts.append(b"\0")
    else:
        parts += (b"\x01\x00", encode_leader(*current_leader))
    return b"".join(parts)


# Produce from the client's side, versions 3 to 12, by hand: record batches are not copied.
#
# The counterpart of `produce_frame`, which says what each version added; version 13 names topics by
# id and is not spoken. A rule: values in, bytes out, and back.


Buffer = bytes | bytearray | memoryview
LAST_CLIENT_VERSION: Final = 12
_INDEX_AND_LENGTH: Final = struct.Struct(">ii")
_ANSWER_V3: Final = struct.Struct(">ihqq")
_ANSWER_V5: Final = struct.Struct(">ihqqq")
_MIN_ROW_BYTES: Final = 3
_NO_ERRORS: Final[Mapping[int, str]] = MappingProxyType({})

TopicBatches = Sequence[tuple[str, Sequence[tuple[int, Buffer]]]]
"""Topics by name; of each the partitions and their one batch."""


class ProduceAnswer(NamedTuple):
    """What a broker says about the batch of one partition."""

    topic: str
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int = -1
    record_errors: Mapping[int, str] = _NO_ERRORS  # by index in the batch
    error_message: str | None = None


class ProduceAnswers(NamedTuple):
    """A parsed response."""

    answers: list[ProduceAnswer]
    throttle_time_ms: int


# --- requests ---------------------------------------------------------------------------------


def encode_produce_request(
    version: int,
    acks: int,
    timeout_ms: int,
    topics: TopicBatches,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """The body of a request, in pieces to be sent one after the other."""
    is_flexible = version >= _FIRST_FLEXIBLE
    string, count = _STRING_AND_COUNT[is_flexible]
    pieces: list[Buffer] = []
    plain = bytearray(string(transactional_id))
    plain += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    plain += count(len(topics))
    for name, partitions in topics:
        plain += string(name)
        plain += count(len(partitions))
        for index, batch in partitions:
            if is_flexible:
                plain += _INT32.pack(index)
                plain += encode_varint(len(batch) + 1)
            else:
                plain += _INDEX_AND_LENGTH.pack(index, len(batch))
            pieces += (plain, batch)
            plain = bytearray(b"\0" if is_flexible else b"")
        plain += b"\0" if is_flexible else b""
    plain += b"\0" if is_flexible else b""
    if plain:
        pieces.append(plain)
    return pieces


_STRING_AND_COUNT: Final = (
    (encode_legacy_string, encode_legacy_count),
    (encode_compact_string, encode_compact_count),
)


# --- responses --------------------------------------------------------------------------------


def parse_produce_response(version: int, frame: memoryview, position: int) -> ProduceAnswers:
    """The response whose body starts at the position."""
    try:
        return _parse_response(version, frame, position)
    except READ_ERRORS as error:
        raise MalformedFrameError(f"ProduceResponse: {error}") from error


def _parse_response(version: int, frame: memoryview, position: int) -> ProduceAnswers:
    is_flexible = version >= _FIRST_FLEXIBLE
    encoding = COMPACT if is_flexible else LEGACY
    answers: list[ProduceAnswer] = []
    topic_count, position = encoding.array_count(frame, position, _MIN_ROW_BYTES)
    for _ in range(topic_count):
        name, position = encoding.string(frame, position)
        partition_count, position = encoding.array_count(frame, position, _MIN_ROW_BYTES)
        for _ in range(partition_count):
            answer, position = _parse_partition(version, encoding, name or "", frame, position)
            answers.append(answer)
        if is_flexible:
            position = skip_tagged_fields(frame, position)
    return ProduceAnswers(answers, _INT32.unpack_from(frame, position)[0])


def _parse_partition(
    version: int, encoding: Encoding, topic: str, frame: memoryview, position: int
) -> tuple[ProduceAnswer, int]:
    if version < _FIRST_WITH_LOG_START:
        oldest = _ANSWER_V3.unpack_from(frame, position)
        return ProduceAnswer(topic, *oldest), position + _ANSWER_V3.size
    fields = _ANSWER_V5.unpack_from(frame, position)
    position += _ANSWER_V5.size
    if version < _FIRST_WITH_RECORD_ERRORS:
        return ProduceAnswer(topic, *fields), position
    errors, position = _parse_record_errors(version, encoding, frame, position)
    message, position = encoding.string(frame, position)
    if version >= _FIRST_FLEXIBLE:
        position = skip_tagged_fields(frame, position)
    index, code, base_offset, append_time_ms, log_start = fields
    answer = ProduceAnswer(
        topic, index, code, base_offset, append_time_ms, log_start, errors, message
    )
    return answer, position


def _parse_record_errors(
    version: int, encoding: Encoding, frame: memoryview, position: int
) -> tuple[Mapping[int, str], int]:
    count, position = encoding.array_count(frame, position, _MIN_ROW_BYTES)
    if not count:
        return _NO_ERRORS, position
    errors: dict[int, str] = {}
    for _ in range(count):
        index: int = _INT32.unpack_from(frame, position)[0]
        message, position = encoding.string(frame, position + 4)
        errors[index] = message or ""
        if version >= _FIRST_FLEXIBLE:
            position = skip_tagged_fields(frame, position)
    return errors, position


def group_by_topic(batches: Iterable[tuple[str, int, Buffer]]) -> TopicBatches:
    """Batches as a request has them: each topic once."""
    topics: dict[str, list[tuple[int, Buffer]]] = {}
    for topic, partition, batch in batches:
        topics.setdefault(topic, []).append((partition, batch))
    return list(topics.items())
