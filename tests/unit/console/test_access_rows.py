"""Access control lists and quotas as they are shown."""

from __future__ import annotations

import pytest

from moldau.client.admin.access import ScramCredentialInfo
from moldau.console.access import (
    acl_rows,
    check_password,
    limit_text,
    parse_entity,
    parse_limit,
    parse_name,
    quota_rows,
    quotas_of,
    user_rows,
)
from moldau.errors import ConfigurationError
from moldau.model import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)
from moldau.quotas import DEFAULT, QuotaEntity

ALLOWED = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "orders.", PatternType.PREFIXED),
    AclEntry("User:etl", AclPermission.ALLOW, AclOperation.READ),
)
DENIED = AclBinding(
    ResourcePattern(AclResourceType.TOPIC, "*"),
    AclEntry("User:eve", AclPermission.DENY, AclOperation.ALL, "10.0.0.9"),
)


def test_entries_are_found_by_their_words() -> None:
    rows = acl_rows([DENIED, ALLOWED], "")
    assert [row["principal"] for row in rows] == ["User:etl", "User:eve"]
    assert [row["severity"] for row in rows] == [0, 2]
    assert [row["host"] for row in rows] == ["any", "10.0.0.9"]
    assert [row["principal"] for row in acl_rows([DENIED, ALLOWED], "orders read")] == ["User:etl"]
    assert len({row["id"] for row in rows}) == 2


def test_quotas_have_their_unit() -> None:
    rows = quota_rows(
        {QuotaEntity(user="bob"): {"producer_byte_rate": 1048576.0, "request_percentage": 12.5}}
    )
    assert [row["limit"] for row in rows] == ["1,048,576 B/s", "12.5"]


def test_users_are_told_with_how_they_log_in_and_found_by_name() -> None:
    both = (ScramCredentialInfo("SCRAM-SHA-256", 8192), ScramCredentialInfo("SCRAM-SHA-512", 4096))
    users = {"u10": both, "u2": both[:1]}
    rows = user_rows(users, "")
    assert [row["user"] for row in rows] == ["u2", "u10"]
    assert rows[1]["mechanisms"] == "SCRAM-SHA-256, SCRAM-SHA-512"
    assert rows[1]["iterations"] == "4,096, 8,192"
    assert [row["id"] for row in user_rows(users, "10")] == ["u10"]


def test_a_password_is_written_twice_and_is_not_empty() -> None:
    assert check_password(" a b ", " a b ") == " a b "
    with pytest.raises(ConfigurationError, match="not the same"):
        check_password("a", "b")
    with pytest.raises(ConfigurationError, match="empty"):
        check_password("", "")
    with pytest.raises(ConfigurationError, match="name"):
        parse_name("  ")


def test_whose_quota_is_said_in_words() -> None:
    assert parse_entity(" bob ", "", "") == QuotaEntity(user="bob")
    assert parse_entity("bob", "etl", "") == QuotaEntity(user="bob", client_id="etl")
    assert parse_entity("default", "", "") == QuotaEntity(user=DEFAULT)
    assert parse_entity("", "", "10.0.0.1") == QuotaEntity(ip="10.0.0.1")
    for wrong in (("", " ", ""), ("bob", "", "10.0.0.1")):
        with pytest.raises(ConfigurationError):
            parse_entity(*wrong)


def test_an_address_has_a_quota_of_its_own() -> None:
    assert quotas_of(QuotaEntity(ip="10.0.0.1")) == ["connection_creation_rate"]
    assert "connection_creation_rate" not in quotas_of(QuotaEntity(user="bob"))
    assert "producer_byte_rate" in quotas_of(QuotaEntity(user="bob"))


@pytest.mark.parametrize("text", ["", "much", "0", "-1", "inf", "nan"])
def test_a_limit_is_a_number_above_zero(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_limit(text)


@pytest.mark.parametrize("limit", [12345678.0, 0.5, 1e15 + 1, 33.333333333])
def test_a_limit_that_is_shown_can_be_set_again(limit: float) -> None:
    assert parse_limit(limit_text(limit)) == limit
