"""Who a quota can be for, what it can limit, and which of several holds."""

from __future__ import annotations

import pytest

from moldau.errors import InvalidRequestError, UnsupportedVersionError
from moldau.quotas import (
    DEFAULT,
    AppliedQuota,
    QuotaAccount,
    QuotaEntity,
    QuotaKind,
    QuotaTable,
    require_entity,
    require_limit,
)

PRODUCE = QuotaKind.PRODUCE.value


def test_an_entity_is_a_user_a_client_both_or_an_address() -> None:
    assert require_entity([("user", "a")]) == QuotaEntity(user="a")
    assert require_entity([("client-id", None), ("user", "a")]) == QuotaEntity("a", DEFAULT)
    assert require_entity([("ip", "0:0::1")]) == QuotaEntity(ip="::1")
    assert require_entity([("ip", None)]) == QuotaEntity(ip=DEFAULT)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("user", "")],
        [("user", "a"), ("user", "b")],
        [("user", "a"), ("ip", "::1")],
        [("ip", "somewhere")],
    ],
)
def test_what_is_no_entity_is_refused(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(InvalidRequestError):
        require_entity(parts)


def test_other_types_of_entities_are_not_known() -> None:
    with pytest.raises(UnsupportedVersionError):
        require_entity([("group", "a")])


@pytest.mark.parametrize(
    ("entity", "name", "value"),
    [
        (QuotaEntity(user="a"), "connection_creation_rate", 1.0),
        (QuotaEntity(ip="::1"), PRODUCE, 1.0),
        (QuotaEntity(user="a"), "nonsense", 1.0),
        (QuotaEntity(user="a"), PRODUCE, 0.0),
        (QuotaEntity(user="a"), PRODUCE, -1.0),
        (QuotaEntity(user="a"), PRODUCE, 1.5),
        (QuotaEntity(user="a"), PRODUCE, 1e30),
        (QuotaEntity(user="a"), PRODUCE, 1e-9),
        (QuotaEntity(user="a"), "request_percentage", float("nan")),
        (QuotaEntity(ip="::1"), "connection_creation_rate", 2.0**31),
    ],
)
def test_what_is_no_limit_is_refused(entity: QuotaEntity, name: str, value: float) -> None:
    with pytest.raises(InvalidRequestError):
        require_limit(entity, name, value)


def test_a_percentage_may_have_a_fraction() -> None:
    assert require_limit(QuotaEntity(user="a"), "request_percentage", 0.5) == 0.5
    assert require_limit(QuotaEntity(user="a"), PRODUCE, 7.0000000001) == 7.0


# Kafka's order: its documentation, "Client quotas"
ORDER = [
    (QuotaEntity("alice", "app"), QuotaAccount(QuotaKind.PRODUCE, "alice", "app")),
    (QuotaEntity("alice", DEFAULT), QuotaAccount(QuotaKind.PRODUCE, "alice", "app")),
    (QuotaEntity("alice"), QuotaAccount(QuotaKind.PRODUCE, "alice", None)),
    (QuotaEntity(DEFAULT, "app"), QuotaAccount(QuotaKind.PRODUCE, "alice", "app")),
    (QuotaEntity(DEFAULT, DEFAULT), QuotaAccount(QuotaKind.PRODUCE, "alice", "app")),
    (QuotaEntity(DEFAULT), QuotaAccount(QuotaKind.PRODUCE, "alice", None)),
    (QuotaEntity(None, "app"), QuotaAccount(QuotaKind.PRODUCE, None, "app")),
    (QuotaEntity(None, DEFAULT), QuotaAccount(QuotaKind.PRODUCE, None, "app")),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_particular_quota_holds(first: int) -> None:
    """All from `first` on are set: that one counts, and says whose account it is."""
    quotas = {entity: {PRODUCE: float(n)} for n, (entity, _) in enumerate(ORDER) if n >= first}
    table = QuotaTable(quotas)

    found = table.find(QuotaKind.PRODUCE, "alice", "app")

    assert found == AppliedQuota(ORDER[first][1], float(first))


def test_a_quota_of_another_kind_or_of_somebody_else_does_not_hold() -> None:
    table = QuotaTable(
        {
            QuotaEntity("alice", "app"): {"consumer_byte_rate": 1.0},
            QuotaEntity("bob"): {PRODUCE: 1.0},
            QuotaEntity("alice", "other"): {PRODUCE: 1.0},
            QuotaEntity(None, "app"): {PRODUCE: 5.0},
        }
    )

    assert table.kinds == {QuotaKind.PRODUCE, QuotaKind.FETCH}
    found = table.find(QuotaKind.PRODUCE, "alice", "app")
    assert found == AppliedQuota(QuotaAccount(QuotaKind.PRODUCE, None, "app"), 5.0)
    assert table.find(QuotaKind.REQUEST, "alice", "app") is None
    assert table.find(QuotaKind.PRODUCE, "carol", "else") is None


def test_a_name_like_the_word_for_the_default_is_a_name() -> None:
    table = QuotaTable({QuotaEntity("<default>"): {PRODUCE: 1.0}})

    assert table.find(QuotaKind.PRODUCE, "alice", "app") is None
    assert table.find(QuotaKind.PRODUCE, "<default>", "app") is not None


def test_an_address_has_its_own_quota_or_the_default() -> None:
    rate = "connection_creation_rate"
    table = QuotaTable({QuotaEntity(ip="::1"): {rate: 5.0}, QuotaEntity(ip=DEFAULT): {rate: 2.0}})

    own, other = table.find_for_address("::1"), table.find_for_address("10.0.0.1")

    assert own is not None
    assert (own.limit, own.account.ip) == (5.0, "::1")
    assert other is not None
    assert (other.limit, other.account.ip) == (2.0, "10.0.0.1")
