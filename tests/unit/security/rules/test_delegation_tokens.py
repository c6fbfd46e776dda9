"""Delegation tokens: lives, hands, secrets. Times are whatever the test says they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.errors import DelegationTokenExpiredError, DelegationTokenOwnerMismatchError
from moldau.model import ANONYMOUS, Principal
from moldau.security.rules.delegation_tokens import (
    DelegationToken,
    TokenLifetimes,
    expire_token,
    is_asked_for,
    issue_token,
    may_ask_for_tokens,
    renew_token,
    token_hmac,
    token_password,
)

ALICE, BOB, CAROL, EVE = (Principal("User", name) for name in ("alice", "bob", "carol", "eve"))
LIFETIMES = TokenLifetimes(max_ms=1_000, renew_ms=100)
NOW = 50_000


def issued(wanted_ms: int = -1) -> DelegationToken:
    return issue_token(
        "id",
        owner=ALICE,
        requester=BOB,
        renewers=(CAROL,),
        wanted_ms=wanted_ms,
        lifetimes=LIFETIMES,
        now_ms=NOW,
    )


@pytest.mark.parametrize(
    ("wanted", "expiry", "longest"),
    [(-1, 100, 1_000), (0, 100, 1_000), (5_000, 100, 1_000), (500, 100, 500), (30, 30, 30)],
)
def test_a_token_lives_as_long_as_was_asked_for_and_is_allowed(
    wanted: int, expiry: int, longest: int
) -> None:
    token = issued(wanted)
    assert (token.issue_ms, token.expiry_ms, token.max_ms) == (NOW, NOW + expiry, NOW + longest)


def test_it_is_good_until_its_last_millisecond() -> None:
    token = issued()
    assert not token.is_expired(NOW + 100)
    assert token.is_expired(NOW + 101)


def test_its_owner_who_asked_for_it_and_its_renewers_hold_it() -> None:
    for principal in (ALICE, BOB, CAROL):
        assert renew_token(issued(), principal, 50, LIFETIMES, NOW + 80).expiry_ms == NOW + 130
    with pytest.raises(DelegationTokenOwnerMismatchError):
        renew_token(issued(), EVE, 50, LIFETIMES, NOW)
    with pytest.raises(DelegationTokenOwnerMismatchError):
        expire_token(issued(), EVE, -1, NOW)


def test_a_renewal_without_a_period_is_the_usual_one() -> None:
    assert renew_token(issued(), ALICE, -1, LIFETIMES, NOW + 60).expiry_ms == NOW + 160


def test_no_renewal_goes_beyond_the_longest_life() -> None:
    assert renew_token(issued(), ALICE, 10**9, LIFETIMES, NOW).expiry_ms == NOW + 1_000


def test_what_has_expired_cannot_be_renewed() -> None:
    with pytest.raises(DelegationTokenExpiredError):
        renew_token(issued(), ALICE, 50, LIFETIMES, NOW + 101)
    with pytest.raises(DelegationTokenExpiredError):
        expire_token(issued(), ALICE, -1, NOW + 101)


def test_it_can_end_now_or_a_little_later() -> None:
    assert expire_token(issued(), CAROL, -1, NOW) is None
    earlier = expire_token(issued(), CAROL, 7, NOW)
    assert earlier is not None
    assert earlier.expiry_ms == NOW + 7
    later = expire_token(issued(), CAROL, 10**9, NOW)
    assert later is not None
    assert later.expiry_ms == NOW + 1_000


@given(
    steps=st.lists(st.tuples(st.integers(0, 200), st.integers(-1, 3_000)), max_size=30),
    wanted=st.integers(-5, 2_000),
)
def test_times_stay_in_order_whatever_is_done(steps: list[tuple[int, int]], wanted: int) -> None:
    token, now = issued(wanted), NOW
    for pause, period in steps:
        now += pause
        if token.is_expired(now):
            with pytest.raises(DelegationTokenExpiredError):
                renew_token(token, ALICE, period, LIFETIMES, now)
            return
        token = renew_token(token, ALICE, period, LIFETIMES, now)
        assert token.issue_ms <= now <= token.expiry_ms <= token.max_ms == issued(wanted).max_ms


def test_tokens_are_found_by_those_who_hold_them() -> None:
    assert is_asked_for(issued(), None)
    assert is_asked_for(issued(), [EVE, CAROL])
    assert not is_asked_for(issued(), [EVE])
    assert not is_asked_for(issued(), [])


@pytest.mark.parametrize(
    ("principal", "protocol", "by_token", "may"),
    [
        (ALICE, "SASL_SSL", False, True),
        (ALICE, "SASL_PLAINTEXT", False, True),
        (ALICE, "SASL_SSL", True, False),
        (ALICE, "SSL", False, True),
        (ANONYMOUS, "SSL", False, False),
        (ANONYMOUS, "PLAINTEXT", False, False),
    ],
)
def test_only_those_who_are_known_may_ask(
    principal: Principal, protocol: str, by_token: bool, may: bool
) -> None:
    assert may_ask_for_tokens(principal, protocol, is_logged_in_by_token=by_token) is may


def test_the_secret_follows_from_the_id_and_the_key_as_in_kafka() -> None:
    """HMAC with SHA-512 over the id; the password is its base64."""
    assert token_hmac("secret", "id").hex().startswith("2aab23f3")
    assert len(token_hmac("secret", "id")) == 64
    assert token_hmac("secret", "id") != token_hmac("other", "id")
    assert len(token_password("secret", "id")) == 88


def test_a_period_of_nothing_ends_a_token_with_this_millisecond() -> None:
    ended = expire_token(issued(), ALICE, 0, NOW + 5)
    assert ended is not None
    assert ended.expiry_ms == NOW + 5
    assert renew_token(issued(), ALICE, 0, LIFETIMES, NOW + 5).expiry_ms == NOW + 5


def test_the_longest_life_ends_a_token_too() -> None:
    token = replace(issued(500), expiry_ms=NOW + 900)
    assert not token.is_expired(NOW + 500)
    assert token.is_expired(NOW + 501)


def test_one_millisecond_is_a_life() -> None:
    assert issued(1).max_ms == NOW + 1
