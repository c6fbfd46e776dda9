"""How a record names the schema of its key or value. A rule.

    before the bytes:   00 | id, 4 bytes | Protobuf: message indexes | body
    in a header:        01 | GUID, 16 bytes | Protobuf: message indexes     (__value_schema_id, …)

A header goes before the bytes. Message indexes say which message of a file it is, from the outside
inwards: their count and each of them as a zigzag varint; a single zero stands for the first one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple
from uuid import UUID

from moldau.errors import ConfigurationError, SchemaDecodingError
from moldau.records.record import Headers
from moldau.schemas.model import MOST_ID, Field, SchemaKey

_ID_MAGIC: Final = 0
_GUID_MAGIC: Final = 1
_ID_END: Final = 5
_GUID_END: Final = 17
_MOST_INDEXES: Final = 100
"""Deeper than any message is nested; what claims more is damaged."""
_MOST_SHIFT: Final = 63

HEADER_OF: Final[dict[Field, str]] = {"key": "__key_schema_id", "value": "__value_schema_id"}


class Framed(NamedTuple):
    """Bytes apart from what names their schema.

    `rest` begins with message indexes where the schema is Protobuf's, unless these stood in a
    header: then `indexes_apart` has them, and what follows them.
    """

    key: SchemaKey
    rest: bytes
    indexes_apart: bytes | None = None


def split_frame(data: bytes, headers: Headers = (), field: Field = "value") -> Framed:
    """Raises SchemaDecodingError for bytes that name no schema."""
    if headers:
        wanted = HEADER_OF[field]
        for name, content in headers:
            if name == wanted and content is not None:
                return _split_header(content, data)
    if not data:
        raise SchemaDecodingError(
            f"the {field} is empty; it names no schema, and was not written by a serializer of a "
            "schema registry"
        )
    if data[0] != _ID_MAGIC:
        raise SchemaDecodingError(
            f"the {field} begins with the byte 0x{data[0]:02x}, not with 0x00 and the number of a "
            "schema; it was not written by a serializer of a schema registry"
        )
    if len(data) < _ID_END:
        raise SchemaDecodingError(
            f"the {field} has {len(data)} bytes; a zero byte and the number of a schema are 5 bytes"
        )
    return Framed(_read_id(data), data[_ID_END:])


def _read_id(data: bytes) -> int:
    """What no registry has is not asked for, which some answer with a failure of theirs."""
    found = int.from_bytes(data[1:_ID_END], "big")
    if found > MOST_ID:
        raise SchemaDecodingError(
            f"{found} is not the number of a schema; it was not written by a serializer of a "
            "schema registry"
        )
    return found


def _split_header(content: bytes, data: bytes) -> Framed:
    if content[:1] == bytes([_GUID_MAGIC]) and len(content) >= _GUID_END:
        return Framed(UUID(bytes=content[1:_GUID_END]), data, content[_GUID_END:])
    if content[:1] == bytes([_ID_MAGIC]) and len(content) >= _ID_END:
        return Framed(_read_id(content), data, content[_ID_END:])
    raise SchemaDecodingError(
        f"the header that names the schema is damaged: {content[:20].hex()} is neither 01 and a "
        "GUID of 16 bytes, nor 00 and a number of 4 bytes"
    )


def make_head(schema_id: int) -> bytes:
    """What stands before the bytes of a key or value."""
    return bytes([_ID_MAGIC]) + schema_id.to_bytes(4, "big")


def make_indexes(indexes: Sequence[int]) -> bytes:
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_write_varint(one) for one in (len(indexes), *indexes))


def read_indexes(data: bytes) -> tuple[tuple[int, ...], int]:
    """The indexes, and where they end; raises SchemaDecodingError."""
    count, at = _read_varint(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise SchemaDecodingError(
            f"{count} message indexes are claimed: the bytes are damaged, or no Protobuf"
        )
    found = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        found.append(index)
    return tuple(found), at


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > _MOST_SHIFT:
            raise SchemaDecodingError("the message indexes of Protobuf are cut off or damaged")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at


def _write_varint(number: int) -> bytes:
    left = number << 1 if number >= 0 else (-number << 1) - 1
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


# Under which subject the schema of a topic's keys or values is registered. A rule.
#
# Confluent's three strategies, by their short names or by those of the Java classes.


SubjectStrategy = Literal["topic", "record", "topic-record"]

_BY_NAME: Final[dict[str, SubjectStrategy]] = {
    "topic": "topic",
    "topicnamestrategy": "topic",
    "record": "record",
    "recordnamestrategy": "record",
    "topic-record": "topic-record",
    "topicrecordnamestrategy": "topic-record",
}


def parse_strategy(text: str) -> SubjectStrategy:
    """Raises ConfigurationError."""
    found = _BY_NAME.get(text.rpartition(".")[2].lower())
    if found is None:
        raise ConfigurationError(
            f"{text!r} is no strategy for the names of subjects; choose topic, record or "
            "topic-record"
        )
    return found


def subject_of(strategy: SubjectStrategy, topic: str, field: Field, record_name: str | None) -> str:
    """Raises ConfigurationError for a schema without a name where the strategy needs one."""
    if strategy == "topic":
        return f"{topic}-{field}"
    if not record_name:
        raise ConfigurationError(
            f"the schema of the {field} has no name, which the subject name strategy "
            f"{strategy!r} needs; name it (JSON Schema: title), or use the strategy topic"
        )
    return record_name if strategy == "record" else f"{topic}-{record_name}"
