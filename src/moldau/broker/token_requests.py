"""What requests about delegation tokens have in common: who may send them, times, answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from moldau.broker.authorization import audit_change
from moldau.broker.request_context import RequestContext
from moldau.cluster.delegation_tokens import ExpiredToken
from moldau.errors import DelegationTokenRequestNotAllowedError, ErrorCode, KafkaError
from moldau.security.rules.delegation_tokens import DelegationToken, may_ask_for_tokens

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
NO_TIME: Final = _EPOCH
"""Where there is no token to tell a time of. Kafka says -1, which not every client can read, and
none looks at."""


def require_known_client(context: RequestContext) -> None:
    is_by_token = context.sasl is not None and context.sasl.is_by_token
    protocol = context.connection.security_protocol
    if not may_ask_for_tokens(context.principal, protocol, is_logged_in_by_token=is_by_token):
        raise DelegationTokenRequestNotAllowedError(
            "Delegation Token requests are not allowed on PLAINTEXT/1-way SSL channels and on "
            "delegation token authenticated channels."
        )


async def answer_with_expiry(
    context: RequestContext, change: Callable[[], Awaitable[DelegationToken | ExpiredToken]]
) -> dict[str, object]:
    """Change when a token ends, if the client may ask for that, and answer when it does."""
    code, expiry, subject = ErrorCode.none, NO_TIME, "DelegationToken"
    try:
        require_known_client(context)
        token = await change()
        expiry, subject = as_time(token.expiry_ms), f"DelegationToken:{token.token_id}"
    except KafkaError as error:
        code = error.code
    audit_change(context, subject, code)
    return {"error_code": code, "expiry_timestamp": expiry, "throttle_time": 0}


def as_time(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def as_milliseconds(period: timedelta) -> int:
    return period // timedelta(milliseconds=1)
