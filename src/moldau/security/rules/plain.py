"""PLAIN (RFC 4616): user and password in one message. Rule."""

from __future__ import annotations

from typing import NamedTuple


class PlainMessage(NamedTuple):
    user: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(user={self.user!r})"


def parse_plain(message: bytes) -> PlainMessage:
    """ValueError says what is wrong, without any of what was sent."""
    try:
        parts = message.decode().split("\0")
    except UnicodeDecodeError:
        raise ValueError("the message is not UTF-8") from None
    if len(parts) != 3:
        raise ValueError("the message does not have three parts")
    acts_for, user, password = parts
    if not user or not password:
        raise ValueError("the user or the password is empty")
    if acts_for and acts_for != user:
        raise ValueError("nobody may act for another user")
    return PlainMessage(user, password)


def format_plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()
