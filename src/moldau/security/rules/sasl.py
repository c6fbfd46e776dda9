"""SASL: what a connection may do before it has logged in, logins of clients, JAAS. Rules."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from moldau.security.rules.scram import ScramClient

# What a connection of a SASL listener may ask, and when. Rule.
#
# Kafka's `SaslServerAuthenticator` as a table: before a client has said who it is, nothing reaches
# the broker but ApiVersions. A session with a limited life can be renewed on the same connection
# (KIP-368): whoever goes on without it is cut off.


SASL_HANDSHAKE: Final = 17
API_VERSIONS: Final = 18
SASL_AUTHENTICATE: Final = 36


class SaslState(Enum):
    """Each with what it answers, and where it moves."""

    NEW = "new"
    """Answers ApiVersions and SaslHandshake. Moves to EXCHANGING with a handshake of version 1, to
    RAW with one of version 0, to OVER with anything else."""
    EXCHANGING = "exchanging"
    """Answers SaslAuthenticate. Moves to AUTHENTICATED when the mechanism is satisfied, to OVER
    when it is not, or with anything else."""
    RAW = "raw"
    """Answers the mechanism's own messages, without Kafka's headers, as before KIP-152. Moves as
    EXCHANGING does."""
    AUTHENTICATED = "authenticated"
    """All requests are answered. Moves to EXCHANGING with a handshake, where sessions are limited,
    and to OVER with any other request after the session's end."""
    OVER = "over"
    """Answers nothing: the connection is being closed."""


class FrameVerdict(Enum):
    """What to do with a frame."""

    PASS = "pass"  # noqa: S105 hand it to the broker
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    RAW_MESSAGE = "raw message"  # the whole frame is one of the mechanism's
    REFUSE = "refuse"  # answer ILLEGAL_SASL_STATE, and close
    CLOSE = "close"


_LONGEST_SESSION_MS: Final = 10 * 365 * 24 * 3_600_000
"""A token may name an end that no clock reaches."""

_SASL_APIS: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


def judge(
    state: SaslState, api_key: int, *, is_limited: bool = False, is_expired: bool = False
) -> FrameVerdict:
    """What becomes of a request, by the state of its connection."""
    if state is SaslState.OVER:
        return FrameVerdict.CLOSE
    if state is SaslState.RAW:
        return FrameVerdict.RAW_MESSAGE
    if state is SaslState.AUTHENTICATED:
        if api_key == SASL_HANDSHAKE and is_limited:
            return FrameVerdict.HANDSHAKE
        return FrameVerdict.CLOSE if is_expired else FrameVerdict.PASS
    expected = SASL_HANDSHAKE if state is SaslState.NEW else SASL_AUTHENTICATE
    if api_key == expected:
        return FrameVerdict.HANDSHAKE if state is SaslState.NEW else FrameVerdict.AUTHENTICATE
    if state is SaslState.NEW and api_key == API_VERSIONS:
        return FrameVerdict.PASS
    return FrameVerdict.REFUSE if api_key in _SASL_APIS else FrameVerdict.CLOSE


def session_lifetime_ms(now_ms: int, max_reauth_ms: int, credential_expires_ms: int | None) -> int:
    """How long a session lasts that begins now, as the client is told; 0 for ever."""
    ends = []
    if max_reauth_ms > 0:
        ends.append(max_reauth_ms)
    if credential_expires_ms is not None:
        ends.append(max(1, credential_expires_ms - now_ms))
    return min((*ends, _LONGEST_SESSION_MS)) if ends else 0


