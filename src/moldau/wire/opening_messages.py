"""The messages that every client begins with, without kio: ApiVersions, Metadata, ListOffsets,
InitProducerId.

kio makes classes for each version of a message when it is asked for the first time. For these four,
and for kio itself, that is a fifth of what `moldau consume` of a few records takes. So they are
declared here, in the names and versions of Kafka's own schemas, and answers are read into plain
objects with the attributes that kio's would have; an attribute that a version lacks is missing. The
tests compare every version with kio. For large answers kio's classes are the quicker ones. A rule.
"""

from __future__ import annotations

import struct
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode

from moldau.errors import MalformedFrameError, ShapeError
from moldau.wire.apis import API_VERSIONS, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, NEVER, Api
from moldau.wire.primitives import (
    COMPACT,
    LEGACY,
    READ_ERRORS,
    encode_compact_count,
    encode_compact_string,
    encode_legacy_count,
    encode_legacy_string,
    encode_uuid,
    read_tagged_fields,
    read_uuid,
)

if TYPE_CHECKING:
    from moldau.wire.shape import Values

STRING, UUID, ERROR, INT32S = "string", "uuid", "error", "int32s"
_NUMBERS: Final = {
    "bool": struct.Struct(">?"),
    "int8": struct.Struct(">b"),
    "int16": struct.Struct(">h"),
    "int32": struct.Struct(">i"),
    "int64": struct.Struct(">q"),
}
_ERROR_CODES: Final[dict[int, ErrorCode]] = {int(code): code for code in ErrorCode}
_INT16: Final = _NUMBERS["int16"]
_NO_TAG: Final = -1
_LEAST_ELEMENT_BYTES: Final = 2
_INT32_BYTES: Final = 4

LARGE_BYTES: Final = 16 * 1024
"""Of an answer that is better read by kio."""


class Field(NamedTuple):
    """A field, and the versions that have it; a structure is an array of its fields."""

    name: str
    kind: str | tuple[Field, ...]
    first: int = 0
    last: int = NEVER
    nullable_from: int = NEVER
    tag: int = _NO_TAG
    default: object = None  # of a tagged field that is not there


Fields: TypeAlias = tuple[Field, ...]


class Message(NamedTuple):
    """What is asked and what is answered."""

    request: Fields
    response: Fields


_FEATURE: Final[Fields] = (
    Field("name", STRING),
    Field("max_version_level", "int16"),
    Field("min_version_level", "int16"),
)

MESSAGES: Final[dict[int, Message]] = {
    API_VERSIONS.key: Message(
        request=(
            Field("client_software_name", STRING, 3),
            Field("client_software_version", STRING, 3),
        ),
        response=(
            Field("error_code", ERROR),
            Field(
                "api_keys",
                (
                    Field("api_key", "int16"),
                    Field("min_version", "int16"),
                    Field("max_version", "int16"),
                ),
            ),
            Field("throttle_time_ms", "int32", 1),
            Field("finalized_features", _FEATURE, 3, tag=2, default=()),
        ),
    ),
    METADATA.key: Message(
        request=(
            Field(
                "topics",
                (Field("topic_id", UUID, 10), Field("name", STRING, nullable_from=10)),
                nullable_from=1,
            ),
            Field("allow_auto_topic_creation", "bool", 4),
            Field("include_cluster_authorized_operations", "bool", 8, 10),
            Field("include_topic_authorized_operations", "bool", 8),
        ),
        response=(
            Field("throttle_time_ms", "int32", 3),
            Field(
                "brokers",
                (
                    Field("node_id", "int32"),
                    Field("host", STRING),
                    Field("port", "int32"),
                    Field("rack", STRING, 1, nullable_from=1),
                ),
            ),
            Field("cluster_id", STRING, 2, nullable_from=2),
            Field("controller_id", "int32", 1),
            Field(
                "topics",
                (
                    Field("error_code", ERROR),
                    Field("name", STRING, nullable_from=12),
                    Field("topic_id", UUID, 10),
                    Field("is_internal", "bool", 1),
                    Field(
                        "partitions",
                        (
                            Field("error_code", ERROR),
                            Field("partition_index", "int32"),
                            Field("leader_id", "int32"),
                            Field("leader_epoch", "int32", 7),
                            Field("replica_nodes", INT32S),
                            Field("isr_nodes", INT32S),
                            Field("offline_replicas", INT32S, 5),
                        ),
                    ),
                    Field("topic_authorized_operations", "int32", 8),
                ),
            ),
            Field("cluster_authorized_operations", "int32", 8, 10),
            Field("error_code", ERROR, 13),
        ),
    ),
    LIST_OFFSETS.key: Message(
        request=(
            Field("replica_id", "int32"),
            Field("isolation_level", "int8", 2),
            Field(
                "topics",
                (
                    Field("name", STRING),
                    Field(
                        "partitions",
                        (
                            Field("partition_index", "int32"),
                            Field("current_leader_epoch", "int32", 4),
                            Field("timestamp", "int64"),
                        ),
                    ),
                ),
            ),
            Field("timeout", "int32", 10),
        ),
        response=(
            Field("throttle_time_ms", "int32", 2),
            Field(
                "topics",
                (
                    Field("name", STRING),
                    Field(
                        "partitions",
                        (
                            Field("partition_index", "int32"),
                            Field("error_code", ERROR),
                            Field("timestamp", "int64"),
                            Field("offset", "int64"),
                            Field("leader_epoch", "int32", 4),
                        ),
                    ),
                ),
            ),
        ),
    ),
    INIT_PRODUCER_ID.key: Message(
        request=(
            Field("transactional_id", STRING, nullable_from=0),
            Field("transaction_timeout", "int32"),
            Field("producer_id", "int64", 3),
            Field("producer_epoch", "int16", 3),
            Field("enable2_pc", "bool", 6),
            Field("keep_prepared_txn", "bool", 6),
        ),
        response=(
            Field("throttle_time_ms", "int32"),
            Field("error_code", ERROR),
            Field("producer_id", "int64"),
            Field("producer_epoch", "int16"),
            Field("ongoing_txn_producer_id", "int64", 6),
            Field("ongoing_txn_producer_epoch", "int16", 6),
        ),
    ),
}
"""By the key of their API."""


