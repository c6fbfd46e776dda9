"""OAUTHBEARER (RFC 7628): a token in one message; what it says is checked elsewhere. Rule."""

from __future__ import annotations

import re

_SEPARATOR = "\x01"
_INITIAL = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01\Z", re.DOTALL
)
_TOKEN = re.compile(r"bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)\Z", re.IGNORECASE)

REFUSAL = b'{"status":"invalid_token"}'
"""What a server says to a token that it does not take; the client answers with one byte."""


def format_bearer(token: str) -> bytes:
    return f"n,,{_SEPARATOR}auth=Bearer {token}{_SEPARATOR}{_SEPARATOR}".encode()


def parse_bearer(message: bytes) -> tuple[str, str]:
    """The token, and whom the client wants to act for (empty: himself). ValueError says why not."""
    match = _INITIAL.match(message.decode("utf-8", "replace"))
    if match is None:
        raise ValueError("the message is malformed")
    pairs = dict(pair.partition("=")[::2] for pair in match["pairs"].split(_SEPARATOR) if pair)
    token = _TOKEN.match(pairs.get("auth", ""))
    if token is None:
        raise ValueError("the message has no token")
    return token["token"], match["authzid"] or ""
