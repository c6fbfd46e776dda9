"""ApiVersions, versions 0 to 4.

Tells a client which APIs and versions this broker serves (`wire.apis`).

v1 adds the throttle time; v2 sends it after the answer; v3 is flexible and names the client's
software; v4 fixes supported features whose lowest version is 0.

A version that is not known is answered in the layout of version 0 with UNSUPPORTED_VERSION, so that
a newer client can read it and ask again (KIP-511). The answer's header is always version 0.
Answers are the same for every client, so each version is encoded once.

GetTelemetrySubscriptions and PushTelemetry are advertised only while clients' metrics are collected
(Kafka: only when a plug-in receives them). librdkafka requests subscriptions whenever it can and
writes a line about it to its user's terminal.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import cache
from typing import Final

from moldau.broker.api import RequestContext, serves
from moldau.broker.control_plane import SUPPORTED_FEATURES
from moldau.errors import ErrorCode, MalformedFrameError
from moldau.net.port import Chunk
from moldau.wire.apis import API_VERSIONS, GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY, SERVED
from moldau.wire.headers import response_prefix
from moldau.wire.primitives import (
    READ_ERRORS,
    encode_compact_count,
    encode_compact_string,
    encode_legacy_count,
    encode_varint,
    read_compact_string,
    skip_tagged_fields,
)

API = serves(API_VERSIONS, by_hand=True)

_TELEMETRY_KEYS: Final = frozenset({GET_TELEMETRY_SUBSCRIPTIONS.key, PUSH_TELEMETRY.key})
_FIRST_WITH_THROTTLE_TIME = 1
_FIRST_FLEXIBLE = 3
_FIRST_WITH_FEATURES_FROM_0 = 4
_SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?\Z")
_SUPPORTED, _EPOCH, _FINALIZED = range(3)
"""Tags of the answer."""

_NO_TAGS: Final = b"\0"
_ERROR: Final = struct.Struct(">h")
_ROW: Final = struct.Struct(">hhh")
_THROTTLE_TIME: Final = struct.Struct(">i")
_LEVELS: Final = struct.Struct(">hh")
_INT64: Final = struct.Struct(">q")


def handle_frame(frame: memoryview, position: int, context: RequestContext) -> list[Chunk]:
    version = context.version
    error = ErrorCode.none
    if not API.first <= version <= API.last:
        version, error = 0, ErrorCode.unsupported_version
    elif version >= 3 and not _note_software(frame, position, context):
        error = ErrorCode.invalid_request
    body = _encode(version, error, context.services.telemetry.is_collecting)
    return [response_prefix(API.key, version, context.header.correlation_id, len(body)) + body]


def _note_software(frame: memoryview, position: int, context: RequestContext) -> bool:
    """Whether the client names its software as it should; then that is remembered (KIP-714)."""
    try:
        name, position = read_compact_string(frame, position)
        version, position = read_compact_string(frame, position)
        skip_tagged_fields(frame, position)
    except READ_ERRORS as error:
        raise MalformedFrameError(f"ApiVersions: {error}") from error
    if name is None or version is None:
        raise MalformedFrameError("ApiVersions: software without a name")
    if not _SOFTWARE_NAME.match(name) or not _SOFTWARE_NAME.match(version):
        return False
    context.services.telemetry.note_software(context.connection.id, name, version)
    return True


@cache
def _encode(version: int, error: ErrorCode, with_telemetry: bool) -> bytes:
    """By hand: it is the first answer that any client waits for."""
    shown = [
        api
        for api in SERVED
        if (error is ErrorCode.none or api.key == API.key)
        and (with_telemetry or api.key not in _TELEMETRY_KEYS)
    ]
    rows = [_ROW.pack(api.key, api.advertised.first, api.advertised.last) for api in shown]
    parts = [_ERROR.pack(error.value)]
    if version < _FIRST_FLEXIBLE:
        parts += [encode_legacy_count(len(rows)), *rows]
    else:
        parts += [encode_compact_count(len(rows)), *(row + _NO_TAGS for row in rows)]
    if version >= _FIRST_WITH_THROTTLE_TIME:
        parts.append(_THROTTLE_TIME.pack(0))
    if version >= _FIRST_FLEXIBLE:
        parts.append(_encode_features(version))
    return b"".join(parts)


def _encode_features(version: int) -> bytes:
    supported = _encode_levels(
        (one.name, one.first, one.last)
        for one in SUPPORTED_FEATURES
        # Clients of version 3 take a lowest version of 0 for a fault (KAFKA-17011).
        if one.first > 0 or version >= _FIRST_WITH_FEATURES_FROM_0
    )
    finalized = _encode_levels((one.name, one.last, one.last) for one in SUPPORTED_FEATURES)
    tagged = {_SUPPORTED: supported, _EPOCH: _INT64.pack(0), _FINALIZED: finalized}
    said = {tag: value for tag, value in tagged.items() if value}
    fields = [
        part
        for tag, value in said.items()
        for part in (encode_varint(tag), encode_varint(len(value)), value)
    ]
    return b"".join((encode_varint(len(said)), *fields))


def _encode_levels(rows: Iterable[tuple[str, int, int]]) -> bytes:
    """Nothing where there are none: then the field is left out."""
    encoded = [
        encode_compact_string(name) + _LEVELS.pack(first, last) + _NO_TAGS
        for name, first, last in rows
    ]
    return b"".join((encode_compact_count(len(encoded)), *encoded)) if encoded else b""