class Login(Protocol):
    """One exchange: what to say first, and then to each answer; None when all is said."""

    mechanism: str

    def first(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | None:
        """Raises ValueError or ScramError when the broker is not what it should be."""
        ...


class PlainLogin:
    mechanism = "PLAIN"

    def __init__(self, user: str, password: str) -> None:
        self._message = format_plain(user, password)

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        return None


class BearerLogin:
    mechanism = "OAUTHBEARER"

    def __init__(self, token: str) -> None:
        self._message = format_bearer(token)

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        """An answer with content is a refusal, to which one byte has to be said."""
        return b"\x01" if challenge else None


class ScramLogin:
    def __init__(
        self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self.mechanism = mechanism
        self._client = ScramClient(mechanism, user, password, nonce, is_token=is_token)
        self._is_proven = False

    def first(self) -> bytes:
        return self._client.first()

    def respond(self, challenge: bytes) -> bytes | None:
        if self._is_proven:
            self._client.check(challenge)
            return None
        self._is_proven = True
        return self._client.final(challenge)


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


_BEARER_SEPARATOR = "\x01"
_BEARER_INITIAL = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01\Z", re.DOTALL
)
_BEARER_TOKEN = re.compile(r"bearer +(?P<token>[-_~+/.A-Za-z0-9]+=*)\Z", re.IGNORECASE)

REFUSAL = b'{"status":"invalid_token"}'
"""What a server says to a token that it does not take; the client answers with one byte."""


def format_bearer(token: str) -> bytes:
    return (
        f"n,,{_BEARER_SEPARATOR}auth=Bearer {token}{_BEARER_SEPARATOR}{_BEARER_SEPARATOR}".encode()
    )


def parse_bearer(message: bytes) -> tuple[str, str]:
    """The token, and whom the client wants to act for (empty: himself). ValueError says why not."""
    match = _BEARER_INITIAL.match(message.decode("utf-8", "replace"))
    if match is None:
        raise ValueError("the message is malformed")
    pairs = dict(
        pair.partition("=")[::2] for pair in match["pairs"].split(_BEARER_SEPARATOR) if pair
    )
    token = _BEARER_TOKEN.match(pairs.get("auth", ""))
    if token is None:
        raise ValueError("the message has no token")
    return token["token"], match["authzid"] or ""


# Java's login configuration, as far as it stands in Kafka's properties. Rule.
#
#     org.apache.kafka.common.security.plain.PlainLoginModule required
#         username="broker" password="secret" user_alice="hers";
#
# Only the options count here: the mechanism is known from where the text stands. Values may be
# quoted, and a backslash stands before a quote or a backslash inside them. No message repeats any
# of the text, which has passwords in it.


_JAAS_TOKEN = re.compile(r'\s*(?:"((?:\\.|[^"\\])*)"|([^\s=;"]+)|([=;]))', re.DOTALL)
_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})
_USER_PREFIX = "user_"


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasConfig:
    """One login module with its options."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def username(self) -> str | None:
        return self.options.get("username")

    @property
    def password(self) -> str | None:
        return self.options.get("password")

    @property
    def users(self) -> dict[str, str]:
        """The passwords of `user_NAME` by name."""
        return {
            name.removeprefix(_USER_PREFIX): text
            for name, text in self.options.items()
            if name.startswith(_USER_PREFIX)
        }


def parse_jaas(text: str) -> JaasConfig:
    """Read one entry; ValueError is the end of a message about the option."""
    tokens = _split_jaas(text)
    if len(tokens) < 2 or tokens[-1] != (";", True):
        raise ValueError("does not end with a semicolon")
    (module, _), (flag, _), *rest = tokens[:-1] if len(tokens) > 2 else [("", False)] * 2
    if not module or flag.lower() not in _FLAGS:
        raise ValueError("does not begin with the name of a login module and the word required")
    options: dict[str, str] = {}
    while rest:
        if len(rest) < 3 or rest[1] != ("=", True) or rest[0][1] or rest[2][1]:
            raise ValueError('has an option that is not of the form name="value"')
        options[rest[0][0]] = rest[2][0]
        rest = rest[3:]
    return JaasConfig(module=module, options=options)


def format_jaas(module: str, options: Mapping[str, str]) -> str:
    """The text from which `parse_jaas` reads the same."""
    words = [module, "required", *(f'{name}="{_quote(v)}"' for name, v in options.items())]
    return " ".join(words) + ";"


def _split_jaas(text: str) -> list[tuple[str, bool]]:
    """The words, and whether each is a sign (`=` or `;`) rather than a text."""
    tokens: list[tuple[str, bool]] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _JAAS_TOKEN.match(text, position)
        if match is None:
            raise ValueError("has a quote that does not end")
        quoted, bare, sign = match.groups()
        if sign:
            tokens.append((sign, True))
        else:
            tokens.append((bare if quoted is None else re.sub(r"\\(.)", r"\1", quoted), False))
        position = match.end()
    return tokens


def _quote(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
