"""Request and response headers: who asks what, and how the answer is recognised.

    request header v1   api key int16, api version int16, correlation id int32, client id string
    request header v2   the same, then tagged fields; the client id keeps its old encoding
    response header v0  correlation id int32
    response header v1  correlation id int32, tagged fields

A frame here is what follows its 4-byte length. Headers are read by hand: it happens for every
request, before anything else is known about it. A rule: bytes in, values out.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from moldau.errors import MalformedFrameError
from moldau.wire import quick_frames
from moldau.wire.apis import API_VERSIONS, FIRST_FLEXIBLE, NEVER
from moldau.wire.primitives import skip_tagged_fields

_API_VERSIONS: Final = API_VERSIONS.key

_REQUEST: Final = struct.Struct(">hhih")
_REQUEST_PREFIX: Final = struct.Struct(">ihhih")
_RESPONSE_V0: Final = struct.Struct(">ii")
_RESPONSE_V1: Final = struct.Struct(">iib")
_CORRELATION_ID: Final = struct.Struct(">i")

_REQUEST_BYTES: Final = _REQUEST.size
_RESPONSE_V0_BYTES: Final = 4
_RESPONSE_V1_BYTES: Final = 5


class RequestHeader(NamedTuple):
    """Made once for each request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """The header, and the position of the body. An unknown API is taken to have header v1."""
    return quick_frames.read_header(frame, FIRST_FLEXIBLE, RequestHeader) or _read_in_full(frame)


def _read_in_full(frame: memoryview) -> tuple[RequestHeader, int]:
    try:
        api_key, api_version, correlation_id, length = _REQUEST.unpack_from(frame)
        position = _REQUEST_BYTES
        client_id = None
        if length >= 0:
            position += length
            client_id = str(frame[_REQUEST_BYTES:position], "utf-8")
        elif length != -1:
            raise MalformedFrameError(f"client id of {length} bytes")
        if api_version >= FIRST_FLEXIBLE.get(api_key, NEVER):
            if frame[position]:
                position = skip_tagged_fields(frame, position)
            else:
                position += 1
        elif position > len(frame):
            raise MalformedFrameError(f"client id ends at {position} of {len(frame)} bytes")
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedFrameError(f"request header: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def has_response_header_v1(api_key: int, version: int) -> bool:
    """Flexible versions have it, except ApiVersions: a client that has yet to learn the broker's
    versions must be able to read the answer."""
    return version >= FIRST_FLEXIBLE.get(api_key, NEVER) and api_key != _API_VERSIONS


def response_prefix(api_key: int, api_version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Length and header of a response, to be sent before its body."""
    if has_response_header_v1(api_key, api_version):
        return _RESPONSE_V1.pack(_RESPONSE_V1_BYTES + body_bytes, correlation_id, 0)
    return _RESPONSE_V0.pack(_RESPONSE_V0_BYTES + body_bytes, correlation_id)


def request_prefix(
    api_key: int, api_version: int, correlation_id: int, client_id: str | None, body_bytes: int
) -> bytes:
    """Length and header of a request, to be sent before its body."""
    client = b"" if client_id is None else client_id.encode()
    client_length = -1 if client_id is None else len(client)
    tail = b"\0" if api_version >= FIRST_FLEXIBLE.get(api_key, NEVER) else b""
    size = _REQUEST_BYTES + len(client) + len(tail) + body_bytes
    fields = _REQUEST_PREFIX.pack(size, api_key, api_version, correlation_id, client_length)
    return fields + client + tail


def read_response_header(frame: memoryview, api_key: int, api_version: int) -> tuple[int, int]:
    """Correlation id of a response, and the position of its body."""
    try:
        correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
        position = _RESPONSE_V0_BYTES
        if has_response_header_v1(api_key, api_version):
            position = skip_tagged_fields(frame, position)
    except (struct.error, IndexError) as error:
        raise MalformedFrameError(f"response header: {error}") from error
    return correlation_id, position
