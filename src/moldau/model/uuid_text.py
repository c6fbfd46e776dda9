"""Topic and cluster ids as Kafka writes them: 16 bytes in url-safe base64, 22 characters."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

TEXT_LENGTH = 22


def format_uuid(identifier: UUID) -> str:
    return urlsafe_b64encode(identifier.bytes)[:TEXT_LENGTH].decode("ascii")


def parse_uuid(text: str) -> UUID:
    """Raises `ValueError` for anything but 22 characters of url-safe base64."""
    if len(text) != TEXT_LENGTH:
        raise ValueError(f"{text!r} is not a base64 id of {TEXT_LENGTH} characters")
    try:
        identifier = UUID(bytes=urlsafe_b64decode(text + "=="))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a base64 id: {error}") from error
    if format_uuid(identifier) != text:  # the decoder skips foreign characters and spare bits
        raise ValueError(f"{text!r} is not a base64 id")
    return identifier
