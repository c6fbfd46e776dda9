"""Produce from the client's side, versions 3 to 12, by hand: record batches are not copied.

The counterpart of `produce_frame`, which says what each version added; version 13 names topics by
id and is not spoken. A rule: values in, bytes out, and back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from moldau.errors import MalformedFrameError
from moldau.wire.apis import PRODUCE
from moldau.wire.primitives import (
    COMPACT,
    LEGACY,
    READ_ERRORS,
    Encoding,
    encode_compact_count,
    encode_compact_string,
    encode_legacy_count,
    encode_legacy_string,
    encode_varint,
    skip_tagged_fields,
)

Buffer = bytes | bytearray | memoryview

FIRST_VERSION: Final = 3
LAST_VERSION: Final = 12

_FIRST_WITH_LOG_START: Final = 5
_FIRST_WITH_RECORD_ERRORS: Final = 8
_FIRST_FLEXIBLE: Final = PRODUCE.first_flexible

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
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
        return _parse(version, frame, position)
    except READ_ERRORS as error:
        raise MalformedFrameError(f"ProduceResponse: {error}") from error


def _parse(version: int, frame: memoryview, position: int) -> ProduceAnswers:
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
