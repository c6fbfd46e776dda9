"""Whole messages through kio, in both directions.

Answers for turning bytes into kio's typed classes and back, and for raising nothing but
MalformedFrameError on bytes that are no message. Produce and Fetch have their own modules. Bytes
that follow a message are ignored, as Kafka ignores them. A rule: bytes in, values out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from moldau.errors import MalformedFrameError
from moldau.wire.guard import Edits, apply_edits, walker_of
from moldau.wire.headers import read_response_header, request_prefix, response_prefix
from moldau.wire.values_writer import values_writer_of
from moldau.wire.versions import reader_of, request_class, response_class
from moldau.wire.writer import writer_of

MAX_REQUEST_ELEMENTS: Final = 250_000
"""Of all arrays of a request together: more than any tool sends, and quickly parsed. Its
bytes are bounded by `socket.request.max.bytes` alone, as in Kafka: a large assignment of a group is
one element."""

if TYPE_CHECKING:
    from kio.static.protocol import Entity, Payload


def prepare_messages(api_key: int, version: int) -> None:
    """Load and make what the first request and answer of a version would have to wait for."""
    request, response = request_class(api_key, version), response_class(api_key, version)
    walker_of(request)
    reader_of(request)
    values_writer_of(response)


def parse_request(api_key: int, version: int, frame: memoryview, position: int) -> Payload:
    """The request whose body starts at the position."""
    edits = Edits(MAX_REQUEST_ELEMENTS)
    return parse(request_class(api_key, version), frame, position, edits)


def parse_response(api_key: int, version: int, frame: memoryview) -> tuple[int, Payload]:
    """Correlation id and message of a response frame, for clients."""
    correlation_id, position = read_response_header(frame, api_key, version)
    return correlation_id, parse(response_class(api_key, version), frame, position)


def parse(
    message_class: type[Payload], frame: memoryview, position: int, edits: Edits | None = None
) -> Payload:
    """A message of this class; raises MalformedFrameError when the bytes are none."""
    edits = Edits() if edits is None else edits
    try:
        end = walker_of(message_class).walk(frame, position, edits)
        if end > len(frame):
            raise MalformedFrameError(f"message ends at {end} of {len(frame)} bytes")
        if edits:
            frame, position = apply_edits(frame, position, edits), 0
        return reader_of(message_class)(frame.toreadonly(), position)[0]
    except _misfit_errors() as error:
        raise MalformedFrameError(f"{message_class.__name__}: {error}") from error


def _misfit_errors() -> tuple[type[Exception], ...]:
    """What a message raises that is none; kio is loaded when there is one to read."""
    from kio.serial.errors import SerialError

    return SerialError, struct.error, LookupError, ValueError, OverflowError


def encode_body(entity: Entity) -> bytes:
    """A message without length and header, or a structure of one."""
    parts: list[bytes] = []
    writer_of(type(entity))(entity, parts)
    return b"".join(parts)


def encode_response(entity: Payload, correlation_id: int) -> bytes:
    """A whole response frame: length, header, message."""
    body = encode_body(entity)
    return response_prefix(entity.__api_key__, entity.__version__, correlation_id, len(body)) + body


def encode_request(entity: Payload, correlation_id: int, client_id: str | None) -> bytes:
    """A whole request frame: length, header, message. For clients."""
    body = encode_body(entity)
    api_key, version = entity.__api_key__, entity.__version__
    return request_prefix(api_key, version, correlation_id, client_id, len(body)) + body
