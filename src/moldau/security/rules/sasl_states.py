"""What a connection of a SASL listener may ask, and when. Rule.

Kafka's `SaslServerAuthenticator` as a table: before a client has said who it is, nothing reaches
the broker but ApiVersions. A session with a limited life can be renewed on the same connection
(KIP-368): whoever goes on without it is cut off.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

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
