"""Which entities a filter of DescribeClientQuotas matches: Kafka's own examples (KIP-546)."""

from __future__ import annotations

import pytest

from moldau.errors import InvalidRequestError, UnsupportedVersionError
from moldau.quotas import DEFAULT, Match, NameCondition, QuotaEntity, find_matching

LIMITS = {"producer_byte_rate": 1.0}
ALL = [
    QuotaEntity("alice"),
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(ip="::1"),
]
QUOTAS = dict.fromkeys(ALL, LIMITS)

ALICE = NameCondition("user", Match.EXACT, "alice")
ANY_USER = NameCondition("user", Match.ANY, None)
DEFAULT_USER = NameCondition("user", Match.DEFAULT, None)
APP = NameCondition("client-id", Match.EXACT, "app")
ANY_CLIENT = NameCondition("client-id", Match.ANY, None)


@pytest.mark.parametrize(
    ("conditions", "strict", "expected"),
    [
        ([], False, ALL),
        ([], True, []),
        ([ALICE], False, ALL[:3]),
        ([ALICE], True, ALL[:1]),
        ([ANY_USER], False, ALL[:5]),
        ([ANY_USER], True, [ALL[0], ALL[4]]),
        ([DEFAULT_USER], False, [ALL[3], ALL[4]]),
        ([DEFAULT_USER], True, [ALL[4]]),
        ([ALICE, APP], True, [ALL[1]]),
        ([ANY_USER, APP], False, [ALL[1], ALL[3]]),
        ([ALICE, ANY_CLIENT], True, [ALL[1], ALL[2]]),
        ([APP], False, [ALL[1], ALL[3], ALL[5]]),
        ([NameCondition("ip", Match.EXACT, "::1")], False, [ALL[6]]),
    ],
)
def test_a_filter_matches(
    conditions: list[NameCondition], strict: bool, expected: list[QuotaEntity]
) -> None:
    assert list(find_matching(QUOTAS, conditions, strict=strict)) == expected


def test_an_entity_without_quotas_is_not_shown() -> None:
    assert find_matching({QuotaEntity("alice"): {}}, [], strict=False) == {}


@pytest.mark.parametrize(
    "conditions",
    [
        [ALICE, ANY_USER],
        [NameCondition("user", Match.EXACT, None)],
        [NameCondition("user", Match.ANY, "alice")],
        [NameCondition("user", Match.DEFAULT, "alice")],
        [NameCondition("user", 7, None)],
        [NameCondition("", Match.ANY, None)],
        [ALICE, NameCondition("ip", Match.ANY, None)],
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(conditions: list[NameCondition]) -> None:
    with pytest.raises(InvalidRequestError):
        find_matching(QUOTAS, conditions, strict=False)


def test_other_types_of_entities_are_not_known() -> None:
    with pytest.raises(UnsupportedVersionError):
        find_matching(QUOTAS, [NameCondition("group", Match.ANY, None)], strict=False)
