"""Delegation tokens: the brokers' key, and how long tokens live."""

from __future__ import annotations

from typing import Final

from moldau.config.kinds import LONG, PASSWORD, at_least, between
from moldau.config.option import HOUR_MS, Fallback, Importance, Option, OptionSet, option

_DAY_MS: Final = 24 * HOUR_MS
_CENTURY_MS: Final = 100 * 365 * _DAY_MS
"""Longer lives end at times that clients cannot read; in Kafka their sum overflows."""


class DelegationTokenOptions(OptionSet):
    """Tokens with which others log in as a user, for a while."""

    delegation_token_secret_key: Option[str | None] = Option(
        "delegation.token.secret.key",
        PASSWORD,
        None,
        "The key from which the secrets of delegation tokens follow; the same on every broker. "
        "Without it there are no tokens.",
        falls_back_to=(Fallback("delegation.token.master.key"),),
        sensitive=True,
    )
    delegation_token_master_key: Option[str | None] = Option(
        "delegation.token.master.key",
        PASSWORD,
        None,
        "The former name of delegation.token.secret.key.",
        sensitive=True,
    )
    delegation_token_max_lifetime_ms = option(
        "delegation.token.max.lifetime.ms",
        LONG,
        7 * _DAY_MS,
        "The longest life of a token, however often it is renewed.",
        between(1, _CENTURY_MS),
    )
    delegation_token_expiry_time_ms = option(
        "delegation.token.expiry.time.ms",
        LONG,
        _DAY_MS,
        "How long a token is good before it has to be renewed.",
        between(1, _CENTURY_MS),
    )
    delegation_token_expiry_check_interval_ms = option(
        "delegation.token.expiry.check.interval.ms",
        LONG,
        HOUR_MS,
        "How often the controller removes tokens that have expired.",
        at_least(1),
        importance=Importance.LOW,
    )
