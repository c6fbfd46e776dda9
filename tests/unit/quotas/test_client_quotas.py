"""Accounts: whom they charge, how long that takes, and how many of them there are."""

from __future__ import annotations

import asyncio

import pytest

from moldau.quotas import DEFAULT, ClientQuotas, QuotaEntity, QuotaKind, QuotaWindows
from moldau.simulation.manual_clock import ManualClock

PRODUCE = QuotaKind.PRODUCE


def advance(clock: ManualClock, seconds: float) -> None:
    asyncio.run(clock.advance(seconds))


def produce(quotas: ClientQuotas, user: str, client_id: str, amount: float) -> float:
    applied = quotas.find(PRODUCE, user, client_id)
    assert applied is not None
    return quotas.charge(applied, amount)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quotas(clock: ManualClock) -> ClientQuotas:
    return ClientQuotas(clock)


def test_without_quotas_nothing_is_limited(quotas: ClientQuotas) -> None:
    assert not quotas.is_enabled
    quotas.apply({QuotaEntity("alice"): {PRODUCE.value: 100.0}})
    assert quotas.is_enabled
    quotas.apply({})
    assert not quotas.is_enabled
    assert quotas.find(PRODUCE, "alice", "app") is None


def test_clients_of_a_user_share_the_users_quota(quotas: ClientQuotas) -> None:
    quotas.apply({QuotaEntity("alice"): {PRODUCE.value: 100.0}})

    assert produce(quotas, "alice", "one", 100) == 1.0
    assert produce(quotas, "alice", "two", 100) == 2.0


def test_a_default_quota_is_each_ones_own(quotas: ClientQuotas) -> None:
    quotas.apply({QuotaEntity(None, DEFAULT): {PRODUCE.value: 100.0}})

    assert produce(quotas, "alice", "one", 100) == 1.0
    assert produce(quotas, "alice", "two", 50) == 0.5


def test_a_debt_outlives_a_change_of_the_quota(quotas: ClientQuotas, clock: ManualClock) -> None:
    quotas.apply({QuotaEntity("alice"): {PRODUCE.value: 100.0}})
    produce(quotas, "alice", "app", 1000)
    quotas.apply({QuotaEntity("alice"): {PRODUCE.value: 200.0}})

    assert produce(quotas, "alice", "app", 0) == 5.0
    advance(clock, 2.0)
    assert produce(quotas, "alice", "app", 0) == 3.0


def test_how_much_may_be_used_at_once_is_an_option(clock: ManualClock) -> None:
    quotas = ClientQuotas(clock, lambda: QuotaWindows(burst_seconds=3.0))
    quotas.apply({QuotaEntity("alice"): {PRODUCE.value: 100.0}})
    produce(quotas, "alice", "app", 1)
    advance(clock, 60.0)

    assert produce(quotas, "alice", "app", 300) == 0.0
    assert produce(quotas, "alice", "app", 100) == 1.0


def test_accounts_are_bounded_and_those_in_use_are_kept(clock: ManualClock) -> None:
    quotas = ClientQuotas(clock, most_accounts=100)
    quotas.apply({QuotaEntity(None, DEFAULT): {PRODUCE.value: 100.0}})
    for number in range(99):
        produce(quotas, "alice", f"small-{number}", 1)
    produce(quotas, "alice", "large", 100_000)
    advance(clock, 10.0)
    for number in range(1000):
        produce(quotas, "alice", f"new-{number}", 1)
        assert sum(one.accounts for one in quotas.figures()) <= 100
        if number % 20 == 0:  # it comes again and again, and stays in debt
            assert produce(quotas, "alice", "large", 0) == 990.0


def test_an_address_may_open_a_burst_and_then_the_rate(
    quotas: ClientQuotas, clock: ManualClock
) -> None:
    quotas.apply({QuotaEntity(ip="10.0.0.1"): {QuotaKind.CONNECTION.value: 5.0}})

    assert [quotas.admit_connection("10.0.0.1") for _ in range(5)] == [0.0] * 5
    assert quotas.admit_connection("10.0.0.1") == pytest.approx(0.2)
    assert quotas.admit_connection("10.0.0.2") == 0.0
    advance(clock, 0.25)
    assert quotas.admit_connection("10.0.0.1") == 0.0
    assert quotas.admit_connection("10.0.0.1") > 0


def test_figures_tell_who_waited(quotas: ClientQuotas) -> None:
    quotas.apply({QuotaEntity("alice"): {PRODUCE.value: 100.0}})
    applied = quotas.find(PRODUCE, "alice", "app")
    assert applied is not None
    quotas.charge(applied, 150)
    quotas.note_throttled(PRODUCE, 1500)

    by_kind = {one.kind: one for one in quotas.figures()}
    assert by_kind[PRODUCE][1:] == (1, 1500, 1)
    assert by_kind[QuotaKind.FETCH][1:] == (0, 0, 0)
