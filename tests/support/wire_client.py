"""A raw client of the wire protocol: sockets and kio alone, nothing of Moldau's own wire code.

For what the real clients cannot be made to send: any version of any API, and bytes that are no
request at all.
"""

from __future__ import annotations

import io
import socket
import struct
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

API_VERSIONS = 18

_LENGTH = struct.Struct(">i")
_TIMEOUT_SECONDS = 60.0


class ClosedByBroker(Exception):
    """The broker ended the connection instead of answering."""


def write_entity(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def frame_of(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


def header_of(entity_class: Any, correlation_id: int, client_id: str = "wire-test") -> bytes:
    header_class = entity_class.__header_schema__
    return write_entity(
        header_class(
            request_api_key=entity_class.__api_key__,
            request_api_version=entity_class.__version__,
            correlation_id=correlation_id,
            client_id=client_id,
        )
    )


def request_frame(entity: Any, correlation_id: int = 1) -> bytes:
    return frame_of(header_of(type(entity), correlation_id) + write_entity(entity))


def read_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and message of a response; fails unless the frame is used to its last byte."""
    response_class = load_response_schema(api_key, version)
    header, position = entity_reader(response_class.__header_schema__)(frame, 0)
    response, size = entity_reader(response_class)(frame, position)
    left = len(frame) - position - size
    assert not left, f"API {api_key} v{version}: {left} bytes after the response"
    return header.correlation_id, response


class WireClient:
    """One connection."""

    def __init__(self, port: int, *, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        self.socket.settimeout(_TIMEOUT_SECONDS)
        if receive_buffer_bytes is not None:  # counts only when it is set before
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_frame(self) -> bytes:
        return self._receive(_LENGTH.unpack(self._receive(4))[0])

    def _receive(self, count: int) -> bytes:
        parts = bytearray()
        while len(parts) < count:
            try:
                part = self.socket.recv(count - len(parts))
            except ConnectionError:
                part = b""
            if not part:
                raise ClosedByBroker(f"after {len(parts)} of {count} bytes")
            parts += part
        return bytes(parts)

    def is_closed_by_broker(self) -> bool:
        """Wait for the next byte or the end, and tell which of the two came."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def send_request(self, entity: Any) -> int:
        self._correlation_id += 1
        self.send(request_frame(entity, self._correlation_id))
        return self._correlation_id

    def receive_response(self, request_class: Any, correlation_id: int) -> Any:
        frame = self.receive_frame()
        found, response = read_response(request_class.__api_key__, request_class.__version__, frame)
        assert found == correlation_id, f"the answer to {found}, not to {correlation_id}"
        return response

    def ask(self, entity: Any) -> Any:
        """Send a request and wait for its response."""
        return self.receive_response(type(entity), self.send_request(entity))

    def served_versions(self) -> dict[int, tuple[int, int]]:
        """What ApiVersions tells: the lowest and highest version of each API."""
        request = load_request_schema(API_VERSIONS, 0)()
        return {
            api.api_key: (api.min_version, api.max_version) for api in self.ask(request).api_keys
        }