@cache
def _layout(api_key: int, version: int) -> Message:
    """What this version has."""
    message = MESSAGES[api_key]
    return Message(_of_version(message.request, version), _of_version(message.response, version))


def _of_version(fields: Fields, version: int) -> Fields:
    return tuple(
        field
        if isinstance(field.kind, str)
        else field._replace(kind=_of_version(field.kind, version))
        for field in fields
        if field.first <= version <= field.last
    )


# --- requests ---------------------------------------------------------------------------------


def encode_opening(api: Api, version: int, values: Values, droppable: frozenset[str]) -> bytes:
    """The body of a request, which `values` describe as those of `shape.fit` do."""
    parts: list[bytes] = []
    try:
        _Writer(version, droppable, parts, is_flexible=version >= api.first_flexible).write(
            _layout(api.key, version).request, values
        )
    except (struct.error, AttributeError, TypeError) as error:
        raise ShapeError(f"{api.name}Request v{version}: {error}") from error
    return b"".join(parts)


class _Writer:
    def __init__(
        self, version: int, droppable: frozenset[str], parts: list[bytes], *, is_flexible: bool
    ) -> None:
        self._version = version
        self._droppable = droppable
        self._parts = parts
        self._is_flexible = is_flexible
        self._string = encode_compact_string if is_flexible else encode_legacy_string
        self._count = encode_compact_count if is_flexible else encode_legacy_count

    def write(self, fields: Fields, values: Values) -> None:
        there = {field.name for field in fields}
        for name, value in values.items():
            if name not in there and name not in self._droppable:
                raise ShapeError(f"version {self._version} cannot say {name}={value!r}")
        for field in fields:
            if field.name not in values:
                raise ShapeError(f"version {self._version} has to say {field.name}")
            self._write_value(field, values[field.name])
        if self._is_flexible:
            self._parts.append(b"\0")  # no tagged fields

    def _write_value(self, field: Field, value: Any) -> None:
        if value is None and field.kind != UUID and self._version < field.nullable_from:
            raise ShapeError(f"version {self._version} has no {field.name} that is null")
        if field.kind == STRING:
            self._parts.append(self._string(value))
        elif field.kind == UUID:
            self._parts.append(encode_uuid(value))
        elif isinstance(field.kind, str):
            self._parts.append(_NUMBERS[field.kind].pack(value))
        elif value is None:
            self._parts.append(self._count(-1))
        else:
            self._parts.append(self._count(len(value)))
            for element in value:
                self.write(field.kind, element)


# --- responses --------------------------------------------------------------------------------


def parse_opening(api: Api, version: int, frame: memoryview, position: int) -> SimpleNamespace:
    """The response whose body starts at the position; raises MalformedFrameError."""
    # Of ApiVersions the header is never flexible, and the rest is.
    reader = _Reader(version, frame, is_flexible=version >= api.first_flexible)
    try:
        return reader.read(_layout(api.key, version).response, position)[0]
    except READ_ERRORS as error:
        raise MalformedFrameError(f"{api.name}Response: {error}") from error


class _Reader:
    def __init__(self, version: int, frame: memoryview, *, is_flexible: bool) -> None:
        self._version = version
        self._frame = frame
        self._is_flexible = is_flexible
        self._encoding = COMPACT if is_flexible else LEGACY

    def read(self, fields: Fields, position: int) -> tuple[SimpleNamespace, int]:
        found: dict[str, object] = {}
        tagged: dict[int, Field] = {}
        for field in fields:
            if field.tag != _NO_TAG:
                tagged[field.tag] = field
                found[field.name] = field.default
            else:
                found[field.name], position = self._read_value(field, position)
        if self._is_flexible:
            for tag, start, end in read_tagged_fields(self._frame, position):
                position = end
                known = tagged.get(tag)
                if known is not None:
                    found[known.name], _ = self._read_value(known, start)
        return SimpleNamespace(**found), position

    def _read_value(self, field: Field, position: int) -> tuple[object, int]:
        frame = self._frame
        if field.kind == STRING:
            text, position = self._encoding.string(frame, position)
            if text is None and self._version < field.nullable_from:
                raise MalformedFrameError(f"{field.name} is null")
            return text, position
        if field.kind == UUID:
            return read_uuid(frame, position)
        if field.kind == ERROR:
            code: int = _INT16.unpack_from(frame, position)[0]
            # One that is newer than this client.
            known = _ERROR_CODES.get(code, ErrorCode.unknown_server_error)
            return known, position + _INT16.size
        if field.kind == INT32S:
            count, position = self._encoding.array_count(frame, position, _INT32_BYTES)
            numbers = struct.unpack_from(f">{count}i", frame, position)
            return numbers, position + count * _INT32_BYTES
        if isinstance(field.kind, str):
            layout = _NUMBERS[field.kind]
            return layout.unpack_from(frame, position)[0], position + layout.size
        count, position = self._encoding.array_count(frame, position, _LEAST_ELEMENT_BYTES)
        elements: list[SimpleNamespace] = []
        for _ in range(count):
            element, position = self.read(field.kind, position)
            elements.append(element)
        return tuple(elements), position
