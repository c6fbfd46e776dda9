"""Delegation tokens (KIP-48, KIP-373): who gets one, how long it lasts, who may renew it. Rule.

A token lets whoever holds it log in as its owner, with SCRAM, until it expires: jobs that a user
starts need not know his password. Its secret follows from its id and the brokers' common key, so
the store holds nothing that lets anybody in.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

from moldau.errors import DelegationTokenExpiredError, DelegationTokenOwnerMismatchError
from moldau.model import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """Times are milliseconds of the clock. Invariant: issue <= expiry <= max."""

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issue_ms: int
    expiry_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return now_ms > self.expiry_ms or now_ms > self.max_ms

    def is_in_hands_of(self, principal: Principal) -> bool:
        """Its owner, who asked for it, and who may renew it."""
        return principal in (self.owner, self.requester, *self.renewers)


class TokenLifetimes(NamedTuple):
    """`delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    max_ms: int
    renew_ms: int


def issue_token(
    token_id: str,
    *,
    owner: Principal,
    requester: Principal,
    renewers: tuple[Principal, ...],
    wanted_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """`wanted_ms` is the longest life that was asked for; not more than 0 for the usual one."""
    longest_ms = min(wanted_ms, lifetimes.max_ms) if wanted_ms > 0 else lifetimes.max_ms
    max_ms = now_ms + longest_ms
    return DelegationToken(
        token_id=token_id,
        owner=owner,
        requester=requester,
        renewers=renewers,
        issue_ms=now_ms,
        expiry_ms=min(max_ms, now_ms + lifetimes.renew_ms),
        max_ms=max_ms,
    )


def renew_token(
    token: DelegationToken,
    principal: Principal,
    period_ms: int,
    lifetimes: TokenLifetimes,
    now_ms: int,
) -> DelegationToken:
    """Its end is `period_ms` from now, and never behind its longest life."""
    _require_hands(token, principal, now_ms)
    period_ms = lifetimes.renew_ms if period_ms < 0 else period_ms
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))


def expire_token(
    token: DelegationToken, principal: Principal, period_ms: int, now_ms: int
) -> DelegationToken | None:
    """With its new end; None when it ends now."""
    _require_hands(token, principal, now_ms)
    if period_ms < 0:
        return None
    return replace(token, expiry_ms=min(token.max_ms, now_ms + period_ms))


def _require_hands(token: DelegationToken, principal: Principal, now_ms: int) -> None:
    if not token.is_in_hands_of(principal):
        raise DelegationTokenOwnerMismatchError(f"{principal} may not renew this token")
    if token.is_expired(now_ms):
        raise DelegationTokenExpiredError("the token has expired")


def is_asked_for(token: DelegationToken, owners: Collection[Principal] | None) -> bool:
    """Whether it is one of these people's; None asks for all."""
    return owners is None or any(token.is_in_hands_of(owner) for owner in owners)


def may_ask_for_tokens(
    principal: Principal, security_protocol: str, *, is_logged_in_by_token: bool
) -> bool:
    """Nobody whom nobody knows, or whom others can listen to; and no token begets another."""
    is_known = security_protocol.startswith("SASL_") or (
        security_protocol == "SSL" and principal != ANONYMOUS
    )
    return is_known and not is_logged_in_by_token


def token_hmac(secret_key: str, token_id: str) -> bytes:
    """What the holder of a token shows of it; the password of his login is its base64."""
    return hmac.digest(secret_key.encode(), token_id.encode(), "sha512")


def token_password(secret_key: str, token_id: str) -> str:
    return b64encode(token_hmac(secret_key, token_id)).decode()
